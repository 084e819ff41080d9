#!/bin/bash
# The guest's init, started by initramfs.sh (QEMU) or uml-init.sh. Sets up what a
# boot would, then runs what /mnt/run/env asks for: a command line, or "shell".
# Everything left in /mnt/run/results reaches the host. Where env names systemd as
# init, systemd boots the guest in place of this, and its last unit runs the command.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root LANG=C.UTF-8 TERM=${TERM:-linux}
export GUEST_ENGINE=${GUEST_ENGINE:-qemu}
console=${GUEST_CONSOLE:-/dev/hvc0}
run=/mnt/run
results=$run/results

# Memory that a process has touched stays its own: to touch a page for the first time is what costs most in a guest,
# where the host's kernel has to map it too.
export MALLOC_TRIM_THRESHOLD_=1073741824 MALLOC_MMAP_THRESHOLD_=1073741824

finish() {
	dmesg >$results/dmesg.log
	[[ ! -d /run/systemd/system ]] || journalctl --no-pager --output=short-monotonic >$results/journal.log
	mkdir -p $results/log
	cp -r /var/log/. $results/log/ 2>/dev/null
	echo "$1" >$results/status
	sync
	echo o >/proc/sysrq-trigger
	sleep 60
}

# Runs the command, or gives the console to a person. A command that goes on too long ends here, with the stacks of what
# hangs; the host pulls the plug only when even this does not come.
task() {
	cd /srv/arraysim
	if [[ $TASK == shell ]]; then
		cat >/root/.bashrc <<-'RC'
			PS1='guest:\w# '
			eval "$(resize 2>/dev/null)"
			alias ll='ls -l'
		RC
		echo "guest: arraysim is in the path, the repository's tests in $PWD; exit or Ctrl-D ends the machine"
		setsid -c bash -c "stty rows ${ROWS:-24} cols ${COLUMNS:-80}; exec bash" <>"$console" >&0 2>&0
		finish 0
	fi
	(
		sleep "$LIMIT"
		echo "guest: giving up after $LIMIT s; blocked tasks are in dmesg.log"
		echo w >/proc/sysrq-trigger
		ps -eo pid,stat,wchan:30,etimes,args >$results/ps.log
		finish timeout
	) &
	bash -c "$TASK"
	finish $?
}

. $run/env
[[ ${1:-} != task ]] || task

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs tmpfs /tmp
mkdir -p /dev/pts /dev/shm /run/lock /run/dbus
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
exec </dev/null >"$console" 2>&1

echo "guest: up, Linux $(uname -r), $(cut -d' ' -f1 /proc/uptime) s after power-on"
hostname guest
ip link set lo up
# iSCSI logins need crc32c_generic, and nothing loads it; elsewhere udev loads sd_mod and sg as disks appear.
modprobe -a configfs crc32c_generic sd_mod sg
mount -t configfs config /sys/kernel/config
# The initiator's errors and the stack of a task that blocks, for the logs.
[[ -e /proc/sys/kernel/hung_task_timeout_secs ]] && echo 120 >/proc/sys/kernel/hung_task_timeout_secs

# The tests and what they test, with a writable layer over them. To copy 50 MB takes seconds in a process of the host, and
# none of it is read twice; an emulated machine reads a file system of its own much faster than the host's.
mkdir -p /srv/arraysim /run/payload/upper /run/payload/work
if [[ $GUEST_ENGINE == qemu ]]; then
	cp -rT $run/payload /srv/arraysim
else
	[[ -n ${GUEST_INIT:-} ]] || ln -s /srv/arraysim/bin/arraysim /usr/local/bin/
	mount -t overlay -o lowerdir=$run/payload,upperdir=/run/payload/upper,workdir=/run/payload/work payload /srv/arraysim
fi
if [[ ${GUEST_INIT:-} == systemd ]]; then
	# The machine as Debian boots it, with nothing of arraysim but what the command installs.
	mkdir -p /run/systemd/system
	ln -s /dev/null /run/systemd/system/getty@tty1.service # the console is this run's output
	cat >/run/systemd/system/guest.service <<-END
		[Unit]
		Description=What this guest is for
		Requires=multi-user.target
		After=multi-user.target
		[Service]
		Type=oneshot
		Environment=GUEST_ENGINE=$GUEST_ENGINE
		ExecStart=/bin/bash $run/payload/scripts/vm/guest.sh task
		StandardOutput=file:$console
		StandardError=inherit
		TimeoutStartSec=infinity
	END
	exec /lib/systemd/systemd --unit=guest.service
fi
# tcmu-runner is here to compare with: what is under test is our own D-Bus policy,
# and nobody is started when targetcli asks for the name.
rm -f /etc/dbus-1/system.d/tcmu-runner.conf /usr/share/dbus-1/system-services/org.kernel.TCMUService1.service
/srv/arraysim/scripts/dbus/install.sh
rm -f /usr/local/share/dbus-1/system-services/org.kernel.TCMUService1.service
dbus-daemon --system --fork

task
