#!/bin/bash
# Makes a real Debian root file system as an ext4 image, from packages of the
# machine's own apt sources, and prints its path. The image is kept in .cache/:
# the second call needs no network and returns at once. Beside it are the same files
# as a tar archive, from which scripts/vm/root.py goes on.
#
#   scripts/rootfs.sh [--force]
#
# Needs root, mmdebstrap and mke2fs. Nothing is mounted through a loop device.
set -euo pipefail

cd "$(dirname "$0")/.."
image=.cache/rootfs.ext4
archive=.cache/rootfs.tar
uuid=5a1ab000-0000-4000-8000-0000000000a5
export SOURCE_DATE_EPOCH=1750000000
export PATH=$PATH:/usr/sbin:/sbin

say() { echo "rootfs: $*" >&2; }
die() { say "$1"; exit 1; }

# One call at a time makes it; the others wait and take what it made.
mkdir -p .cache
exec {lock}>.cache/rootfs.lock
flock "$lock"

if [[ -s $image && -s $archive && ${1:-} != --force ]]; then
	echo "$PWD/$image"
	exit 0
fi

[[ $(id -u) == 0 ]] || die "needs root to create files of other owners: run it as root (once; the image is kept)"
for command in mmdebstrap mke2fs e2fsck; do
	[[ -n $(type -P $command) ]] || die "$command is missing: run scripts/setup.sh, or apt-get install mmdebstrap e2fsprogs"
done

sources=()
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list; do
	[[ -s $file ]] && grep -q debian "$file" && sources+=("$file")
done
((${#sources[@]})) || die "no Debian source in /etc/apt/sources.list or /etc/apt/sources.list.d: cannot tell where packages come from"
suite=$(. /etc/os-release && echo "${VERSION_CODENAME:?}")

work=$(mktemp -d "$PWD/.cache/rootfs.XXXXXX")
trap 'rm -rf "$work"' EXIT

# What the machine needs to reach its sources (proxies, certificates) holds here too.
apt-config dump | grep -E '^(Acquire::https?::|Acquire::ForceIPv)' >"$work/apt.conf" || true
echo 'Acquire::Retries "5";' >>"$work/apt.conf"

say "fetching and unpacking the packages of Debian $suite (about 40 MB; a minute or two)"
for attempt in 1 2 3; do
	mmdebstrap --quiet --variant=minbase --mode=auto --format=directory \
		--aptopt="$work/apt.conf" \
		--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
		"$suite" "$work/root" "${sources[@]}" >&2 && break
	((attempt < 3)) || die "mmdebstrap failed (see above): without a network, copy an existing $image to this machine"
	# Most likely the network's doing. It makes no system in a folder where it has begun one.
	say "mmdebstrap failed (see above); trying again"
	rm -rf "$work/root"
done

kib=$(du -sk --apparent-size "$work/root" | cut -f1)
size=$(((kib * 5 / 4 / 16384 + 2) * 16))
say "making an ext4 image of $size MiB from $((kib / 1024)) MiB of files"
mke2fs -q -t ext4 -b 4096 -U "$uuid" -E "hash_seed=$uuid,lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0" \
	-d "$work/root" "$work/image" "${size}M" >&2
e2fsck -fn "$work/image" >/dev/null 2>&1 || die "e2fsck finds errors in the fresh image"
# Without what mmdebstrap has from its options, and will have from others.
tar -C "$work/root" --xattrs --numeric-owner --exclude='./dev/*' --exclude='./etc/*/*/99mmdebstrap' -cf "$work/archive" .
mv "$work/archive" "$archive"
mv "$work/image" "$image"
say "done: $image"
echo "$PWD/$image"
