#!/bin/bash
# overlay.sh DIRECTORY LOWER [again]
#
# Changes an overlay with its upper layer in DIRECTORY, and prints what is in the overlay and in the layer. With `again`, only
# prints. Root only.
set -eu
if [ -z "${OVERLAY_ALONE:-}" ]; then OVERLAY_ALONE=yes exec unshare --mount --propagation private bash "$0" "$@"; fi
directory=$(realpath "$1") lower=$(realpath -m "$2") long=$(printf 'l%.0s' {1..250})
place=$(mktemp -d)
trap 'umount "$place" 2>/dev/null || true; rmdir "$place"' EXIT
show() { find "$1" -mindepth 1 \( -type f -printf '%P %m %U %n %s\n' -o -printf '%P %y %m %U\n' \) | sort; }

if [ -z "${3:-}" ]; then
    rm -rf "$lower"
    mkdir -p "$lower/d/sub" "$lower/e" "$directory/upper" "$directory/work"
    echo a >"$lower/a"
    echo f >"$lower/d/f"
    echo g >"$lower/d/sub/g"
    echo h >"$lower/e/h"
    echo "$long" >"$lower/$long"
    setfattr -n user.kept -v yes "$lower/d/f"
fi
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$directory/upper,workdir=$directory/work" "$place"
if [ -z "${3:-}" ]; then
    cd "$place"
    # Removals and renames of files leave whiteouts.
    rm a
    mv d/f f
    mv "$long" d/
    mv "d/$long" e/
    ln f second
    # A directory of the lower layer is copied, with its ACL.
    echo new >d/new
    mv d moved
    # One over another, and over a removed one.
    rm -r e
    mkdir e x
    mv x e/
    mkdir y
    mv -T y e/x
    mv e d
    truncate -s 100000 moved/sub/g
    setfattr -n user.more -v more f
    cd /
fi
show "$place"
getfattr --absolute-names -d "$place/f" | grep '^user'
umount "$place"
echo "the layer:"
show "$directory/upper"
