#!/bin/sh
# A clone by offload, the writes that its host never sees, and a limit on them.
#
# One host fills a volume and clones it by EXTENDED COPY, and another one writes 4 KiB at a time to the same pool
# (`arraysim demo`). What to see: hosts wrote 0 bytes to the clone, the array wrote all of it ("undercover"), the clone
# held most of the pool's write cache, and the other host's writes waited many times as long as before. Then
# offloads get a budget of 30 % of the cache, and the same clone does not affect the other host. It takes 40 seconds.
. "$(dirname "$0")/array.sh" << 'END'
cache: { size: 64MiB }
pools: []
volumes: []
END
clone() {
    array demo --running --json > "$folder/$1.json"
    jq -r --arg when "$1" '"\($when): hosts wrote \(.clone_host_written_bytes) bytes to the clone, the array \(.clone_undercover_bytes); "
        + "it held \(.clone_peak_cache_share * 100 | floor) % of the cache; a write beside it took \(.victim_during.median_ns / 1e6 | floor) ms"' "$folder/$1.json"
}
clone unbounded
array policy set --budget 30 --budget-pressure > "$folder/policy"
clone bounded
array counters
jq -es '(.[0].clone_host_written_bytes == 0) and (.[0].clone_undercover_bytes == .[0].cloned_bytes) and (.[1].clone_undercover_bytes == .[1].cloned_bytes)
    and (.[1].victim_during.median_ns < .[0].victim_during.median_ns / 2)' "$folder/unbounded.json" "$folder/bounded.json" > "$folder/verdict" \
    || { echo 'the clone was not undercover, or its budget does not help the other host' >&2; exit 1; }
