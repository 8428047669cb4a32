#!/bin/bash
# fstab.sh VAULTFS VAULT MOUNT PASSFILE SCRATCH: mount(8) and fstab(5), as root in a mount namespace of its own. VAULTFS
# is at the path of an installed program there, because mount.fuse3(8) searches the system's directories and ignores
# PATH.
set -eEuo pipefail
trap 'echo "$0: line $LINENO: $BASH_COMMAND" >&2' ERR
vaultfs=$1 vault=$2 mount=$3 passfile=$4 scratch=$5
lock=lock_file=$scratch/locks/lock
mkdir "$scratch/bin" "$scratch/locks"
ln -s "$vaultfs" "$scratch/bin/vaultfs"
mount --bind "$scratch/bin" /usr/local/sbin

# ends: unmounts as root would. The vault is free again when the daemon has ended, and the next mount waits for that.
ends() {
    umount "$mount"
    if mountpoint -q "$mount"; then exit 1; fi
}
shows() { findmnt -n -o "$1" "$mount" | grep -E "$2" >/dev/null; }

# mount -t, with all of fstab's options for other programs, and a comma and a backslash in a value: for mount(8) and for
# vaultfs.
cp "$passfile" "$scratch/pa,ss\\"
special="$scratch/pa\\,ss\\\\"
others=defaults,auto,nofail,_netdev,owner,group,x-systemd.automount,x-systemd.requires=/srv,x-gvfs-show,X-mount.mkdir
others=$others,comment=ours,exec,suid,dev,async,atime,diratime,relatime,strictatime,lazytime,nomand,iversion
mount -t fuse.vaultfs "$vault" "$mount" -o "$others,passfile=$special,$lock"
shows FSTYPE '^fuse\.vaultfs$'
shows SOURCE "^$vault\$"
if shows OPTIONS nosuid; then exit 1; fi
echo content >"$mount/file"
# The settings of a mount cannot be changed, and the attempt changes nothing.
if mount -o remount,ro "$mount" 2>"$scratch/errors"; then exit 1; fi
echo more >>"$mount/file"
ends

mount -t fuse.vaultfs "$vault" "$mount" -o "ro,noexec,nosuid,nodev,allow_other,extpass=cat '$passfile',$lock"
shows OPTIONS '^ro,nosuid,nodev,noexec,.*allow_other'
[ "$(cat "$mount/file")" = $'content\nmore' ]
ends

# mount(8) takes the word "shared" for itself, and leaves vaultfs nothing of it.
mount -t fuse.vaultfs "$vault" "$mount" -o "follow_writer,passfile=$passfile,$lock"
shows OPTIONS '^ro,'
ends

# A descriptor is passed through mount(8) and the shell of mount.fuse3(8). The last option about reading and writing
# wins.
mount -t fuse.vaultfs "$vault" "$mount" -o "ro,rw,user,passfile=/dev/fd/9,cache_size=1M,$lock" 9<"$passfile"
shows OPTIONS '^rw,nosuid,nodev,noexec'
ends

# fstab, all of it. An entry that cannot be mounted gives a one-line error, and does not affect the entries before and
# after it.
cat >"$scratch/fstab" <<END
$vault $scratch/nowhere fuse.vaultfs passfile=$passfile,nofail,$lock 0 0
$vault $mount fuse.vaultfs passfile=$special,nofail,_netdev,x-systemd.device-timeout=5s,$lock 0 0
$scratch/none $scratch fuse.vaultfs passfile=$passfile,noauto 0 0
END
mount -a -T "$scratch/fstab" 2>"$scratch/errors" || true
grep -q "^vaultfs: mountpoint does not exist: $scratch/nowhere$" "$scratch/errors"
mountpoint -q "$mount"
[ "$(cat "$mount/file")" = $'content\nmore' ]
# Again: existing mounts are left alone.
mount -a -T "$scratch/fstab" 2>/dev/null || true
[ "$(grep -c " $mount fuse.vaultfs " /proc/self/mounts)" = 1 ]
ends

# Options for other file systems, or for a later vaultfs, do not prevent a mount, and are logged.
mount -t fuse.vaultfs "$vault" "$mount" -o "bogus,uid=1000,passfile=$passfile,$lock" 2>"$scratch/errors"
grep -qx "vaultfs: unknown mount option 'bogus' is left out: 'man vaultfs-system' lists the options" "$scratch/errors"
[ "$(wc -l <"$scratch/errors")" = 2 ]
[ "$(cat "$mount/file")" = $'content\nmore' ]
ends

# refused CODE WORDS MESSAGE: mount(8) passes on the message of vaultfs, and its exit code.
refused() {
    local code=0
    mount -t fuse.vaultfs "$vault" "$mount" -o "$2" 2>"$scratch/errors" </dev/null || code=$?
    [ "$code" = "$1" ] || { echo "exit code $code" >&2; return 1; }
    grep -qxF "vaultfs: $3" "$scratch/errors" || { cat "$scratch/errors" >&2; return 1; }
}
refused 2 "onlock=forget,passfile=$passfile,$lock" "unknown mount option 'onlock': 'man vaultfs-system' lists the options"
# A secret is not an option, and is not repeated in the error.
refused 2 "passphrase=tell-nobody,$lock" "unknown mount option 'passphrase': 'man vaultfs-system' lists the options"
refused 1 "passfile=/dev/fd/999,$lock" "cannot read file descriptor 999: Bad file descriptor"
refused 1 "passfile=$scratch/none,$lock" "cannot open $scratch/none: No such file or directory"
# Mounts made by others beside this test are visible here too.
if grep -q " $mount fuse.vaultfs " /proc/self/mounts; then exit 1; fi
umount /usr/local/sbin
