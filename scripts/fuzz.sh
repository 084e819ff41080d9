#!/bin/bash
# Runs every fuzz target of the Go tests for a while: scripts/fuzz.sh [TIME], 30s each by default.
# FUZZPROCS bounds the processes that fuzz at a time. Ends at the first crash, whose input go test leaves in testdata.
set -euo pipefail
cd "$(dirname "$0")/.."

each=${1:-30s}
grep -rl --include='*_test.go' '^func Fuzz' internal tcmu handlers 2>/dev/null | xargs -n1 dirname | sort -u | while read -r dir; do
	grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$dir"/*_test.go | sed 's/^func //' | while read -r target; do
		echo "fuzz: $dir $target for $each"
		# `make lint` vets, and here vet would read all of the instrumented packages once more. Minimising a stream of
		# PDUs takes longer than finding another one.
		go test -vet=off -run '^$' -fuzz "^$target\$" -fuzztime "$each" -fuzzminimizetime 1x -parallel "${FUZZPROCS:-$(nproc)}" "./$dir"
	done
done
