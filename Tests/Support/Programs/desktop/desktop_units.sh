#!/bin/bash
# desktop_units.sh MOUNT EXAMPLES VAULTFS SCRATCH PASSFILE VAULT: verifies the units with systemd, and runs their
# commands unchanged. VAULT is not mounted.
set -eEuo pipefail
trap 'echo "$0: line $LINENO: $BASH_COMMAND" >&2' ERR
mount=$1 examples=$2 vaultfs=$3 scratch=$4 passfile=$5 vault=$6
units=$scratch/units
mkdir -p "$units/system"
for unit in "$examples"/systemd/*.service "$examples"/systemd/system/*.service; do
    sed -e "s|/usr/local/bin/vaultfs |$vaultfs |g" -e "s|=/usr/local/bin/|=$examples/../packaging/|" \
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
# The example's own command prints what zenity's window returns: the passphrase.
cp "$examples/systemd/vault.conf" "$scratch/a.conf"
mkdir "$scratch/windows"
printf '#!/bin/sh\n[ "$*" = "--password --title=Passphrase" ] && cat "%s"\n' "$passfile" >"$scratch/windows/zenity"
chmod +x "$scratch/windows/zenity"
export PATH=$scratch/windows:$PATH

# setting NAME: its value, unquoted as in systemd.exec(5). run UNIT KEY [RUNNER]: runs a command of a unit. systemd
# replaces "${NAME}" and $NAME in the same way as a shell, but respects quotes in a value (systemd.service(5)).
setting() {
    local value
    value=$(sed -n "s/^$1=//p" "$scratch/a.conf")
    value=${value#\"}
    printf '%s' "${value%\"}"
}
run() {
    # The program that runs the command, if any.
    local runner=${3:-}
    local VAULT MOUNTPOINT OPTIONS command
    VAULT=$(setting VAULT) MOUNTPOINT=$(setting MOUNTPOINT) OPTIONS=$(setting OPTIONS)
    export VAULT MOUNTPOINT OPTIONS
    # "-" ignores a failure. The instance's name is the vault's label.
    command=$(sed -n -e "s|%I|${vault##*/}|g" -e "s/^$2=-\{0,1\}//p" "$units/$1")
    [ -n "$command" ]
    command=${command//\$SECRET/$(setting SECRET)}
    (cd / && eval "$runner $command")
}

# The label's mountpoint is that of the last mount.
"$vaultfs" mount --passfile "$passfile" -- "$vault" "$mount"
"$vaultfs" unmount -- "$mount"
start() {
    run vaultfs@.service ExecStart &
    until mountpoint -q "$mount"; do sleep 0.05; done
}
start
# The example has no options that lock or forget.
"$vaultfs" status --verbose "$mount" | grep -E '^on lock +refuse$' >/dev/null
if "$vaultfs" status --verbose "$mount" | grep '^idle seconds' >/dev/null; then exit 1; fi
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
wait
if mountpoint -q "$mount"; then exit 1; fi

# A killed daemon leaves a dead mount, which the unit removes. A mount made by hand stays after the unit has failed.
start
EXIT_CODE=exited run vaultfs@.service ExecStopPost
mountpoint -q "$mount"
kill -KILL "$("$vaultfs" status --verbose "$mount" | sed -n 's/^mounted .* by process \([0-9]*\)$/\1/p')"
wait || true
EXIT_CODE=killed run vaultfs@.service ExecStopPost
if mountpoint -q "$mount"; then exit 1; fi

# Type=notify: the machine's own unit, with the credential in systemd's directory. allow_other is allowed to root, or by
# fuse.conf.
settings system/vault-at-boot.conf | sed 's|-o allow_other||' >"$scratch/a.conf"
mkdir "$scratch/credentials"
cp "$passfile" "$scratch/credentials/passphrase"
CREDENTIALS_DIRECTORY=$scratch/credentials run system/vaultfs@.service ExecStart "python3 ${0%/*}/notify.py $mount"
# As in the example.
[[ $(stat -c %A "$mount") != *w* ]]
