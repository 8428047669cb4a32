#!/bin/bash
# The vaults follow the session's state in systemd-logind, in the lines that gdbus prints.
. "$(dirname "$0")/desktop_lib.sh"
mkfifo "$scratch/signals"
stand_in gdbus <<'STAND_IN'
#!/bin/sh
case $* in
    "call --system "*" --object-path /org/freedesktop/login1 --method org.freedesktop.login1.Manager.GetSession 4")
        echo "(objectpath '/org/freedesktop/login1/session/_34',)" ;;
    "monitor --system "*" --object-path /org/freedesktop/login1/session/_34") exec cat "$scratch/signals" ;;
    *) exit 1 ;;
esac
STAND_IN
XDG_SESSION_ID=4 sh "$examples/vaultfs-follow-session" 2>"$scratch/errors" &
exec 8>"$scratch/signals"
signal() { echo "/org/freedesktop/login1/session/_34: org.freedesktop.$1" >&8; }
hint() { signal "DBus.Properties.PropertiesChanged ('org.freedesktop.login1.Session', {'LockedHint': <$1>}, @as [])"; }
echo "Monitoring signals on object /org/freedesktop/login1/session/_34 owned by org.freedesktop.login1" >&8
is_unlocked
hint true
is_locked
hint false
await is_unlocked
signal "login1.Session.Lock ()"
is_locked
signal "login1.Session.Unlock ()"
await is_unlocked

# At the end of gdbus's output, it locks.
exec 8>&-
code=0
wait $! || code=$?
[ $code = 1 ]
is_locked
grep -q 'your vaults are locked' "$scratch/errors"
rm "$lock_file"
await is_unlocked

# It also locks if it is killed, or without logind.
XDG_SESSION_ID=4 sh "$examples/vaultfs-follow-session" 8>&- &
exec 8>"$scratch/signals"
kill $!
exec 8>&-
wait $! || true
is_locked
rm "$lock_file"
await is_unlocked
if XDG_SESSION_ID=none sh "$examples/vaultfs-follow-session" 2>/dev/null; then exit 1; fi
is_locked
