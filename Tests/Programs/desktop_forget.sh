#!/bin/bash
# A vault that forgets its keys, after the screen was unlocked: a window asks for its passphrase where one is set up.
. "$(dirname "$0")/desktop_lib.sh"
install -m 755 "$examples/vaultfs-screen-lock" "$bin"
vaultfs-screen-lock true
is_locked
[ ! -e "$lock_file" ]
VAULTFS_ASKPASS="cat $passfile" vaultfs-screen-lock true
is_unlocked
