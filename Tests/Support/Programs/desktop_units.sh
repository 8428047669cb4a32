#!/bin/bash
# desktop_units.sh MOUNT EXAMPLES VAULTFS SCRATCH PASSFILE VAULT: verifies the units with systemd, and runs their
# commands unchanged. VAULT is not mounted.
set -eEuo pipefail
trap 'echo "$0: line $LINENO: $BASH_COMMAND" >&2' ERR
mount=$1 examples=$2 vaultfs=$3 scratch=$4 passfile=$5 vault=$6
units=$scratch/units
mkdir -p "$units/system"
for unit in "$examples"/systemd/*.service "$examples"/systemd/system/*.service; do
    sed -e "s|=/usr/local/bin/vaultfs |=$vaultfs |" -e "s|=/usr/local/bin/|=$examples/../packaging/|" \
        "$unit" >"$units/${unit#"$examples"/systemd/}"
done

# systemd does not treat warnings as failures, but this test does.
for unit in "$units"/*.service "$units"/system/*.service; do
    case $unit in */system/* | *sleep.service) manager=--system ;; *) manager=--user ;; esac
    complaints=$(systemd-analyze $manager --man=no verify "$unit" 2>&1) || complaints="systemd-analyze: exit $? $complaints"
    [ -z "$complaints" ] || { echo "$complaints" >&2; exit 1; }
done

# settings EXAMPLE: the settings with this vault's paths.
settings() { sed -e "s|^VAULT=.*|VAULT=$vault|" -e "s|^MOUNTPOINT=.*|MOUNTPOINT=$mount|" "$examples/systemd/$1"; }
settings vault.conf | sed "s|^PASSPHRASE_COMMAND=.*|PASSPHRASE_COMMAND=\"cat '$passfile'\"|" >"$scratch/a.conf"
grep -q "^PASSPHRASE_COMMAND=\"cat" "$scratch/a.conf"
# The example's own command prints what the window of kdialog, or of zenity, returns.
mkdir "$scratch/windows"
for window in zenity kdialog; do
    printf '#!/bin/sh\necho %s\n' "$window" >"$scratch/windows/$window"
    chmod +x "$scratch/windows/$window"
    asked=$(settings vault.conf | sed -n 's/^PASSPHRASE_COMMAND="\(.*\)"$/\1/p')
    [ "$(PATH=$scratch/windows /bin/sh -c "$asked")" = "$window" ]
done

# setting NAME: its value, unquoted as in systemd.exec(5). run UNIT KEY [RUNNER]: runs a command of a unit. systemd
# replaces "${NAME}" and $NAME in the same way as a shell.
setting() {
    local value
    value=$(sed -n "s/^$1=//p" "$scratch/a.conf")
    value=${value#\"}
    printf '%s' "${value%\"}"
}
run() {
    # The program that runs the command, if any.
    local runner=${3:-}
    local VAULT MOUNTPOINT PASSPHRASE_COMMAND OPTIONS command
    VAULT=$(setting VAULT) MOUNTPOINT=$(setting MOUNTPOINT) OPTIONS=$(setting OPTIONS)
    PASSPHRASE_COMMAND=$(setting PASSPHRASE_COMMAND)
    export VAULT MOUNTPOINT OPTIONS PASSPHRASE_COMMAND
    command=$(sed -n "s/^$2=//p" "$units/$1")
    [ -n "$command" ]
    (cd / && eval "$runner $command")
}

# Type=forking: ready when the command returns.
run vaultfs@.service ExecStart
mountpoint -q "$mount"
# The example has no options that lock or forget.
"$vaultfs" status --verbose "$mount" | grep -Eq '^on lock +refuse$'
if "$vaultfs" status --verbose "$mount" | grep -q '^idle seconds'; then exit 1; fi
echo content >"$mount/file"
exec 7<"$mount/file"
# The command queries all vaults of this user. A vault of another test, whose socket is elsewhere, does not reply (exit
# code 1).
code=0
run vaultfs-lock-on-sleep.service ExecStart || code=$?
[ $code = 0 ] || [ $code = 1 ]
[[ $(cat "$mount/file" 2>&1) == *"Required key not available"* ]]
# After waking up, nothing unlocks by itself. The lock file that the screen locker makes and removes does not unlock
# either.
touch "$XDG_RUNTIME_DIR/vaultfs/device.lock"
rm "$XDG_RUNTIME_DIR/vaultfs/device.lock"
[[ $(cat <&7 2>&1) == *"Required key not available"* ]]
"$vaultfs" unlock "$mount"
[ "$(cat <&7)" = content ]
exec 7<&-
run vaultfs@.service ExecStop
if mountpoint -q "$mount"; then exit 1; fi

# Type=notify: the machine's own unit, with the credential in systemd's directory. allow_other is allowed to root, or by
# fuse.conf.
settings system/vault-at-boot.conf | sed 's|-o allow_other||' >"$scratch/a.conf"
mkdir "$scratch/credentials"
cp "$passfile" "$scratch/credentials/passphrase"
CREDENTIALS_DIRECTORY=$scratch/credentials run system/vaultfs@.service ExecStart "python3 ${0%/*}/notify.py $mount"
# As in the example.
[[ $(stat -c %A "$mount") != *w* ]]
