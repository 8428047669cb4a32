#!/bin/bash
# video.sh MOUNT SCRATCH: ffmpeg writes the same video on the mount and beside it, and seeks in both to the same frames
set -eEuo pipefail
trap 'echo "$0: line $LINENO: $BASH_COMMAND" >&2' ERR
cd "$1"
encode="-v error -y -threads 1 -f lavfi -i testsrc=duration=5:size=320x180:rate=25 -f lavfi -i sine=duration=5 -c:v libx264
    -preset ultrafast -pix_fmt yuv420p -c:a aac -fflags +bitexact -flags +bitexact"
frames() { ffmpeg -v error -ss "$2" -i "$1" -frames:v 3 -f framemd5 - </dev/null | grep -v '^#'; }
ffmpeg $encode a.mp4 </dev/null
ffmpeg $encode "$2/a.mp4" </dev/null
cmp a.mp4 "$2/a.mp4"
ffmpeg -v error -y -i a.mp4 -c copy -movflags +faststart b.mp4 </dev/null
ffmpeg -v error -y -i a.mp4 -c copy -movflags +faststart "$2/b.mp4" </dev/null
for at in 0 4.3 1.1 3.88 2; do
    [ "$(frames a.mp4 $at)" = "$(frames "$2/a.mp4" $at)" ]
    [ "$(frames b.mp4 $at)" = "$(frames "$2/b.mp4" $at)" ]
done
ffmpeg -v error -xerror -i b.mp4 -f null - </dev/null
