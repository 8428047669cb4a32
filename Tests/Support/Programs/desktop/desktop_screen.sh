#!/bin/bash
# The vaults are locked as long as a screen locker runs, by whichever program it was started.
. "$(dirname "$0")/desktop_lib.sh"
install -m 755 "$examples/vaultfs-screen-lock" "$bin"
mkfifo "$scratch/started" "$scratch/end"

# A screen locker that reports when it has started, and exits with the code given to it.
stand_in swaylock <<'STAND_IN'
#!/bin/sh
echo "$*" >"$scratch/started"
read -r code <"$scratch/end"
exit "$code"
STAND_IN
cp "$bin/swaylock" "$bin/i3lock"
begun() { read -r arguments <"$scratch/started"; }
end() { echo "$1" >"$scratch/end"; }

# One locker, a second one beside it, then the unlock.
vaultfs-screen-lock swaylock --color 000000 &
begun
[ "$arguments" = "--color 000000" ]
is_locked
vaultfs-screen-lock true
is_locked
end 0
wait $!
is_unlocked

# A locker that crashes leaves the vault locked until another one succeeds.
vaultfs-screen-lock swaylock &
begun
end 139
code=0
wait $! || code=$?
[ $code = 139 ]
is_locked
vaultfs-screen-lock true
is_unlocked

# A vault that was locked by other means meanwhile.
vaultfs-screen-lock swaylock &
begun
vaultfs lock "$mount" >/dev/null
end 0
wait $!
is_unlocked

# swayidle, which runs the commands of its configuration with sh.
on() {
    local event=$1 line
    while read -r line; do
        eval "set -- $line"
        [ "$1" = "$event" ] && { sh -c "${!#}" & return; }
    done < <(grep -v '^#' "$examples/swayidle.config")
    echo "nothing for $event" >&2
    return 1
}
for event in timeout lock before-sleep; do
    on $event
    begun
    is_locked
    on before-sleep
    wait $!
    is_locked
    end 0
    wait
    is_unlocked
done

# xss-lock, which runs the command that it was started with.
stand_in xset <<<'#!/bin/sh'
stand_in xss-lock <<'STAND_IN'
#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
STAND_IN
sh "$examples/xss-lock.sh"
begun
[ "$arguments" = --nofork ]
is_locked
end 0
await is_unlocked
