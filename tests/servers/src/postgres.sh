# A Postgres server for one process: data, socket and log in a folder of its own, gone with whoever started it.
#
#   sh postgres.sh FOLDER_OF_THE_SERVERS_PROGRAMS PORT OPTIONS
#
# Prints the folder once the server answers. Then takes orders, a line each, and prints `done` after each: `create NAME`
# (an empty database), `restart` (as after a power cut), `stop` (the same, and it stays away), `start`. The end of the
# input, which comes with the end of the process however it ends, stops the server and removes the folder. What fails ends
# it too, with the end of the server's log on standard error.

set -eu
programs=$1
port=$2
options=$3
folder=$(mktemp -d)
data=$folder/data

control() {
    "$programs/pg_ctl" --pgdata="$data" --log="$folder/log" --wait --timeout=300 --silent \
        --options="-k $folder -p $port -c listen_addresses=127.0.0.1 -c max_connections=200 $options" "$@" >&2 0</dev/null
}

leave() {
    status=$?
    case $status in
        0 | 130 | 143) ;;
        *)
            echo "the Postgres server on port $port failed ($status); the end of its log:" >&2
            tail -n 40 "$folder/log" >&2 2>/dev/null || tail -n 40 "$folder/initdb" >&2 || true
            ;;
    esac
    # It may have been stopped before, which `pg_ctl` complains of.
    control --mode=immediate stop 2>/dev/null || true
    rm -rf "$folder"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

"$programs/initdb" --pgdata="$data" --username=photofinish --auth=trust --encoding=UTF8 --locale=C --no-sync \
    >"$folder/initdb" 2>&1
control start
echo "$folder"

while read -r order name; do
    case $order in
        create) "$programs/createdb" --host="$folder" --port="$port" --username=photofinish "$name" >&2 0</dev/null ;;
        restart) control --mode=immediate restart ;;
        stop) control --mode=immediate stop ;;
        start) control start ;;
    esac
    echo done
done
