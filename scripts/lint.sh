#!/bin/bash
# Formatters and static checks; silent when all is well. ruff comes with
# scripts/setup.sh and is left out by a bare `make lint` before that.
set -euo pipefail
cd "$(dirname "$0")/.."

# The compiler and the checks spend a third of their time collecting garbage otherwise.
export GOGC=${GOGC:-400}

unformatted=$(git ls-files -co --exclude-standard '*.go' | xargs -r gofmt -l)
if [[ -n $unformatted ]]; then
	echo "not formatted, run gofmt -w on:" "$unformatted" >&2
	exit 1
fi
# go vet and staticcheck in one pass: scripts/lint says why. What it has of others is compiled without inlining, in two thirds
# of the time, and is not slower for that: most of its time goes into the standard library.
mkdir -p .cache
go build -C scripts/lint -ldflags="-s -w" -gcflags="all=-dwarf=false -l" -gcflags="std=-dwarf=false" -o "$PWD/.cache/lint" .
.cache/lint ./...
# The other builds: with Ceph, and without Parquet, as a first `make run` builds it. Each is the packages that the tag changes.
for tag in rados noparquet; do
	git grep -lE "^//go:build .*\b$tag\b" -- '*.go' | xargs -r dirname | sort -u | sed 's|^|./|' | CGO_ENABLED=0 xargs -r .cache/lint -variant "$tag"
done
ruff=.cache/venv/bin/ruff
if [[ -x $ruff ]]; then
	$ruff check --quiet --config tests/ruff.toml tests scripts
	$ruff format --quiet --check --config tests/ruff.toml tests scripts || { echo "run: $ruff format --config tests/ruff.toml tests scripts" >&2; exit 1; }
else
	echo "SKIPPED [1] lint: Python is not checked: run scripts/setup.sh first" >&2
fi
scripts/web.sh check
