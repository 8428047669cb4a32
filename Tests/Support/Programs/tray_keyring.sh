#!/bin/sh
# Stands in for vaultfs-keyring in the tests of the tray's windows: the keyring is a file in the home directory.
action=$1 vault=$2 secret=$HOME/keyring label="keyring Login of $(id -un)@$(uname -n)"
[ "$action" = secret ] || shift 2
umask 077
case $action in
    enroll)
        head -c 32 /dev/urandom >"$secret"
        vaultfs slot add "$vault" --label "$label" --new-keyfile "$secret" "$@" && exit
        rm "$secret"
        echo 'vaultfs-keyring: no slot was added' >&2
        exit 1
        ;;
    secret)
        [ -e "$secret" ] || { echo '{"refused": "the keyring has no secret for this vault"}' && exit; }
        printf '{"secret": {"kind": "keyfile", "bytes": "%s"}}\n' "$(base64 -w 0 "$secret")"
        ;;
    remove) vaultfs slot remove "$vault" "$label" "$@" && rm "$secret" ;;
esac
