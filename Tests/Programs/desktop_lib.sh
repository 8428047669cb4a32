# shellcheck shell=bash disable=SC2034
# Sourced by the desktop_*.sh, each called with MOUNT EXAMPLES VAULTFS SCRATCH PASSFILE: what they share. `bin` comes first in
# PATH: stand-ins for programs of a desktop, and vaultfs.
set -eEuo pipefail
trap 'echo "$0: line $LINENO: $BASH_COMMAND" >&2' ERR
# What fails leaves nobody waiting: timeout(1), which runs this, has made it a process group.
trap 'status=$?; [ $status = 0 ] || { trap "" TERM; kill 0; exit $status; }' EXIT
mount=$1 examples=$2 vaultfs=$3 scratch=$4 passfile=$5
lock_file=$XDG_RUNTIME_DIR/vaultfs/device.lock
bin=$scratch/bin
mkdir -p "$bin"
ln -sf "$vaultfs" "$bin/vaultfs"
export PATH=$bin:$PATH scratch

# stand_in NAME: a program, from standard input.
stand_in() {
    cat >"$bin/$1"
    chmod +x "$bin/$1"
}

# await COMMAND...: until it succeeds.
await() {
    local try
    for ((try = 0; try < 1000; try++)); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.01
    done
    echo "$0: waited 10 s for: $*" >&2
    return 1
}

# Whether the descriptor 7, opened when the vault was not locked, and the path tell the content; or neither, and why.
is_unlocked() { [ "$(cat "$mount/file")" = content ] && [ "$(cat /proc/self/fd/7)" = content ]; }
refuses() {
    [[ $(cat "$mount/file" 2>&1) == *"Required key not available"* ]] \
        && [[ $(dd bs=1 count=1 status=none <&7 2>&1) == *"Required key not available"* ]]
}
# The kernel's pages go a moment after the lock file has come.
is_locked() { await refuses; }
echo content >"$mount/file"
exec 7<"$mount/file"
is_unlocked
