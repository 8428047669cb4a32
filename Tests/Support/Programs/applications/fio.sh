#!/bin/bash
# fio.sh MOUNT SCRATCH: writes of many kinds, verified when written and again with the page cache dropped
set -eEuo pipefail
trap 'echo "$0: line $LINENO: $BASH_COMMAND" >&2' ERR
cd "$1"
run() { fio --size=6m --verify=crc32c --verify_fatal=1 --randseed=7 --minimal --allow_mounted_write=0 --output="$2/fio.out" "${@:3}" --name="$1" || { cat "$2/fio.out" >&2; return 1; }; }
both() {
    local name=$1
    run "$@"
    dd if="$(ls "$name"*)" iflag=nocache count=0 status=none
    run "$@" --verify_only=1
    rm -f "$name"*
}
both sequential "$2" --rw=write --bs=128k
both random "$2" --rw=randwrite --bs=4k --fsync=64
both odd "$2" --rw=randwrite --bsrange=513-70001 --bs_unaligned=1 --verify_backlog=0 --norandommap=0
both mapped "$2" --rw=randwrite --bs=4k --ioengine=mmap
both direct "$2" --rw=randwrite --bs=4k --direct=1 --ioengine=libaio --iodepth=8
both sync "$2" --rw=randwrite --bs=4k --sync=1 --size=1m
fio --name=two --directory=. --size=4m --rw=randrw --bs=8k --numjobs=2 --verify=sha256 --do_verify=1 --verify_fatal=1 --minimal --output="$2/fio.out"
