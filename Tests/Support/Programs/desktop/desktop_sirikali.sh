#!/bin/bash
# desktop_sirikali.sh JSON VAULTFS HOME PICTURE: SiriKali makes, mounts, lists and unmounts vaults with our file, as its
# users do. Run it with a display and a session bus of its own (scripts/system/desktop). HOME is an empty directory.
set -eEuo pipefail
trap 'echo "$0: line $LINENO: $BASH_COMMAND" >&2' ERR
json=$1 vaultfs=$2 home=$3 picture=$4
cd "$home"
# SiriKali looks for its files and for programs there.
mkdir -p .config/SiriKali/backends bin
cp "$json" .config/SiriKali/backends/vaultfs.json
ln -s "$vaultfs" bin/vaultfs
export PATH=$home/bin:$PATH
umask 077
printf 'correct horse' >passfile

# quiet COMMAND...: SiriKali's commands need no display.
quiet() { QT_QPA_PLATFORM=offscreen timeout -k 5 60 "$@"; }
# open_vault VAULT MOUNTPOINT [OPTION...]: with the passphrase from standard input.
open_vault() { quiet sirikali -b stdin -d "$home/$1" -z "$home/$2" "${@:3}"; }
close_vault() { quiet sirikali -u -d "$home/$1"; }
mounted() { mountpoint -q "$1"; }
await() {
    local try
    for ((try = 0; try < 400; try++)); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.05
    done
    echo "$0: waited 20 s for: $*" >&2
    return 1
}

vaultfs init Vault --passfile passfile --scrypt-logn 10 --no-recovery-key >/dev/null

if printf wrong | open_vault Vault Private >wrong 2>&1; then false; fi
grep -qi 'wrong password' wrong
[ ! -e Private ]

open_vault Vault Private <passfile >/dev/null
mounted Private
echo content >Private/file
quiet sirikali -p | grep -F "\"$home/Vault\" \"$home/Private\"" >/dev/null
# While it is in use, it stays mounted.
exec 7<Private/file
if close_vault Vault; then false; fi
mounted Private
exec 7<&-
close_vault Vault
[ ! -e Private ]
# The daemon has ended.
vaultfs verify Vault --passfile passfile >/dev/null

# SiriKali's other options: read-only, a time in minutes, options of mount.
open_vault Vault Private -k ro -i 20 -o --on-lock=forget,noatime <passfile >/dev/null
[ "$(cat Private/file)" = content ]
if touch Private/other 2>/dev/null; then false; fi
status=$(vaultfs status Private --json)
[[ $status =~ \"idleSeconds\"\ *:\ *1200 ]]
[[ $status =~ \"policy\"\ *:\ *\"forget\" ]]
close_vault Vault

# Its window makes vaults: the last item of the menu, then a name and the passphrase.
# It would open a browser for the new folder.
sirikali -m true >/dev/null 2>&1 &
window() { xdotool search --onlyvisible --name "$1" windowfocus --sync; }
await window '^SiriKali$'
open_dialog() {
    xdotool key --delay 300 Escape alt+c Up Return
    window '^Create A New "Vaultfs" Volume$'
}
await open_dialog
xdotool type "My Vault"
xdotool key Tab Tab Tab
xdotool type "correct horse"
xdotool key Return
made="$home/.SiriKali/My Vault"
await mounted "$made"
echo content >"$made/file"
/usr/bin/python3 - "$picture" <<'PICTURE'
import sys, gi
gi.require_version("Gdk", "3.0")
from gi.repository import Gdk
root = Gdk.get_default_root_window()
Gdk.pixbuf_get_from_window(root, 0, 0, root.get_width(), root.get_height()).savev(sys.argv[1], "png", [], [])
PICTURE
kill %%
close_vault "My Vault"

# SiriKali shows nothing that a command prints, so no recovery key must have been made. One that is made later opens the
# vault.
[ "$(vaultfs slot list "My Vault" | grep -c '^slot [0-9]')" = 1 ]
vaultfs slot add "My Vault" --new-recovery-key --passfile passfile | grep -oE '([0-9a-f]{8}-){8}[0-9a-f]{8}' >recovery
vaultfs verify "My Vault" --recovery-key --passfile recovery >/dev/null
open_vault "My Vault" Again <passfile >/dev/null
[ "$(cat Again/file)" = content ]
close_vault "My Vault"
