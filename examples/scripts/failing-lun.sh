#!/bin/sh
# Test an application against a LUN that fails, is slow, and comes back.
#
#     failing-lun.sh [COMMAND...]
#
# COMMAND gets the LUN's address in $LUN. It must succeed while the disk below works or is slow, and end
# with an error while it is offline. By default the application is a backup with qemu-img. What to see:
# qemu-img's "error while reading" with the array's sense data, 2/04/00 NOT READY, while the disk is offline; no error
# but a longer time while it is slow; and finally the same checksum as before.
[ $# -gt 0 ] || set -- sh -c 'qemu-img convert -f raw -O raw "$LUN" "$BACKUP" && cksum < "$BACKUP"'
. "$(dirname "$0")/array.sh" << 'END'
pools: [{ name: disks, mdisks: [{ name: m0, size: 1GiB }] }]
volumes: [{ name: data, pool: disks, size: 64MiB, export: { lun: 0 } }]
END
export LUN="$url/0" BACKUP="$folder/backup"
qemu-io -f raw -c 'write -P 7 0 32M' "$LUN" > "$folder/io"
# What is in the cache needs no disk. It stays there until it is safe on the disk, which is later than that nothing is dirty.
until array pool list --json | grep -q '"cache_used": 0,'; do sleep 0.2; done

expect() { want=$1 when=$2 got=succeeds; shift 2 # expect succeeds|fails WHEN COMMAND...
    timeout "${LIMIT:-120}" "$@" || { [ $? = 124 ] && got='hangs' || got=fails; }
    echo "the application $got while $when"
    [ "$got" = "$want" ] || { echo "it should have: $want" >&2; exit 1; }
}
expect succeeds 'the disk works' "$@"
array fault mdisk disks m0 --offline > "$folder/pools"
expect fails 'the disk is offline' "$@"
array fault mdisk disks m0 --online --bandwidth 16MiB > "$folder/pools"
expect succeeds 'the disk is slow' "$@"
array fault mdisk disks m0 --bandwidth 0 > "$folder/pools"
expect succeeds 'the disk works again' "$@"
