#!/bin/busybox sh
# The guest's first process: loads the drivers of its disk and of the shared
# folder, mounts both, and hands over to guest.sh, which came with the folder.
/bin/busybox mkdir -p /proc /sys /dev /root
/bin/busybox mount -t devtmpfs dev /dev
for m in $(/bin/busybox cat /modules/order); do
	/bin/busybox insmod "/modules/$m" || echo "initramfs: cannot load $m"
done
/bin/busybox mount -t ext4 -o noatime,nobarrier /dev/vda /root || echo "initramfs: no root file system"
/bin/busybox mkdir -p /root/mnt/run
/bin/busybox mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288,cache=none run /root/mnt/run ||
	echo "initramfs: no shared folder"
/bin/busybox mount --move /dev /root/dev
exec /bin/busybox switch_root /root /bin/bash /mnt/run/payload/scripts/vm/guest.sh
