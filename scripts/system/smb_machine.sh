# shellcheck shell=bash disable=SC2154  # the first process sets program and modules
# Sourced by the first process of the machine that scripts/system/smb boots, with `program` and `modules`.
# Anywhere else it would unmount and overwrite what it must not.
[ "$$" = 1 ] || { echo "only for the first process of a machine" >&2; exit 1; }
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/run TMPDIR=/run/w LC_ALL=C.UTF-8
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev 2>/dev/null
mkdir -p /dev/shm
for directory in /dev/shm /run /var/lib /var/cache /var/log; do mount -t tmpfs none "$directory"; done
chmod 755 /run
mkdir -p /run/m/lib /run/w /run/lock /run/private /run/share /run/cifs /run/mnt /run/other /var/lib/samba/private \
    /var/log/samba /var/cache/samba
ln -s "$modules" /run/m/lib/modules
printf '#!/bin/sh\nexec /usr/sbin/modprobe -d /run/m "$@"\n' >/run/modprobe
chmod 755 /run/modprobe
echo /run/modprobe >/proc/sys/kernel/modprobe
ip link set lo up
for module in fuse cifs md4 cmac sha512 aes ccm gcm ecb nls_utf8; do modprobe -d /run/m "$module" 2>/dev/null; done
[ -e /dev/fuse ] || mknod /dev/fuse c 10 229
cat >/run/smb.conf <<EOF
[global]
 workgroup = W
 server min protocol = SMB3
 passdb backend = smbpasswd:/run/passwd
 private dir = /run/private
 lock directory = /run/private
 state directory = /run/private
 cache directory = /run/private
 pid directory = /run/private
 ncalrpc dir = /run/private/n
 log file = /run/log
 interfaces = lo
 bind interfaces only = yes
 disable spoolss = yes
 load printers = no
[share]
 path = /run/share
 read only = no
EOF
printf 'pw123456\npw123456\n' | smbpasswd -c /run/smb.conf -s -a root >/dev/null
smbd -s /run/smb.conf -D
for _ in $(seq 100); do (: </dev/tcp/127.0.0.1/445) 2>/dev/null && break; sleep 0.1; done
printf passphrase >/run/pass
printf passphrase2 >/run/pass2
chmod 600 /run/pass /run/pass2
pass=/run/pass

# expect CODE NAME COMMAND...: runs the command, and prints its exit code and time.
expect() {
    local code=$1 name=$2 found=0 began=$SECONDS
    shift 2
    timeout -k 5 300 "$@" >/run/out 2>&1 || found=$?
    echo "$name: $found, $((SECONDS - began)) s"
    [ "$found" = "$code" ] || { tail -n 5 /run/out; echo "failed: $name: exit code $found, not $code"; }
}
shares() { expect 0 share mount -t cifs //127.0.0.1/share /run/cifs -o username=root,password=pw123456; }
mounts() { expect 0 "mount $*" "$program" mount -q "$@" --lock-file /run/w/l --passfile "$pass" /run/cifs/v /run/mnt; }
unmounts() { expect 0 unmount "$program" unmount /run/mnt; }
verifies() { expect 0 verify "$program" verify --passfile "$pass" /run/cifs/v; }
contains() { expect 0 "content of $1" grep -q "$2" "/run/mnt/$1"; }

echo "== make, mount, write"
shares
expect 0 init "$program" init -q --scrypt-logn 10 --no-recovery-key --passfile "$pass" /run/cifs/v
expect 0 info "$program" info /run/cifs/v
grep lacks /run/out
mounts
for number in 1 2 3; do
    echo "version $number" >/run/mnt/doc.new
    expect 0 "save by rename" mv /run/mnt/doc.new /run/mnt/doc
    contains doc "version $number"
done
exec 5</run/mnt/doc
echo "version 4" >/run/mnt/doc.new
expect 0 "rename over an open file" mv /run/mnt/doc.new /run/mnt/doc
expect 0 "the open file has the old content" grep -q "version 3" <&5
exec 5<&-
mkdir -p /run/mnt/d/e
echo deep >/run/mnt/d/e/f
expect 0 "rename of a directory" mv /run/mnt/d /run/mnt/g
contains g/e/f deep
expect 0 "removal of a tree" rm -r /run/mnt/g
for mode in delete wal; do
    expect 0 "SQLite, $mode" python3 -c '
import sqlite3, sys
base = sqlite3.connect("/run/mnt/" + sys.argv[1], isolation_level=None)
assert base.execute("pragma journal_mode=" + sys.argv[1]).fetchone()[0] == sys.argv[1]
base.execute("create table t(a, b)")
for number in range(20): base.execute("insert into t values(?, ?)", (number, bytes(500)))
assert base.execute("pragma integrity_check").fetchone()[0] == "ok"
' "$mode"
done
expect 0 git bash -c '
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0="*"
git init -q /run/mnt/git && cd /run/mnt/git && echo 1 >a && git add a && git -c user.name=a -c user.email=a@b commit -qm a && git fsck'
expect 5 "second mount" "$program" mount -q --passfile "$pass" /run/cifs/v /run/other
expect 0 "slot add beside the mount" "$program" slot add --passfile "$pass" --new-passfile /run/pass2 --scrypt-logn 10 /run/cifs/v
unmounts
verifies

echo "== kill -9"
mounts
expect 0 "fsync" python3 -c '
import os
file = os.open("/run/mnt/synced", os.O_CREAT | os.O_RDWR)
os.write(file, b"a" * 100000); os.fsync(file); os.pwrite(file, b"b" * 10000, 5000); os.fsync(file)'
kill -9 "$(pgrep -f "daemon mount .*/run/cifs/v" | head -n 1)"
sleep 1
fusermount3 -uz /run/mnt
mounts
expect 0 "fsynced content" python3 -c 'assert open("/run/mnt/synced", "rb").read() == b"a" * 5000 + b"b" * 10000 + b"a" * 85000'
unmounts
verifies

echo "== slots and rekey"
expect 0 "slot change" "$program" slot change --passfile "$pass" --new-passfile /run/pass2 --scrypt-logn 10 /run/cifs/v 1
pass=/run/pass2
expect 0 rekey "$program" rekey -q --yes --passfile "$pass" /run/cifs/v
umount /run/cifs
shares
for option in --ro --shared; do
    mounts "$option"
    contains doc "version 4"
    unmounts
done
verifies
expect 1 "no leftovers" bash -c 'ls -a /run/share/v | grep -E "kept|tmp"'
echo "== all done"
echo o >/proc/sysrq-trigger
sleep 10
