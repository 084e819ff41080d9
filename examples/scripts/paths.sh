# The host's side of lost-path.sh: two paths to LUN 0 of the array that array.sh has started, as root with open-iscsi and
# multipath-tools running. $second is the second path's address. It sets $device, the multipath device.
# `await NUMBER STATE` waits until that many paths are in a matching state.
device=/dev/mapper/3$(array volume show data --json | sed -n 's/.*"naa": "\(.*\)".*/\1/p')
node() { iscsiadm -m node -T "${url##*/}" "$@"; }
at_exit 'multipath -f "${device##*/}"; node -u; node -o delete' # before the array ends
for portal in 127.0.0.1:3260 "$second:3260"; do
    node -p "$portal" -o new
    node -p "$portal" -o update -n node.session.timeo.replacement_timeout -v 2
    node -p "$portal" -o update -n 'node.conn[0].timeo.noop_out_interval' -v 2 # asks a silent target soon
    node -p "$portal" -o update -n 'node.conn[0].timeo.noop_out_timeout' -v 5
    node -p "$portal" -l
done
paths() { multipathd show paths raw format '%w %d %t %T %o'; }
await() {
    for _ in $(seq 600); do [ "$(paths | grep -cE "$2")" -ge "$1" ] && return; sleep 0.5; done
    echo "not $1 paths are $2:" >&2; paths >&2; exit 1
}
await 2 'active ready'
