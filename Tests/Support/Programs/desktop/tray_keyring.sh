#!/bin/sh
# Stands in for vaultfs-keyring in the tests of the tray's windows: the keyring is a file in the home directory.
action=$1 vault=$2 secret=$HOME/keyring label="keyring Login of $(id -un)@$(uname -n)"
[ "$action" = secret ] || shift 2
umask 077

# opened: prints the id of the slot that the keyring's secret opens.
opened() {
    [ -e "$secret" ] || return 1
    vaultfs slot list --json --keyfile "$secret" "$vault" 2>/dev/null | tr -d ' \n' \
        | sed -n 's/.*"openedSlots":\[\([0-9]*\)\].*/\1/p' | grep .
}

case $action in
    enroll)
        opened >/dev/null && echo "the keyring opens this vault already" && exit
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
    remove) slot=$(opened) && vaultfs slot remove "$vault" "$slot" "$@" && rm "$secret" ;;
esac
