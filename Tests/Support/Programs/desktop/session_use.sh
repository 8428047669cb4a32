#!/bin/bash
# session_use.sh STAGE: makes the user of the first stage, starts the display manager, and runs session_use.py, which has
# the stages. Run it as root, in its own machine (scripts/system/session).
set -eEuo pipefail
trap 'echo "$0: line $LINENO: $BASH_COMMAND" >&2' ERR
export LC_ALL=C.UTF-8

if [ "$1" = make ]; then
    useradd --create-home --shell /bin/bash ada
    echo 'ada:log in with horses' | chpasswd
    install -d -o ada -m 700 /home/ada/Documents
    echo 'Dear Ben, the horses are well.' | install -o ada -m 600 /dev/stdin /home/ada/Documents/letter.txt
    seq 20000 | install -o ada -m 600 /dev/stdin /home/ada/Documents/numbers.txt
    install -d -o ada -m 700 /home/ada/Backup
    # Without wallpapers, the pictures are small.
    rm -r /usr/share/backgrounds/xfce
fi
systemctl start lightdm
python3 /usr/local/lib/session_use.py "$1" /mnt/out
