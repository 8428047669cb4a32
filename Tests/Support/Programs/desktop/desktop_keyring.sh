#!/bin/bash
# desktop_keyring.sh MOUNT EXAMPLES VAULTFS SCRATCH PASSFILE VAULT: the GNOME keyring, on a bus of its own and without a
# display, keeps the secret of a vault. VAULT is not mounted.
set -eEuo pipefail
trap 'echo "$0: line $LINENO: $BASH_COMMAND" >&2' ERR
if [ "${1:-}" != --on-bus ]; then
    unset DISPLAY WAYLAND_DISPLAY XDG_DATA_HOME DBUS_SESSION_BUS_ADDRESS
    exec dbus-run-session -- bash "$0" --on-bus "$@"
fi
shift
mount=$1 examples=$2 vaultfs=$3 scratch=$4 passfile=$5 vault=$6
bin=$scratch/bin
mkdir -p "$bin" "$scratch/home"
ln -sf "$vaultfs" "$bin/vaultfs"
install -m 755 "$examples/../packaging/vaultfs-keyring" "$bin"
export PATH=$bin:$PATH HOME=$scratch/home XDG_CONFIG_HOME=$scratch/home/.config
umask 077
opening=(--passfile "$passfile")
provider=(--provider 'vaultfs-keyring secret')

await() {
    local try
    for ((try = 0; try < 3000; try++)); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.01
    done
    echo "$0: waited 30 s for: $*" >&2
    return 1
}

# expect CODE WORDS COMMAND...: runs the command, which ends soon with this exit code and these words on stderr.
expect() {
    local code=0 errors
    errors=$(timeout 40 "${@:3}" 2>&1 >"$scratch/output") || code=$?
    if [ "$code" != "$1" ] || [[ $errors != *"$2"* ]]; then
        echo "$0: line ${BASH_LINENO[0]}: exit code $code, and on stderr: $errors" >&2
        return 1
    fi
}
slots() { vaultfs info --json -- "$1" | grep -c '"kind"'; }
vault_id() { vaultfs info --json -- "$1" | sed -n 's/.*"vaultID" : "\([0-9a-f]*\)".*/\1/p'; }
# answer VAULT: the provider's answer.
answer() {
    echo "{\"request\":\"secret\",\"slots\":[],\"vault\":\"$(vault_id "$1")\"}" >"$scratch/request"
    timeout 40 vaultfs-keyring secret <"$scratch/request" | cat
}
# expect_refusal WORDS VAULT
expect_refusal() { [[ $(answer "$2") == '{"refused": "'*"$1"* ]]; }
opens() { vaultfs slot list "${provider[@]}" -- "$1" >/dev/null; }
bus() { busctl --address="$DBUS_SESSION_BUS_ADDRESS" call "$@"; }
is_running() {
    [ "$(bus org.freedesktop.DBus / org.freedesktop.DBus NameHasOwner s org.freedesktop.secrets)" = "b true" ]
}

# There is no bus, or no keyring: the second bus has none of the services of this machine.
DBUS_SESSION_BUS_ADDRESS='' XDG_RUNTIME_DIR=$scratch expect_refusal "there is no D-Bus session bus" "$vault"
cat >"$scratch/bus.conf" <<'CONFIGURATION'
<busconfig>
  <type>session</type>
  <listen>unix:tmpdir=/tmp</listen>
  <policy context="default"><allow send_destination="*"/><allow receive_sender="*"/><allow own="*"/></policy>
</busconfig>
CONFIGURATION
[[ $(dbus-run-session --config-file="$scratch/bus.conf" -- vaultfs-keyring secret <"$scratch/request" | cat) \
    == '{"refused": "no keyring runs in this session, '* ]]

printf 'the password' >"$scratch/password"
gnome-keyring-daemon --foreground --components=secrets --unlock <"$scratch/password" >/dev/null 2>&1 &
keyring=$!
# A stopped process would outlive the bus.
trap 'kill -KILL $keyring 2>/dev/null || true' EXIT
await is_running

# An enrollment whose slot cannot be added leaves no item.
echo wrong >"$scratch/wrong"
expect 1 "vaultfs-keyring: no slot was added" vaultfs-keyring enroll "$vault" --passfile "$scratch/wrong"
expect_refusal "has no secret for this vault" "$vault"

# The system calls show that the secret is in no argument or variable. stdin belongs to vaultfs.
strace -f -qq -v -s 65536 -e trace=execve -o "$scratch/calls" \
    vaultfs-keyring enroll "$vault" --passfile - <"$passfile" >/dev/null
vaultfs info --json "$vault" >"$scratch/output"
grep -qE "\"keyring Login [0-9a-f]{8} of $(id -un)@" "$scratch/output"
strace -f -qq -v -s 65536 -e trace=execve -o "$scratch/more-calls" \
    vaultfs slot list "$vault" "${provider[@]}" >"$scratch/output"
grep -q "Authenticated: the secret opens slot 2." "$scratch/output"
vaultfs-keyring enroll "$vault" "${opening[@]}" >"$scratch/output"
grep -qx "The keyring opens this vault already, with slot 2." "$scratch/output"
answer "$vault" >"$scratch/answer"

vaultfs mount "$vault" "$mount" --desktop-keyring --on-lock forget --prewarm --lock-file "$scratch/lock" \
    --foreground --log-level debug 2>"$scratch/log" &
daemon=$!
await mountpoint -q "$mount"
echo content >"$mount/file"
is_unlocked() { [ "$(cat "$mount/file")" = content ]; }
is_locked() { [[ $(cat "$mount/file" 2>&1) == *"Required key not available"* ]]; }
vaultfs lock "$mount" >/dev/null
await is_locked
vaultfs unlock "$mount" --desktop-keyring
is_unlocked
touch "$scratch/lock"
await is_locked
rm "$scratch/lock"
await is_unlocked
vaultfs unmount "$mount"
wait $daemon

# Another vault, with any bytes in its path, has an item of its own.
other=$scratch/$'-a "b" \'c\'\nd'
cd "$scratch"
vaultfs init "${opening[@]}" --scrypt-logn 10 --no-recovery-key -- "$other" >/dev/null
expect_refusal "has no secret for this vault" "$other"
vaultfs-keyring enroll -- "${other##*/}" "${opening[@]}" >/dev/null
[ "$(answer "$other")" != "$(cat "$scratch/answer")" ]
opens "$other"
[ "$(answer "$vault")" = "$(cat "$scratch/answer")" ]

# A slot that was removed without its item: both commands go on from there.
vaultfs slot remove "${opening[@]}" -- "$other" 2 >/dev/null
vaultfs-keyring enroll "$other" "${opening[@]}" >"$scratch/output"
grep -q "which opened no slot of this vault" "$scratch/output"
opens "$other"
vaultfs slot remove "${opening[@]}" -- "$other" 2 >/dev/null
vaultfs-keyring remove "$other" "${opening[@]}" >"$scratch/output"
grep -q "It opened no slot" "$scratch/output"
expect 1 "has no item for this vault" vaultfs-keyring remove "$other" "${opening[@]}"

# A newer item, with another secret of 32 bytes or with fewer bytes.
store() {
    /usr/bin/python3 -c '
import importlib.machinery, importlib.util, sys
loader = importlib.machinery.SourceFileLoader("keyring", sys.argv[1])
keyring = importlib.util.module_from_spec(importlib.util.spec_from_loader("keyring", loader))
sys.dont_write_bytecode = True
loader.exec_module(keyring)
found = keyring.Keyring(sys.argv[2])
with found.limit():
    found.store(keyring.shown(f"vaultfs: {sys.argv[3]}"), "0", bytes(int(sys.argv[4])))' \
        "$bin/vaultfs-keyring" "$(vault_id "$other")" "$other" "$1"
}
store 32
expect 4 "no keyfile slot" vaultfs slot list "${provider[@]}" -- "$other"
store 31
expect_refusal "the item in the keyring is damaged" "$other"
vaultfs-keyring remove "$other" "${opening[@]}" >/dev/null

# A copy has the vault's id, and an item of its own.
cp -a "$vault" "$scratch/copy"
vaultfs slot remove "${opening[@]}" "$scratch/copy" 2 >/dev/null
expect 1 "has no item for this vault" vaultfs-keyring remove "$scratch/copy" "${opening[@]}"
# Two enrollments at once make one slot, whichever is refused.
vaultfs-keyring enroll "$scratch/copy" "${opening[@]}" >/dev/null 2>&1 &
vaultfs-keyring enroll "$scratch/copy" "${opening[@]}" >/dev/null 2>&1 || true
wait $! || true
[ "$(slots "$scratch/copy")" = 2 ]
opens "$vault" && opens "$scratch/copy"
vaultfs-keyring remove "$scratch/copy" "${opening[@]}" >/dev/null
opens "$vault" && [ "$(slots "$scratch/copy")" = 1 ]

# The keyring cannot ask for its password without a display.
bus org.freedesktop.secrets /org/freedesktop/secrets org.freedesktop.Secret.Service Lock \
    ao 1 /org/freedesktop/secrets/collection/login >/dev/null
expect 4 "the keyring stays locked" vaultfs mount "$vault" "$mount" --desktop-keyring
expect 1 "the keyring stays locked" vaultfs-keyring enroll "$other" "${opening[@]}"
[ "$(slots "$other")" = 1 ]
expect 1 "the keyring stays locked" vaultfs-keyring remove "$vault" "${opening[@]}"
[ "$(slots "$vault")" = 2 ]

# A keyring that hangs, and one that has ended: another is started, and finds the item in the first one's file.
sed 's/^SIGN_LIMIT = .*/SIGN_LIMIT = 1/' "$bin/vaultfs-keyring" >"$bin/impatient"
chmod +x "$bin/impatient"
kill -STOP $keyring
expect 4 "the keyring did not answer within 1 s" vaultfs slot list "$vault" --provider 'impatient secret'
kill -KILL $keyring
wait $keyring 2>/dev/null || true
gnome-keyring-daemon --foreground --components=secrets --unlock <"$scratch/password" >/dev/null 2>&1 &
keyring=$!
await is_running
[ "$(answer "$vault")" = "$(cat "$scratch/answer")" ]

# If the slot cannot be removed, the item stays.
expect 1 "the slot and the item in the keyring are still there" \
    vaultfs-keyring remove "$vault" --passfile "$scratch/wrong"
[ "$(slots "$vault")" = 2 ] && [ "$(answer "$vault")" = "$(cat "$scratch/answer")" ]
strace -f -qq -v -s 65536 -e trace=execve -o "$scratch/last-calls" \
    vaultfs-keyring remove "$vault" --passfile - <"$passfile" >/dev/null
[ "$(slots "$vault")" = 1 ]
expect_refusal "has no secret for this vault" "$vault"
kill $keyring

# The secret is in no file: the calls, the log, the list of vaults, the vault, the keyring's files.
grep -q execve "$scratch/more-calls"
test -s "$XDG_CONFIG_HOME/vaultfs/vaults.json"
mv "$scratch/answer" "$bin/answer"
/usr/bin/python3 - "$bin/answer" "$scratch/calls" "$scratch/more-calls" "$scratch/last-calls" "$scratch/log" \
    "$scratch/home" "$vault" "$XDG_RUNTIME_DIR/vaultfs" <<'SEARCH'
import base64, json, os, pathlib, sys
text = json.load(open(sys.argv[1]))["secret"]["bytes"]
secret = base64.b64decode(text)
assert len(secret) == 32
files = [file for place in map(pathlib.Path, sys.argv[2:]) for file in [place, *place.rglob("*")] if file.is_file()]
for file in files:
    content = file.read_bytes()
    for needle in secret, text.encode(), secret.hex().encode():
        assert needle not in content, file
print(f"{len(files)} files without the secret")
SEARCH
