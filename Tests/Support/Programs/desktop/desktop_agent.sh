#!/bin/bash
# desktop_agent.sh MOUNT EXAMPLES VAULTFS SCRATCH PASSFILE VAULT: vaultfs-agent follows a stand-in for systemd-logind
# (python-dbusmock) on a bus of its own. The vault is mounted with a grace.
. "$(dirname "$0")/desktop_lib.sh"
vault=$6
install -m 755 "$examples/../packaging/vaultfs-agent" "$bin"

address=unix:path=$scratch/bus
dbus-daemon --session --nofork --nopidfile --address="$address" 2>/dev/null 7<&- &
bus=$!
export DBUS_SYSTEM_BUS_ADDRESS=$address
await test -S "$scratch/bus"
/usr/bin/python3 -m dbusmock --system --template logind >/dev/null 7<&- &
mock=$!
me=$(id -u)
call() {
    local path=$1
    shift
    busctl --address="$address" call org.freedesktop.login1 "/org/freedesktop/login1$path" "$@"
}
await call "" org.freedesktop.DBus.Peer Ping
add_session() { call "" org.freedesktop.DBus.Mock AddSession ssusb "$1" seat0 "$2" "user$2" true >/dev/null; }
# session NAME METHOD [ARGUMENT...]: Lock, Unlock and SetLockedHint emit the signals that logind emits.
session() {
    local path=/session/$1
    shift
    call "$path" org.freedesktop.login1.Session "$@"
}
prepare_for_sleep() {
    call "" org.freedesktop.DBus.Mock EmitSignal sssav org.freedesktop.login1.Manager PrepareForSleep b 1 b "$1"
}
delays_sleep() { [[ $(call "" org.freedesktop.login1.Manager ListInhibitors) == *'"sleep" "vaultfs" '*' "delay"'* ]]; }
lets_sleep() { ! delays_sleep; }
state() { [ "$(vaultfs status "$mount" --json | grep -o '"state" *: *"[a-z]*"' | head -n 1 | tr -d '" ')" = "state:$1" ]; }

start() {
    vaultfs-agent 2>"$scratch/errors" 7<&- &
    agent=$!
    await delays_sleep
}
# At the moment when the machine could sleep, everything must be refused and purged already.
sleep_now() {
    prepare_for_sleep true
    await lets_sleep
    state locked
    refuses
}
wake() {
    prepare_for_sleep false
    await delays_sleep
    refuses
}

add_session 1 "$me"
busctl --address="$address" set-property org.freedesktop.login1 "/org/freedesktop/login1/user/$me" \
    org.freedesktop.login1.User Display '(so)' 1 /org/freedesktop/login1/session/1
start

# The session's signals, and its property.
session 1 Lock
is_locked
[ -e "$lock_file" ]
session 1 Unlock
await is_unlocked
session 1 SetLockedHint b true
is_locked
session 1 SetLockedHint b false
await is_unlocked

# Sessions of others, and this user's that have no screen, do not count. The vault is locked before sleep, stays locked
# after it, and is unlocked with the session.
add_session 2 12345
add_session 3 "$me"
session 2 Lock
session 3 Lock
sleep_now
[ ! -e "$lock_file" ]
wake
session 2 Unlock
session 3 Unlock
wake
session 1 Unlock
await is_unlocked

# Sleep waits until the vault is locked, here for a program that is writing.
vaultfs events "$mount" >"$scratch/events" 7<&- &
await grep -q ': now unlocked$' "$scratch/events"
exec 8>>"$mount/other"
prepare_for_sleep true
await grep -q ': locking' "$scratch/events"
delays_sleep
is_unlocked
exec 8>&-
await lets_sleep
refuses
wake
session 1 Unlock
await is_unlocked

# Both at once, as desktops do that lock the screen before sleep.
session 1 SetLockedHint b true
sleep_now
wake
session 1 SetLockedHint b false
await is_unlocked

# A vault that its user has locked stays locked, also if they did so after the machine woke up.
vaultfs lock "$mount" >/dev/null
sleep_now
wake
session 1 Unlock
sleep_now
wake
vaultfs unlock "$mount" >/dev/null
is_unlocked
sleep_now
wake
vaultfs unlock "$mount" >/dev/null
vaultfs lock "$mount" >/dev/null
session 1 Unlock
session 1 Lock
await test -e "$lock_file"
session 1 Unlock
sleep_now
wake
vaultfs unlock "$mount" >/dev/null
is_unlocked
# `lock --all` names vaults of other tests, whose sockets are elsewhere, or whose daemons were killed.
if grep -Ev "no vaultfs daemon answers|its daemon has ended" "$scratch/errors" >&2; then false; fi

# It may be stopped, which changes nothing. When it starts, it looks whether the session is locked.
kill $agent
wait $agent
is_unlocked
await lets_sleep
session 1 SetLockedHint b true
start
is_locked
session 1 SetLockedHint b false
await is_unlocked

# A vault that forgets its keys stays locked until somebody gives the secret.
exec 7<&-
vaultfs unmount "$mount"
vaultfs mount "$vault" "$mount" --passfile "$passfile" --on-lock forget
exec 7<"$mount/file"
sleep_now
wake
session 1 Unlock
await grep -q "$mount has forgotten its keys" "$scratch/errors"
refuses
vaultfs unlock "$mount" --passfile "$passfile" >/dev/null
is_unlocked

# At the end of the bus it locks. (The tests block SIGTERM for what they start.)
kill -KILL $bus
code=0
wait $agent || code=$?
[ $code = 1 ]
is_locked
grep -q 'your vaults are locked' "$scratch/errors"

# Its own mistakes.
code=0
vaultfs-agent 2>"$scratch/errors" || code=$?
[ $code = 1 ]
grep -q '^vaultfs-agent: cannot connect to the system bus: ' "$scratch/errors"
code=0
vaultfs-agent --help 2>/dev/null || code=$?
[ $code = 2 ]
kill -KILL $mock 2>/dev/null || true
