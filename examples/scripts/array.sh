# The scripts beside this one share this file. It starts an array in a temporary folder, on a free port of 127.0.0.1,
# which ends with the script. It sets $url, to which a script adds the number of a LUN, and the command `array`,
# which runs arraysim on this array. `at_exit COMMAND` runs a command before the array ends. Source this file, with
# the configuration on standard input. $ARRAYSIM selects a binary other than bin/arraysim.
set -eu
arraysim=${ARRAYSIM:-$(dirname "$0")/../../bin/arraysim}
folder=$(mktemp -d)
array() { "$arraysim" --data "$folder/data" "$@"; }
grep -v '^$' > "$folder/config.yaml"
grep -q '^portal:' "$folder/config.yaml" || echo 'portal: { listen: "127.0.0.1:0" }' >> "$folder/config.yaml"
echo 'metrics: { listen: none }' >> "$folder/config.yaml"
"$arraysim" serve "$folder/config.yaml" --data "$folder/data" > "$folder/ready" 2> "$folder/log" &
daemon=$! before=:
at_exit() { before=$1; }
end() { eval "$before" || true; kill "$daemon" 2> "$folder/none" || true; wait "$daemon" || true; rm -rf "$folder"; }
trap end EXIT
trap 'exit 1' INT TERM HUP
until grep -q '^ready' "$folder/ready"; do kill -0 "$daemon" || { cat "$folder/log" >&2; exit 1; }; sleep 0.1; done
url=$(sed -n 's/^ready: \(iscsi:[^ ,]*\).*/\1/p' "$folder/ready")
