#!/bin/bash
# What `make test` runs, part by part, and how long each part took.
#
#   scripts/test.sh [quick]
#
# quick leaves out the race detector, slow cases and the virtual machine.
set -euo pipefail
cd "$(dirname "$0")/.."

quick=${1:-}
go=${GO:-go}
start=$(date +%s)
table=()

# What there is of the table is shown however the run ends.
finish() {
	local status=$?
	echo
	printf '%-10s %5s  %s\n' part s '' "${table[@]}"
	printf '%-10s %5d  %s\n' all $(($(date +%s) - start)) "$([[ $status == 0 ]] && echo passed || echo FAILED)"
}
trap finish EXIT

# part NAME COMMAND...: runs a part and notes its time.
part() {
	local name=$1 from status=0
	shift
	echo "== $name: $*"
	from=$(date +%s)
	"$@" || status=$?
	table+=("$name" $(($(date +%s) - from)) "$([[ $status == 0 ]] || echo FAILED)")
	return $status
}

part setup scripts/setup.sh
part lint scripts/lint.sh
if [[ $quick == quick ]]; then
	part go "$go" test -short ./...
	part build make --no-print-directory build
	part tools .cache/venv/bin/pytest tests -m "not slow"
	exit
fi
part go "$go" test -race -timeout 30m ./...
# Scenarios, torture and power cuts in virtual time: runs share nothing, and the race detector would take an hour.
part sim "$go" test -timeout 20m ./internal/sim
part torture "$go" test -timeout 20m ./internal/torture
part power "$go" test -timeout 20m -run 'TestPowerCuts|TestKills|TestFlippedBits' ./internal/array
part judge "$go" test -timeout 20m -run 'TestPrecisionAndRecall|AreNotAccused|TestShares' ./internal/report
part build make --no-print-directory build plugin
part tools .cache/venv/bin/pytest tests
part image scripts/vm/image.py
# Half an hour is for a machine that is busy with other things: idle, it takes six minutes.
part vm scripts/vm/run.py --limit 1800 -m "not slow"
