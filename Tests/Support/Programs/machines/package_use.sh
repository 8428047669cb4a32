#!/bin/bash
# package_use.sh [here]: the installed package, used as a new user would on a Debian without anything else. Run it as
# root, in its own Debian. "here": that Debian has a Swift toolchain, and the package was built with it.
set -eEuo pipefail
trap 'echo "$0: line $LINENO: $BASH_COMMAND" >&2' ERR

if [ "${1:-}" != here ]; then
    if ldd "$(command -v vaultfs)" | grep -E 'swift|not found'; then exit 1; fi
    if command -v swift; then exit 1; fi
fi
man vaultfs | grep '^EXIT STATUS' >/dev/null
man vaultfs-mount | grep -- '--guard-mountpoint' >/dev/null
man vaultfs-tpm2 | grep -- '--pcrs LIST' >/dev/null
man vaultfs-fido2 | grep -- '--no-pin' >/dev/null
man vaultfs-keyring | grep -- '--desktop-keyring' >/dev/null
man vaultfs-agent | grep InhibitDelayMaxSec >/dev/null
man vaultfs-reader | grep -- '--names RULES' >/dev/null
[[ $(vaultfs-tpm2 secret "$PWD/none" </dev/null | cat) == '{"refused":"cannot read '*'/none"}' ]]
[[ $(vaultfs-fido2 secret "$PWD/none" </dev/null | cat) == '{"refused":"cannot read '*'/none"}' ]]
test -s "$(dirname "$(command -v vaultfs)")/../share/bash-completion/completions/vaultfs"

cd "$(mktemp -d)"
mkdir vault private
install -m 600 /dev/null passphrase
echo 'correct horse' >passphrase
vaultfs init vault --passfile passphrase --scrypt-logn 10 --no-recovery-key
vaultfs mount vault private --passfile passphrase
echo content >private/file
vaultfs lock private >/dev/null
refusal=$(cat private/file 2>&1 || true)
[[ $refusal == *"Required key not available"* ]]
vaultfs unlock private >/dev/null
[ "$(cat private/file)" = content ]
vaultfs unmount private
[ ! -e private/file ]

echo "$PWD/vault $PWD/private fuse.vaultfs passfile=$PWD/passphrase,nofail,_netdev,x-systemd.automount 0 0" >/etc/fstab
mount -a
[ "$(cat private/file)" = content ]
findmnt -n -o FSTYPE private | grep -x fuse.vaultfs >/dev/null
vaultfs unmount private

# An ordinary user, through fusermount3.
useradd --create-home vaultfs-reader
install -d -o vaultfs-reader /home/vaultfs-reader/vault /home/vaultfs-reader/private
install -o vaultfs-reader -m 600 passphrase /home/vaultfs-reader/passphrase
as_user() { setpriv --reuid=vaultfs-reader --regid=vaultfs-reader --init-groups env -C /home/vaultfs-reader HOME=/home/vaultfs-reader "$@"; }
as_user vaultfs init vault --passfile passphrase --scrypt-logn 10 --no-recovery-key
as_user vaultfs mount vault private --passfile passphrase --guard-mountpoint
as_user sh -c 'echo content >private/file'
as_user vaultfs unmount private
as_user vaultfs mount vault private --passfile passphrase --guard-mountpoint
[ "$(as_user cat private/file)" = content ]
as_user vaultfs unmount private
if as_user touch private/file 2>/dev/null; then exit 1; fi

# fstab lets her mount her own entry. While nothing is mounted, writes to the mountpoint are refused to
# everyone except root.
echo "/home/vaultfs-reader/vault /home/vaultfs-reader/private fuse.vaultfs user,noauto,guard_mountpoint,passfile=/home/vaultfs-reader/passphrase 0 0" >/etc/fstab
as_user mount private
[ "$(as_user cat private/file)" = content ]
as_user vaultfs unmount private
