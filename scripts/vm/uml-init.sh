#!/bin/bash
# The first process of a guest of User Mode Linux. Puts a writable layer in
# memory over the root folder, which all guests share, mounts the folder of this
# run and hands over to guest.sh, which came with it. GUEST_RUN is that folder on
# the host, from the kernel's command line.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /mnt
mkdir /mnt/upper /mnt/work /mnt/root
modprobe overlay
mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work root /mnt/root || exit
umount /proc
cd /mnt/root || exit
mkdir -p mnt/run mnt/lower
mount -t hostfs -o "$GUEST_RUN" run mnt/run || exit
mount -t devtmpfs dev dev
pivot_root . mnt/lower
export GUEST_ENGINE=uml GUEST_CONSOLE=/dev/tty1
exec bash /mnt/run/payload/scripts/vm/guest.sh
