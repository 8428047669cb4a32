#!/bin/bash
# fresh_enter.sh TREE USER STORY SWIFT [DIRECTORY...]: enters a bare Debian as a machine of its own and runs /fresh_use there.
# SWIFT, which has usr/bin/swift, and the other directories are there too, read-only. Run it as root, in its own mount and process namespaces, which end everything with
# them. A chroot is not enough: nsenter(1), which the tests use, leaves it.
set -euo pipefail
tree=$1 user=$2 story=$3
shift 3

mount --bind "$tree" "$tree"
cd "$tree"
for directory in "$@"; do
    mkdir -p ".$directory"
    mount --bind "$directory" ".$directory"
    mount -o remount,bind,ro ".$directory"
done
mount -t proc proc proc
# Not read-only: root sets the read-ahead of its own mounts there.
mount -t sysfs sysfs sys
mountpoint -q sys/fs/fuse/connections || mount -t fusectl fusectl sys/fs/fuse/connections
mount -t tmpfs -o mode=755 none dev
# New device nodes, open to all as udev makes them.
for node in "null 1 3" "zero 1 5" "full 1 7" "random 1 8" "urandom 1 9" "tty 5 0" "fuse 10 229"; do
    read -r name major minor <<<"$node"
    mknod -m 666 "dev/$name" c "$major" "$minor"
done
# Loop devices are the kernel's, and of the whole machine.
mknod -m 660 dev/loop-control c 10 237
for ((number = 0; number < 64; number++)); do mknod -m 660 "dev/loop$number" b 7 "$number"; done
for number in 0 1 2; do ln -s "/proc/self/fd/$number" "dev/$(cut -d ' ' -f $((number + 1)) <<<"stdin stdout stderr")"; done
ln -s /proc/self/fd dev/fd
mkdir dev/pts
mkdir -m 1777 dev/shm
mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs -o mode=1777 none dev/shm
mount -t tmpfs -o mode=755 none run
# An installed system has this file, and fusermount3(1) reads it.
[ -e etc/mtab ] || ln -s ../proc/self/mounts etc/mtab
pivot_root . .
umount -l .
cd /
exec env -i PATH="$1/usr/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" LC_ALL=C.UTF-8 \
    bash /fresh_use "$user" "$story" </dev/null
