# A Postgres server for one test binary: data, socket and log in a folder of its own, gone with whoever started it.
#
#   sh postgres.sh FOLDER_OF_THE_SERVERS_PROGRAMS
#
# Prints the folder once the server answers. Then takes orders, a line each, and prints `done` after each: `restart`
# (as after a power cut), `stop`, `start`. The end of the input, which comes with the end of the test binary however it
# ends, stops the server and removes the folder.

set -eu
programs=$1
folder=$(mktemp -d)
data=$folder/data

control() {
    "$programs/pg_ctl" --pgdata="$data" --log="$folder/log" --wait --silent \
        --options="-k $folder -c listen_addresses='' -c max_connections=60 -c fsync=off" "$@" >&2 0</dev/null
}

leave() {
    control --mode=immediate stop || true
    rm -rf "$folder"
}
trap leave EXIT
trap 'exit 1' INT TERM

"$programs/initdb" --pgdata="$data" --username=photofinish --auth=trust --encoding=UTF8 --locale=C --no-sync >&2
control start
echo "$folder"

while read -r order; do
    case $order in
        restart) control --mode=immediate restart ;;
        stop) control --mode=immediate stop ;;
        start) control start ;;
    esac
    echo done
done
