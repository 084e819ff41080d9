#!/bin/sh
# A host with two paths to a LUN loses one of them while it writes. As root, with open-iscsi and multipath-tools running
# (defaults { no_path_retry queue } in /etc/multipath.conf); the second path's address is the first argument.
#
# What to see: `multipath -ll` shows one disk with two paths, "active ready running". When the array makes its first
# target port unavailable, that path turns "failed" or "ghost" (the host hears 2A/06, asymmetric access state
# changed), the writes go on by the other one, and none fails. Then the second address goes, as a pulled
# cable does, the first port is back, and it is the same the other way round.
second=${1:-192.0.2.2}
. "$(dirname "$0")/array.sh" << END
portal: { listen: "127.0.0.1:3260", further: ["$second:3260"] }
pools: [{ name: disks, mdisks: [{ name: m0, size: 1GiB }] }]
volumes: [{ name: data, pool: disks, size: 64MiB, export: { lun: 0 } }]
END
device=/dev/mapper/3$(array volume show data --json | sed -n 's/.*"naa": "\(.*\)".*/\1/p')
node() { iscsiadm -m node -T "${url##*/}" "$@"; }
at_exit 'multipath -f "${device##*/}"; node -u; node -o delete' # before the array ends
for portal in 127.0.0.1:3260 "$second:3260"; do
    node -p "$portal" -o new
    node -p "$portal" -o update -n node.session.timeo.replacement_timeout -v 2
    node -p "$portal" -l
done
paths() { multipathd show paths raw format '%w %d %t %T %o'; }
await() { # await NUMBER STATE: so many paths are in a state that matches
    for _ in $(seq 600); do [ "$(paths | grep -cE "$2")" -ge "$1" ] && return; sleep 0.2; done
    echo "not $1 paths are $2:" >&2; paths >&2; exit 1
}
await 2 'active ready'
multipath -ll
touch "$folder/go"
while [ -e "$folder/go" ]; do dd if=/dev/urandom of="$device" bs=64k count=8 oflag=direct conv=fsync 2> "$folder/dd" || exit 1; done & writer=$!
array port set 1 unavailable && await 1 'failed|faulty|ghost' && echo 'the first path is lost'
array port set 1 optimized && await 2 'active ready' && echo 'it is back'
ip addr del "$second/32" dev lo && await 1 'failed|faulty|offline' && echo 'the second path is lost'
ip addr add "$second/32" dev lo && await 2 'active ready' && echo 'it is back'
rm "$folder/go"
wait $writer && echo 'no write has failed'
