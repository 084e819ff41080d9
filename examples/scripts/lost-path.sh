#!/bin/sh
# A host with two paths to a LUN loses one of them while it writes. Run it as root, with open-iscsi and multipath-tools
# running (defaults { no_path_retry queue } in /etc/multipath.conf). The first argument is the second path's address.
#
# What to see: `multipath -ll` shows one disk with two paths, "active ready running". When the array makes its first
# target port unavailable, that path becomes "failed" or "ghost" (the host gets 2A/06, asymmetric access state
# changed), the writes continue through the other one, and none fails. Then the first port returns, the second
# address disappears, as if its cable were pulled, and the same happens the other way round.
second=${1:-192.0.2.2}
. "$(dirname "$0")/array.sh" << END
portal: { listen: "127.0.0.1:3260", further: ["$second:3260"] }
pools: [{ name: disks, mdisks: [{ name: m0, size: 1GiB }] }]
volumes: [{ name: data, pool: disks, size: 64MiB, export: { lun: 0 } }]
END
. "$(dirname "$0")/paths.sh"
multipath -ll
touch "$folder/go"
while [ -e "$folder/go" ]; do dd if=/dev/urandom of="$device" bs=64k count=8 oflag=direct conv=fsync 2> "$folder/dd" || exit 1; sleep 0.1; done & writer=$!
array port set 1 unavailable && await 1 'failed|faulty|ghost' && echo 'the first path is lost'
array port set 1 optimized && await 2 'active ready' && echo 'it is back'
ip addr del "$second/32" dev lo && await 1 'failed|faulty|offline' && echo 'the second path is lost'
ip addr add "$second/32" dev lo && await 2 'active ready' && echo 'it is back'
rm "$folder/go"
wait $writer && echo 'no write has failed'
