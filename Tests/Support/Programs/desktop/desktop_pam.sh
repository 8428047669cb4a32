#!/bin/bash
# The password given to PAM opens the vault that has forgotten its keys, once the lock file is removed, and not before.
. "$(dirname "$0")/desktop_lib.sh"
# Its PATH contains the directory of vaultfs.
sed "s|^PATH=|PATH=$bin:|" "$examples/vaultfs-pam-unlock" >"$bin/pam"
chmod +x "$bin/pam"
mkfifo "$scratch/done"

# pam TYPE: runs the script as pam_exec(8) does, with the password on standard input. Descriptor 8 is open until its
# background process has ended.
pam() { env PAM_SERVICE=swaylock PAM_TYPE="$1" PAM_USER="$(id -un)" "$bin/pam" 8>"$scratch/done"; }
start() { cat "$scratch/done" & }
password() { tr -d '\n' <"$passfile"; }

touch "$lock_file"
is_locked
start
{ password; printf '\0'; } | pam auth
# The script has returned, and the lock file still exists.
is_locked
rm "$lock_file"
wait
is_unlocked

# Without the NUL, after another trigger.
vaultfs lock "$mount" >/dev/null
start
password | pam auth
wait
is_unlocked

# Not in another phase, and not with another password.
vaultfs lock "$mount" >/dev/null
start
password | pam account
wait
is_locked
start
printf 'wrong\0' | pam auth
wait
is_locked
