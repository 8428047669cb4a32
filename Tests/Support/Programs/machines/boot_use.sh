#!/bin/bash
# boot_use.sh STAGE: the package in a machine that boots with systemd, as a new user would set it up and find it after
# each boot (Manual/System.md). Stages: set-up, first-boot, second-boot. Run it as root, in its own machine
# (scripts/system/boot).
set -eEuo pipefail
trap 'echo "$0: line $LINENO: $BASH_COMMAND" >&2' ERR
export LC_ALL=C.UTF-8

doc=/usr/share/doc/vaultfs/examples/systemd
passphrase='correct horse'
mounts="/srv/private /srv/plain /srv/auto"

# await COMMAND...: waits until the command succeeds.
await() {
    local end=$((SECONDS + 60))
    while [ "$SECONDS" -lt "$end" ]; do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.1
    done
    echo "waited 60 s for: $*" >&2
    return 1
}

# refused FILE: succeeds if the file is refused because a key is missing.
refused() { [[ $(cat "$1" 2>&1 || true) == *"Required key not available"* ]]; }

# as_ada COMMAND...: runs the command in ada's session.
as_ada() {
    local id
    id=$(id -u ada)
    setpriv --reuid=ada --regid=ada --init-groups \
        env -C /home/ada HOME=/home/ada USER=ada "XDG_RUNTIME_DIR=/run/user/$id" "DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/$id/bus" "$@"
}

new_vault() { mkdir -p "$1" && vaultfs init "$1" --passfile "$2" --scrypt-logn 10 --no-recovery-key >/dev/null; }

set_up() {
    mkdir -m 700 /etc/vaultfs
    cp "$doc/system/vault-at-boot.conf" /etc/vaultfs/srv.conf
    echo "$passphrase" | install -m 600 /dev/stdin /etc/vaultfs/srv.passphrase
    local secret=/etc/vaultfs/srv.passphrase
    new_vault /srv/vault "$secret"
    mkdir /srv/private
    systemctl enable --now vaultfs@srv
    systemctl enable vaultfs-lock-on-sleep
    findmnt -n /srv/private >/dev/null
    echo content >/srv/private/file
    echo "the system's unit: mounted by enable --now"

    local name
    for name in plain auto gone; do
        new_vault "/srv/$name.vault" "$secret"
        mkdir "/srv/$name"
    done
    cat >>/etc/fstab <<FSTAB
/srv/plain.vault  /srv/plain  fuse.vaultfs  passfile=$secret,allow_other,nosuid,nodev,nofail,_netdev  0 0
/srv/auto.vault  /srv/auto  fuse.vaultfs  passfile=$secret,nosuid,nodev,nofail,x-systemd.automount,x-systemd.idle-timeout=0  0 0
/srv/gone.vault  /srv/gone  fuse.vaultfs  passfile=$secret,nosuid,nodev,nofail  0 0
FSTAB
    systemctl daemon-reload
    systemctl start srv-plain.mount srv-auto.automount
    for name in plain auto; do echo content >"/srv/$name/file"; done
    rm -r /srv/gone.vault
    echo "fstab: mounted by systemd's mount and automount units"

    useradd --create-home ada
    loginctl enable-linger ada
    as_ada mkdir -p .config/vaultfs Vault Private
    install -o ada -m 600 /dev/stdin /home/ada/passphrase <<<"$passphrase"
    as_ada vaultfs init Vault --passfile passphrase --scrypt-logn 10 --no-recovery-key >/dev/null
    # The list of vaults has the mountpoint from now on.
    as_ada vaultfs mount Vault Private --passfile passphrase >/dev/null
    as_ada vaultfs unmount Private >/dev/null
    sed 's|^SECRET=.*|SECRET="--passfile /home/ada/passphrase"|' "$doc/vault.conf" \
        | as_ada tee .config/vaultfs/Vault.conf >/dev/null
    await as_ada systemctl --user is-active --quiet default.target
    as_ada systemctl --user enable vaultfs@Vault
    as_ada systemctl --user start vaultfs@Vault
    as_ada sh -c 'echo content >Private/file'
    # root is refused. The mount admits only its own user.
    if cat /home/ada/Private/file 2>/dev/null; then return 1; fi
    echo "a user's unit: mounted"

    as_ada systemctl --user enable --now vaultfs-agent
    follows_session
    echo "a user's agent: follows the session, and delays sleep"
}

# session_of USER: prints the session that logind has for the user.
session_of() { loginctl list-sessions --no-legend | awk -v user="$1" '$3 == user { print $1; exit }'; }

# follows_session: ada logs in. Her vault is locked with her session, and the agent delays sleep.
follows_session() {
    local session
    await sh -c 'systemd-inhibit --list --no-legend | grep "vaultfs.*ada.*sleep.*delay"'
    su --login ada -c 'exec sleep 600' </dev/null >/dev/null 2>&1 &
    await sh -c '[ -n "$(loginctl list-sessions --no-legend | grep ada)" ]'
    session=$(session_of ada)
    loginctl lock-session "$session"
    await as_ada sh -c 'cat Private/file 2>&1 | grep "Required key not available"'
    loginctl unlock-session "$session"
    await as_ada grep -q content Private/file
    loginctl terminate-session "$session"
    wait $! || true
}

first_boot() {
    local mount
    [ "$(cat /srv/private/file)" = content ]
    [ "$(findmnt -n -o FSTYPE /srv/private)" = fuse.vaultfs ]
    systemctl is-active --quiet vaultfs@srv srv-plain.mount srv-auto.automount
    systemctl is-failed --quiet srv-gone.mount
    echo "nofail: a vault that is gone keeps nobody from booting"
    systemctl show -P ActiveState srv-auto.mount | grep -x inactive >/dev/null
    for mount in $mounts; do [ "$(cat "$mount/file")" = content ]; done
    systemctl is-active --quiet srv-auto.mount
    echo "fstab: mounted at boot, and at the first look"

    local file
    exec 7</srv/private/file
    systemctl start vaultfs-lock-on-sleep
    for mount in $mounts; do
        file=$mount/file
        refused "$file"
        vaultfs unlock "$mount" >/dev/null
        [ "$(cat "$file")" = content ]
    done
    exec 7<&-
    echo "before sleep: all locked; unlocked again by the command"

    # Killed: systemd notices, unmounts the dead mount, and starts the daemon again.
    kill -KILL "$(systemctl show -P MainPID vaultfs@srv)"
    await systemctl is-failed --quiet vaultfs@srv
    ls /srv/private >/dev/null
    [ ! -e /srv/private/file ]
    systemctl start vaultfs@srv
    [ "$(cat /srv/private/file)" = content ]
    echo "killed: failed for systemd, unmounted, started again"

    systemctl stop vaultfs@srv
    [ ! -e /srv/private/file ]
    if touch /srv/private/file 2>/dev/null; then return 1; fi
    cp -p /etc/vaultfs/srv.passphrase /root/kept
    echo wrong >/etc/vaultfs/srv.passphrase
    if systemctl start vaultfs@srv 2>/dev/null; then return 1; fi
    journalctl -q -b -u vaultfs@srv -o cat | grep -m 1 '^vaultfs: .*passphrase'
    [ "$(systemctl show -P ExecMainStatus vaultfs@srv)" = 4 ]
    cp -p /root/kept /etc/vaultfs/srv.passphrase
    systemctl start vaultfs@srv
    [ "$(cat /srv/private/file)" = content ]
    echo "a wrong passphrase: the unit fails, the journal says why"

    await as_ada systemctl --user is-active --quiet default.target
    as_ada systemctl --user start vaultfs@Vault
    [ "$(as_ada cat Private/file)" = content ]
    follows_session
    as_ada systemctl --user stop vaultfs@Vault
    [ ! -e /home/ada/Private/file ]
    as_ada systemctl --user start vaultfs@Vault
    echo "a user's unit: stopped and started"

    # Data that is in the caches of the kernel and of vaultfs when the machine goes down is in the vaults afterwards.
    head -c 60000000 /dev/urandom >/root/data
    for mount in $mounts; do cp /root/data "$mount/data"; done
    as_ada sh -c 'cat >Private/data' </root/data
    sha256sum </root/data >/root/sum
    sync -f /root/sum
    rm /root/data
}

second_boot() {
    local mount
    await as_ada systemctl --user is-active --quiet default.target
    as_ada systemctl --user start vaultfs@Vault
    for mount in $mounts; do sha256sum <"$mount/data" | cmp - /root/sum; done
    as_ada cat Private/data | sha256sum | cmp - /root/sum
    systemctl stop vaultfs@srv srv-plain.mount srv-auto.automount srv-auto.mount
    as_ada systemctl --user stop vaultfs@Vault
    for mount in /srv/vault /srv/plain.vault /srv/auto.vault; do
        await vaultfs verify "$mount" --passfile /etc/vaultfs/srv.passphrase
    done
    as_ada vaultfs verify Vault --passfile passphrase >/dev/null
    echo "powered off with 60 MB just written to each: all there, and all verify"
}

case $1 in
    set-up) set_up ;;
    first-boot) first_boot ;;
    second-boot) second_boot ;;
esac
