#!/bin/bash
# login_use.sh STAGE: logins by ssh, with the commands and the lines of Manual/AtLogin.md, as the package has it.
# Stages: pam-mount, keyring. Run it as root, in its own machine (scripts/system/login).
set -eEuo pipefail
trap 'echo "$0: line $LINENO: $BASH_COMMAND" >&2' ERR
export LC_ALL=C.UTF-8

page=/usr/share/doc/vaultfs/Manual/AtLogin.md
passphrase='log in with horses'
options=(-o LogLevel=ERROR -o StrictHostKeyChecking=no)

# block BEGINNING: prints the page's block that begins with it.
block() {
    awk -v beginning="$1" '
        /^```/ { isIn = !isIn && !isFound; next }
        isIn && index($0, beginning) == 1 { isFound = 1 }
        isIn && isFound' "$page"
}

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

# as_ada COMMAND...: runs the command as ada, outside of a session.
as_ada() { setpriv --reuid=ada --regid=ada --init-groups env -C /home/ada HOME=/home/ada USER=ada "$@"; }

# enter COMMAND: ada logs in by ssh with the passphrase, and runs the command. Prints its output.
enter() {
    python3 /root/terminal.py /root/errors "password: =$passphrase" -- \
        ssh "${options[@]}" -o PubkeyAuthentication=no ada@localhost "$1"
}

# stay NAME: the same in the background, until the file /tmp/leave-NAME exists.
stay() {
    enter "touch /tmp/in-$1; while [ ! -e /tmp/leave-$1 ]; do sleep 0.1; done" >/dev/null &
    await test -e "/tmp/in-$1"
}

is_mounted() { findmnt -n /home/ada/Private >/dev/null; }
# is_out: ada's sessions and their service manager have ended.
is_out() { ! pgrep -u ada >/dev/null; }
is_gone() { ! is_mounted && ! pgrep -x vaultfs >/dev/null; }

# says WORDS COMMAND...: succeeds if the command's output contains the words.
says() {
    local words=$1 output
    shift
    output=$("$@" 2>&1) || true
    [[ $output == *"$words"* ]] || { echo "$* prints:" >&2; tail -n 20 <<<"$output" >&2; return 1; }
}

set_up() {
    useradd --create-home --shell /bin/bash ada
    echo "ada:$passphrase" | chpasswd
    install -o ada -m 600 /dev/stdin /home/ada/passphrase <<<"$passphrase"
    as_ada mkdir Private
    as_ada vaultfs init Vault --passfile passphrase --scrypt-logn 10 --no-recovery-key >/dev/null
}

# configure PATH: pam_mount as on the page, and the vault at this path.
configure() {
    {
        sed '/^<\/pam_mount>/d' /root/pam_mount.conf.xml
        block '<fusemount>' | sed "s|/home/ada/Vault|$1|"
        echo '</pam_mount>'
    } >/etc/security/pam_mount.conf.xml
    grep -q "vaultfs#$1\"" /etc/security/pam_mount.conf.xml
}

pam_mount() {
    local begun store process
    set_up
    cp /etc/security/pam_mount.conf.xml /root/
    configure /home/ada/Vault
    block pam-auth-update >/root/lines.sh
    DEBIAN_FRONTEND=noninteractive bash -e /root/lines.sh
    tail -n 1 /etc/pam.d/common-session | grep pam_mount >/dev/null

    enter 'echo content >Private/file' >/dev/null
    await is_gone
    says content enter 'cat Private/file'
    await is_gone
    says '/run/user/' enter 'vaultfs status --verbose Private | grep "^lock files"'
    await is_gone
    echo "the passphrase by ssh: mounted as the user, unmounted at the logout"

    stay first
    says "state                     unlocked" as_ada vaultfs status --verbose Private
    # The user's processes, the list of vaults and the journal are free of the passphrase.
    for process in $(pgrep -u ada); do
        if grep -aqs "$passphrase" "/proc/$process/cmdline" "/proc/$process/environ"; then return 1; fi
    done
    if journalctl -q -b | grep "$passphrase" >/dev/null; then return 1; fi
    if grep -q "$passphrase" /home/ada/.config/vaultfs/vaults.json; then return 1; fi
    stay second
    touch /tmp/leave-first
    # The count of pam_mount: pmvarrun(8).
    await grep -qx 0x1 /run/pam_mount/ada
    [ "$(as_ada cat Private/file)" = content ]
    touch /tmp/leave-second
    await is_gone
    echo "two sessions: unmounted after the last one"

    enter 'cd Private && (sleep 1000 </dev/null >/dev/null 2>&1 &); sleep 1' >/dev/null
    await is_gone
    pkill -x -u ada sleep
    echo "a program left behind: unmounted all the same"

    install -d -m 700 /root/.ssh
    ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519
    install -D -o ada -m 600 /root/.ssh/id_ed25519.pub /home/ada/.ssh/authorized_keys
    chown ada /home/ada/.ssh
    # The guarded mountpoint takes no files.
    local unmounted='touch Private/file 2>/dev/null || echo none; echo in'
    says $'none\nin' timeout 30 ssh "${options[@]}" ada@localhost "$unmounted"
    says $'none\nin' timeout 30 su --login ada -c "$unmounted"
    says content timeout 60 ssh "${options[@]}" ada@localhost \
        'vaultfs mount Vault --passfile passphrase >/dev/null && cat Private/file && vaultfs unmount Vault'
    await is_gone
    echo "a key, su by root: a login without a mount, and mounted by the label"

    as_ada vaultfs slot change Vault --passfile passphrase --new-passfile <(echo other words) --scrypt-logn 10
    says $'none\nin' enter "$unmounted"
    says 'vaultfs: /home/ada/Vault: wrong passphrase' journalctl -q -b -o cat
    as_ada vaultfs slot change Vault --passfile <(echo other words) --new-passfile passphrase --scrypt-logn 10
    echo "another passphrase: a login without a mount, the journal says why"

    # A second vault is the store, whose daemon is stopped. Its run-time directory must not end with ada's last session.
    await test ! -e "/run/user/$(id -u ada)"
    as_ada vaultfs init Far --passfile passphrase --scrypt-logn 10 --no-recovery-key >/dev/null
    as_ada vaultfs mount Far far --passfile passphrase >/dev/null
    as_ada mv Vault far/
    configure /home/ada/far/Vault
    store=$(as_ada vaultfs status --verbose far | sed -n 's/.* by process \([0-9]*\)$/\1/p')
    kill -STOP "$store"
    begun=$SECONDS
    says 'logged in' enter 'echo logged in'
    echo "a silent store: a login without a mount, after $((SECONDS - begun)) s"
    kill -CONT "$store"
    says content enter 'cat Private/file'
    await sh -c '! findmnt -n /home/ada/Private'
    as_ada vaultfs unmount far >/dev/null
}

keyring() {
    # As gdm-password and lightdm have it.
    echo 'auth optional pam_gnome_keyring.so' >>/etc/pam.d/sshd
    echo 'session optional pam_gnome_keyring.so auto_start' >>/etc/pam.d/sshd
    # Only the keyring opens a vault here.
    sed -i '/pam_mount/d' /etc/pam.d/common-auth /etc/pam.d/common-session
    as_ada rm -rf far
    as_ada vaultfs init Taxes --passfile passphrase --scrypt-logn 10 --no-recovery-key >/dev/null

    # A desktop starts graphical-session.target with a target of its own.
    install -d -o ada /home/ada/.config/systemd /home/ada/.config/systemd/user
    printf '[Unit]\nBindsTo=graphical-session.target\n' >/home/ada/.config/systemd/user/desktop.target
    {
        echo 'set -e'
        block 'vaultfs mount' | sed -e 's|Vault|Taxes|g' -e 's| --now||' \
            -e 's|^vaultfs mount .*~/Private|& --passfile passphrase|' \
            -e 's|^vaultfs-keyring .*~/Taxes|& --passfile passphrase|'
        echo 'systemctl --user start desktop.target'
    } | install -o ada -m 600 /dev/stdin /home/ada/first
    grep -q 'vaultfs-keyring enroll ~/Taxes --passfile passphrase' /home/ada/first
    # The keyring of a new user is there from the second session on.
    enter true >/dev/null
    await is_out
    local wait='timeout 60 sh -c "while ! mountpoint -q Private; do sleep 0.1; done"'
    local begin="systemctl --user start desktop.target; $wait"
    says content enter "bash ~/first; $wait; echo content >Private/file; cat Private/file"
    await is_gone
    await is_out
    echo "enrolled, and mounted by the unit; unmounted with the session"

    local end='systemctl --user stop graphical-session.target'
    says $'content\nnone' enter "$begin; cat Private/file; $end; [ -e Private/file ] || echo none"
    await is_out
    says content enter "$begin; kill -KILL \$(systemctl --user show -P MainPID vaultfs@Taxes)
        while systemctl --user is-active --quiet vaultfs@Taxes; do sleep 0.1; done; ! mountpoint -q Private
        systemctl --user start vaultfs@Taxes; cat Private/file"
    await is_out
    echo "ends with the desktop; killed: unmounted, started again"

    enter "$begin; cd Private; (sleep 1000 </dev/null >/dev/null 2>&1 &); sleep 1; $end" >/dev/null
    await is_gone
    pkill -x -u ada sleep
    await is_out
    echo "a program left behind: unmounted all the same"

    # The user's own passwd(1) encrypts the keyring anew.
    local new='and a new one 7'
    python3 /root/terminal.py /root/errors "password: =$passphrase" "urrent password: =$passphrase" \
        "ew password: =$new" "ew password: =$new" -- \
        ssh -tt "${options[@]}" -o PubkeyAuthentication=no ada@localhost passwd >/dev/null
    await is_out
    passphrase=$new
    says content enter "$begin; cat Private/file"
    await is_out
    echo "a new login passphrase: the keyring follows"
    # Set by root, it does not.
    echo "ada:set by root" | chpasswd
    passphrase='set by root'
    enter 'systemctl --user start vaultfs@Taxes' >/dev/null
    says 'the keyring stays locked' journalctl -q -b -o cat
    await is_out
    echo "a login passphrase set by root: the keyring stays locked"

    cp /usr/share/doc/vaultfs/examples/systemd/vault.conf /home/ada/.config/vaultfs/Taxes.conf
    printf '#!/bin/sh\ncat ~/passphrase\n' | install -m 755 /dev/stdin /usr/bin/zenity
    says content enter "$begin; cat Private/file"
    await is_gone
    echo "a window asks for the passphrase"
}

case $1 in
    pam-mount) pam_mount ;;
    keyring) keyring ;;
esac
