#!/bin/bash
# archive.sh MOUNT SCRATCH: tar and rsync -aHAX of a tree with all kinds of files. The second rsync must transfer
# nothing.
set -eEuo pipefail
trap 'echo "$0: line $LINENO: $BASH_COMMAND" >&2' ERR
mount=$1 source=$2/source
mkdir -p "$source/dir/deep" && cd "$source"
for i in $(seq 120); do head -c $((i * 331)) /dev/urandom >"dir/file$i"; done
echo x >plain && ln plain hard && ln plain dir/also && ln -s plain link && ln -s "/nowhere/$(printf 'y%.0s' $(seq 200))" long-link
truncate -s 3M sparse && printf data | dd of=sparse bs=1 seek=2000000 conv=notrunc status=none
touch "$(printf 'a%.0s' $(seq 180))" './sp ace' $'new\nline' 'ümläut' ./-dash
mkfifo fifo
setfattr -n user.k -v "$(printf 'z%.0s' $(seq 300))" plain && setfattr -n user.d -v v dir
setfacl -m u:1234:rw plain && setfacl -m d:u:1234:rx dir
chmod 4755 hard && chmod 1777 dir && touch -d '1980-01-02 03:04:05.123456789' dir/file3
touch -d '2001-02-03 04:05:06.789' dir/deep
pax="--format=posix --pax-option=delete=atime,delete=ctime,exthdr.name=%d/PaxHeaders/%f --numeric-owner --sort=name"
listing() (cd "$1" && find . -mindepth 1 -printf '%P|%y|%m|%U|%G|%T@|%l\n' | sort)

mkdir "$mount/tar"
tar -C "$source" $pax --xattrs --acls -cf "$2/in.tar" .
tar -C "$mount/tar" --xattrs --xattrs-include='user.*' --acls -xpf "$2/in.tar"
tar -C "$mount/tar" -df "$2/in.tar"
diff -r --no-dereference -x fifo "$source" "$mount/tar"
diff <(listing "$source") <(listing "$mount/tar")
tar -C "$mount/tar" $pax --xattrs --acls -cf - . | cmp - "$2/in.tar"
cp -a "$mount/tar" "$mount/copy"
diff <(listing "$source") <(listing "$mount/copy")

unchanged() {
    local changes
    changes=$(rsync -aHAXni "${@:3}" --delete "$1/" "$2/")
    [ -z "$changes" ] || { echo "rsync would change: $changes" >&2; return 1; }
}
rsync -aHAX "$source/" "$mount/rsync/"
unchanged "$source" "$mount/rsync" -c
# By time and size alone, as people run it. If sealing had changed a time, this would transfer files again.
unchanged "$source" "$mount/rsync"
[ "$(stat -c %h "$mount/rsync/plain")" = 3 ]
dd if=/dev/urandom of="$source/dir/file100" bs=1000 seek=7 count=3 conv=notrunc status=none
head -c 50000 /dev/urandom >>"$source/dir/file90"
rm -rf "$source/dir/deep"
rsync -aHAXc --delete --inplace --no-whole-file "$source/" "$mount/rsync/"
unchanged "$source" "$mount/rsync" -c
rsync -aHAX "$mount/rsync/" "$2/back/"
unchanged "$source" "$2/back" -c
rm -rf "$mount/tar" "$mount/copy" "$mount/rsync"
[ -z "$(ls -A "$mount")" ]
