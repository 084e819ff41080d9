#!/bin/bash
# Installs bin/arraysim as the machine's TCMU service, below $DESTDIR if that is set
# (to build an image). Run it as root; `make build` comes first.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=${DESTDIR:-}

# What is a link to it already stays one.
[[ bin/arraysim -ef $root/usr/local/bin/arraysim ]] || install -D -m 755 bin/arraysim "$root/usr/local/bin/arraysim"
install -D -m 644 scripts/dbus/arraysim.conf "$root/etc/dbus-1/system.d/arraysim.conf"
install -D -m 644 scripts/dbus/org.kernel.TCMUService1.service \
	"$root/usr/local/share/dbus-1/system-services/org.kernel.TCMUService1.service"
install -D -m 644 scripts/systemd/arraysim-tcmu.service "$root/etc/systemd/system/arraysim-tcmu.service"

if [[ -z $root && -d /run/systemd/system ]]; then
	systemctl daemon-reload
	systemctl reload dbus.service
	echo "installed; start it: systemctl enable --now arraysim-tcmu"
fi
