# Sourced by the scripts beside it: the options that they share, and a round in a directory of its own.
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"
seed=$RANDOM binary=''

# prepare PACKAGE...: installs what a round needs, and sets `binary`.
prepare() {
    install_missing python3 python3-cryptography "$@"
    need_fuse
    need_binary
    python=$(python_with_cryptography)
    # Keep the vaults of a round out of the user's list.
    export XDG_CONFIG_HOME=/dev/null
}

# make_store KIND DIRECTORY: mounts a file system of its own, which can become full. It has room for two logs of 64 MiB, and
# for 13 files of seven chunks of 1 MiB, as the model has at most, and for the removed ones until a checkpoint.
make_store() {
    case $1 in
        tmpfs) mount -t tmpfs -o size=320m,mode=700 none "$2" ;;
        ext4)
            truncate -s 384M "$2.image"
            mkfs.ext4 -q -F "$2.image"
            mount -o loop "$2.image" "$2"
            ;;
    esac
}

# round BASE STORE PROGRAM ARGUMENT...: runs a program of Tests/Support/Programs once, in a new directory below BASE. STORE is
# tmpfs, ext4, or "disk" for no file system of its own. A failure keeps the directory and stops.
round() {
    local base=$1 store=$2 program=$3 directory kept
    shift 3
    directory=$(mktemp -d "$base/vaultfs-torture.XXXXXX")
    make_store "$store" "$directory"
    mkdir -m 700 "$directory/run"
    echo "$program on $(stat -f -c %T "$directory"), seed $seed: $*"
    if ! XDG_RUNTIME_DIR=$directory/run "$python" "$root/Tests/Support/Programs/$program" --binary "$binary" \
        --directory "$directory" --seed "$seed" "$@"; then
        kept=$directory
        if mountpoint -q "$directory"; then
            # The namespace ends with this script, and its mounts with it.
            kept=$directory.kept
            cp -a "$directory" "$kept"
            umount -l "$directory" && rm -rf "$directory" "$directory.image"
        fi
        stop "failed; the vault is kept: $kept"
    fi
    if mountpoint -q "$directory"; then umount "$directory"; fi
    rm -rf "$directory" "$directory.image"
}

# test_rounds NAME SUITE COUNT MOST: runs a test suite until it has done COUNT of what VAULTFS_NAME_COUNT sets, at most
# MOST in each round, so that a round stays within the time limit of a test. Each round has its own seeds.
test_rounds() {
    local name=$1 suite=$2 left=$3 most=$4 now
    build_tests
    while [ "$left" -gt 0 ]; do
        now=$((left < most ? left : most))
        echo "$suite: $now, seed $seed"
        # Dictionaries have the same order each time, so that a replay makes the same calls.
        env SWIFT_DETERMINISTIC_HASHING=1 "VAULTFS_${name}_COUNT=$now" "VAULTFS_${name}_SEED=$seed" \
            "$bundle" --testing-library swift-testing --filter "$suite" </dev/null || stop "failed; seed $seed"
        # A seed serves for up to 200 cuts.
        left=$((left - now)) seed=$((seed + (now + 199) / 200))
    done
}
