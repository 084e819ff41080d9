#!/bin/bash
# The live page, from web/ to what the binary embeds.
#
#   scripts/web.sh build    builds it into internal/admin/page (needs npm)
#   scripts/web.sh check    type checks it, builds it elsewhere and compares; once, until something changes
#   scripts/web.sh deps     installs what it is built and tested with (needs npm)
#
# Without npm, or without what npm would have to download, check says what it has not
# done; that the sources are those of the build is tested in Go all the same.
set -euo pipefail
cd "$(dirname "$0")/../web"
PATH=$PATH:$(cd .. && pwd)/.cache/venv/bin # scripts/setup.sh installs npm there on a machine without one

# One at a time: the tests install, too.
mkdir -p ../.cache
exec 9>../.cache/web.lock
flock 9

installed() {
	cmp -s package-lock.json node_modules/.arraysim-lock && return
	npm ci --no-audit --no-fund --fetch-retries=5 --loglevel=error >&2 && cp package-lock.json node_modules/.arraysim-lock
}

# A hash of all that check looks at, but for node_modules, which belongs to package-lock.json.
state() {
	{
		find . ../internal/admin/page ../scripts/web.sh -path ./node_modules -prune -o -type f -print0 | sort -z | xargs -0 sha256sum
		node --version
	} | sha256sum
}

case ${1:-check} in
deps)
	installed
	;;
build)
	installed
	npm run --silent check
	npm run --silent build
	;;
check)
	if ! command -v npm >/dev/null; then
		echo "SKIPPED [1] web: npm is not installed: the page is not built again for comparison" >&2
		exit
	fi
	if ! installed; then
		echo "SKIPPED [1] web: npm cannot install what the page is built with: it is not built again for comparison" >&2
		exit
	fi
	checked=$(state)
	[[ $(cat ../.cache/web.checked 2>/dev/null) != "$checked" ]] || exit 0
	npm run --silent check
	out=$(mktemp -d)
	trap 'rm -rf "$out"' EXIT
	OUT=$out npm run --silent build
	diff -r "$out" ../internal/admin/page >&2 || { echo "web: internal/admin/page is out of date; run: scripts/web.sh build" >&2; exit 1; }
	echo "$checked" >../.cache/web.checked
	;;
*)
	echo "usage: scripts/web.sh build|check|deps" >&2
	exit 2
	;;
esac
