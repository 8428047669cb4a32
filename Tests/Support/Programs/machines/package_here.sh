#!/bin/bash
# package_here.sh PACKAGE SCRATCH: installs the package in this machine's own system, under an overlay of its own
# (overlayfs), so that nothing of it changes. Uses it there as a new user would, and purges it. Run it as root, in its
# own mount and process namespaces, which end everything with them. SCRATCH is an empty directory.
set -eEuo pipefail
trap 'echo "$0: line $LINENO: $BASH_COMMAND" >&2' ERR
package=$1 scratch=$2

mount -t tmpfs none "$scratch"
mkdir "$scratch/upper" "$scratch/work" "$scratch/system"
system=$scratch/system
mount -t overlay -o "lowerdir=/,upperdir=$scratch/upper,workdir=$scratch/work" none "$system"
mount -t proc proc "$system/proc"
# The machine's lock files and sockets must not be visible in this system.
for place in run tmp root; do mount -t tmpfs -o mode=755 none "$system/$place"; done
chmod 1777 "$system/tmp"
# New device nodes, open to all as udev makes them.
mount -t tmpfs -o mode=755 none "$system/dev"
for node in "null 1 3" "zero 1 5" "full 1 7" "random 1 8" "urandom 1 9" "tty 5 0" "fuse 10 229"; do
    read -r name major minor <<<"$node"
    mknod -m 666 "$system/dev/$name" c "$major" "$minor"
done
ln -s /proc/self/fd "$system/dev/fd"

# inside COMMAND...: runs the command in that system, without this environment.
inside() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 chroot "$system" timeout -k 5 100 "$@" </dev/null; }

cp "$package" "$system/root/vaultfs.deb"
cp "${0%/*}/package_use.sh" "$system/root/"
inside dpkg --force-unsafe-io --install /root/vaultfs.deb >/dev/null
# The program finds Swift's libraries at their paths, which may be on another file system than the root's.
ldd "$system/usr/bin/vaultfs" | awk '$3 ~ /swift/ { print $3 }' | while read -r library; do
    [ -e "$system$library" ] || install -D -m 644 "$library" "$system$library"
done
# what_is_there: lists the package's files, with the time at which each appeared.
what_is_there() { inside find /usr /etc -xdev -name '*vaultfs*' -cnewer /root/vaultfs.deb -not -type l; }
[ -n "$(what_is_there)" ]
inside bash /root/package_use.sh here
inside dpkg --purge vaultfs >/dev/null
left=$(what_is_there)
[ -z "$left" ] || { echo "purged, and still there: $left" >&2; exit 1; }
