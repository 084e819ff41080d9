#!/bin/sh
# A thin volume of 1 GiB in a pool of 64 MiB: what a host learns before space runs out and when it has, and how it
# frees some.
#
# What to see: at 60 MiB a unit attention, 6/38/07 THIN PROVISIONING SOFT THRESHOLD REACHED, because more than 80 % of
# the pool is allocated. The write itself succeeds. At 70 MiB sense 7/27/07 (DATA PROTECT, SPACE ALLOCATION FAILED
# WRITE PROTECT), which qemu and Linux report as ENOSPC. Writes to allocated space continue. An UNMAP of 16 MiB makes
# room, and the failed write succeeds.
. "$(dirname "$0")/array.sh" << 'END'
pools: [{ name: small, mdisks: [{ name: m0, size: 64MiB }] }]
volumes: [{ name: thin, pool: small, size: 1GiB, export: { lun: 0 } }]
END
io() { echo "$1"; qemu-io -f raw -c "$1" "$url/0" > "$folder/io" 2>&1 || true; grep -E 'SENSE|failed|wrote' "$folder/io" | tee -a "$folder/said" || true; }
for at in 0 10 20 30 40 50; do io "write ${at}M 10M"; done
grep -q '0x3807' "$folder/said" || { echo 'no unit attention at the threshold' >&2; exit 1; }
io 'write 60M 10M'
grep -q '0x2707' "$folder/io" && grep -q 'No space left' "$folder/io" || { echo 'the pool was not exhausted' >&2; exit 1; }
io 'write 0 10M'
grep -q wrote "$folder/io" || { echo 'a write that needs no space failed' >&2; exit 1; }
io 'discard 0 16M'
array pool list
io 'write 60M 10M'
grep -q wrote "$folder/io" || { echo 'there is no space after UNMAP' >&2; exit 1; }
