#!/bin/bash
# git.sh MOUNT SCRATCH: the same repository on the mount and beside it has the same ids; clone, gc, fsck, clean status
set -eEuo pipefail
trap 'echo "$0: line $LINENO: $BASH_COMMAND" >&2' ERR
mount=$1 scratch=$2
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null HOME=$scratch GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b \
    GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'
build() (
    mkdir "$1" && cd "$1" && git init -q -b main && mkdir tree
    for i in $(seq 150); do seq "$i" $((i * 7)) >tree/file$i; done
    git add -A && git commit -qm 1
    for i in 1 2 3; do
        for f in tree/*$i; do echo "edit $i" >>"$f"; done
        ln -sf tree/file1 "link$i" && git add -A && git commit -qm "edit $i"
    done
    git mv tree moved && git commit -qm move
)
sound() { git -C "$1" fsck --full --strict --no-dangling && [ -z "$(git -C "$1" status --porcelain)" ]; }

build "$mount/a"
build "$scratch/a"
[ "$(git -C "$mount/a" rev-parse HEAD)" = "$(git -C "$scratch/a" rev-parse HEAD)" ]
sound "$mount/a"
git clone -q "$mount/a" "$mount/b"
git clone -q --no-hardlinks "file://$scratch/a" "$mount/c"
sound "$mount/b"
git -C "$mount/b" gc -q --aggressive --prune=now
sound "$mount/b"
sound "$mount/c"
rm -rf "$mount/b/moved"
git -C "$mount/b" reset -q --hard
git -C "$mount/b" checkout -q HEAD~2
git -C "$mount/b" checkout -q main
sound "$mount/b"
diff -r --no-dereference -x .git "$mount/b" "$scratch/a"
