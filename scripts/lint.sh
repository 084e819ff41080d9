#!/bin/bash
# Formatters and static checks; silent when all is well. ruff comes with
# scripts/setup.sh and is left out by a bare `make lint` before that.
set -euo pipefail
cd "$(dirname "$0")/.."

# The compiler and the checks spend a third of their time collecting garbage otherwise.
export GOGC=${GOGC:-400}

STATICCHECK=honnef.co/go/tools/cmd/staticcheck@v0.6.1

unformatted=$(git ls-files -co --exclude-standard '*.go' | xargs -r gofmt -l)
if [[ -n $unformatted ]]; then
	echo "not formatted, run gofmt -w on:" "$unformatted" >&2
	exit 1
fi
go vet ./...
# The other builds: with Ceph, and without Parquet, as a first `make run` builds it. Each is the packages that the tag changes.
for tag in rados noparquet; do
	git grep -lE "^//go:build .*\b$tag\b" -- '*.go' | xargs -r dirname | sort -u | sed 's|^|./|' | CGO_ENABLED=0 xargs -r go vet -tags "$tag"
done
go run "$STATICCHECK" ./...
ruff=.cache/venv/bin/ruff
if [[ -x $ruff ]]; then
	$ruff check --quiet --config tests/ruff.toml tests scripts
	$ruff format --quiet --check --config tests/ruff.toml tests scripts || { echo "run: $ruff format --config tests/ruff.toml tests scripts" >&2; exit 1; }
else
	echo "lint: Python is not checked: run scripts/setup.sh first" >&2
fi
scripts/web.sh check
