#!/bin/bash
# A vault that forgets its keys, after the screen was unlocked: a window asks for its passphrase if one is set up.
. "$(dirname "$0")/desktop_lib.sh"
install -m 755 "$examples/vaultfs-screen-lock" "$bin"
# A lock file that is removed before the daemon notices it does not forget the keys.
export mount
stand_in locker <<'STAND_IN'
#!/bin/sh
until vaultfs status "$mount" | grep -E '^state +locked' >/dev/null; do sleep 0.01; done
STAND_IN
vaultfs-screen-lock locker
is_locked
[ ! -e "$lock_file" ]
VAULTFS_ASKPASS="cat $passfile" vaultfs-screen-lock true
is_unlocked
