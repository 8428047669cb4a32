# shellcheck shell=bash disable=SC2034
# Shared code of the desktop_*.sh, which source this file. Each of them is called with MOUNT EXAMPLES VAULTFS SCRATCH
# PASSFILE. `bin` comes first in PATH. It has stand-ins for programs of a desktop, and vaultfs.
set -eEuo pipefail
trap 'echo "$0: line $LINENO: $BASH_COMMAND" >&2' ERR
# A failure must leave no waiting process. timeout(1), which runs this, has made it a process group.
trap 'status=$?; [ $status = 0 ] || { trap "" TERM; kill 0; exit $status; }' EXIT
mount=$1 examples=$2 vaultfs=$3 scratch=$4 passfile=$5
lock_file=$XDG_RUNTIME_DIR/vaultfs/device.lock
bin=$scratch/bin
mkdir -p "$bin"
ln -sf "$vaultfs" "$bin/vaultfs"
export PATH=$bin:$PATH scratch

# stand_in NAME: makes a program from standard input.
stand_in() {
    cat >"$bin/$1"
    chmod +x "$bin/$1"
}

# await COMMAND...: waits until the command succeeds.
await() {
    local try
    for ((try = 0; try < 1000; try++)); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.01
    done
    echo "$0: waited 10 s for: $*" >&2
    return 1
}

# is_unlocked: the path and descriptor 7, opened while the vault was unlocked, both give the content. refuses: both give
# the error of a locked vault.
is_unlocked() { [ "$(cat "$mount/file")" = content ] && [ "$(cat /proc/self/fd/7)" = content ]; }
refuses() {
    [[ $(cat "$mount/file" 2>&1) == *"Required key not available"* ]] \
        && [[ $(dd bs=1 count=1 status=none <&7 2>&1) == *"Required key not available"* ]]
}
# The kernel drops its pages a moment after the lock file has appeared.
is_locked() { await refuses; }
echo content >"$mount/file"
exec 7<"$mount/file"
is_unlocked
