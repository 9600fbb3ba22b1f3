# A Postgres server for one process: data, socket and log are in a temporary folder, removed when the process ends.
#
#   sh postgres.sh FOLDER_OF_THE_SERVERS_PROGRAMS PORT OPTIONS
#
# Prints the folder when the server responds. Then reads commands, one per line, and prints `done` after each: `create
# NAME` (an empty database), `restart` (as after a power cut), `stop` (the same, without starting it again), `start`. The
# end of the input, which comes with the end of the process however it ends, stops the server and removes the folder. A
# failed command does so too, and prints the end of the server's log on standard error.

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
    # `pg_ctl` fails if it is stopped already.
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

while read -r command name; do
    case $command in
        create) "$programs/createdb" --host="$folder" --port="$port" --username=photofinish "$name" >&2 0</dev/null ;;
        restart) control --mode=immediate restart ;;
        stop) control --mode=immediate stop ;;
        start) control start ;;
    esac
    echo done
done
