#!/bin/bash
# desktop_pam_root.sh EXAMPLES SCRATCH USER: run by root, the PAM script becomes the user before it runs vaultfs, and
# keeps nothing of root's environment.
set -eEuo pipefail
trap 'echo "$0: line $LINENO: $BASH_COMMAND" >&2' ERR
examples=$1 scratch=$2 user=$3
mkdir "$scratch/bin"
mkfifo "$scratch/done"
cat >"$scratch/bin/vaultfs" <<STAND_IN
#!/bin/sh
{ id -u; id -g; id -G; cat; echo; echo "\$*"; env; } >$scratch/seen
STAND_IN
sed "s|^PATH=|PATH=$scratch/bin:|" "$examples/vaultfs-pam-unlock" >"$scratch/bin/pam"
chmod -R a+rx "$scratch/bin"
chmod 777 "$scratch"
cat "$scratch/done" &
printf 'secret\0' | SECRET_OF_ROOT=1 PAM_TYPE=auth PAM_USER=$user "$scratch/bin/pam" 8>"$scratch/done"
wait
printf '%s\n' "$(id -u "$user")" "$(id -g "$user")" "$(id -g "$user")" secret "unlock --all --passfile -" \
    | diff - <(head -n 5 "$scratch/seen")
grep -qx "XDG_RUNTIME_DIR=/run/user/$(id -u "$user")" "$scratch/seen"
if grep -q SECRET_OF_ROOT "$scratch/seen"; then exit 1; fi

# root's own logins unlock nothing, so the passphrase may stay unread.
rm "$scratch/seen"
cat "$scratch/done" &
PAM_TYPE=auth PAM_USER=root "$scratch/bin/pam" 8>"$scratch/done" < <(printf 'secret\0')
wait
[ ! -e "$scratch/seen" ]
