"""Runs the blocks of commands on the pages of the manual, as a reader types them, and compares the outputs that they show.
Each block of README.md and Manual/*.md is one of BLOCKS: a new one fails until it is run here, or names what runs it.

manual_blocks.py --binary VAULTFS --directory DIR

DIR is the reader's home. A secret is typed by --passfile, and /media/disk and remote: are directories there."""

import argparse
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[4]

# Stands in for the reader, who types the passphrase where it is asked for.
SHELL = r"""
set -e
vaultfs() {
    case $1 in
        list | forget | lock | sync | status | unmount | protect | events) "$BINARY" "$@" ;;
        *) if [ "$*" = "unlock $HOME/Private" ]; then "$BINARY" "$@"; else "$BINARY" "$@" --passfile ~/passphrase; fi ;;
    esac
}
"""


class Reader:
    def __init__(self, binary, home):
        self.home = home
        media = os.path.join(home, "media")
        self.places = (("/media/disk", media), ("/home/ada", home))
        self.environment = {
            "HOME": home, "XDG_RUNTIME_DIR": os.path.join(home, "run"), "BINARY": binary, "PATH": os.environ["PATH"],
            "RESTIC_PASSWORD": "x", "BORG_PASSPHRASE": "x", "RCLONE_CONFIG": os.path.join(home, "rclone.conf"),
            "ROOT": str(ROOT), "LC_ALL": "C.UTF-8"}
        for name in ("run", "media", "remote"):
            os.makedirs(os.path.join(home, name), mode=0o700)
        self.write("passphrase", "correct horse", 0o600)
        self.write("rclone.conf", f"[remote]\ntype = alias\nremote = {home}/remote\n", 0o600)

    def write(self, name, text, mode=0o644):
        path = os.path.join(self.home, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", opener=lambda path, flags: os.open(path, flags, mode)) as file:
            file.write(text)

    def run(self, commands, directory="."):
        """Returns the output of a script, which must succeed. A daemon keeps no pipe of ours open, because of a file."""
        for typed, real in self.places:
            commands = commands.replace(typed, real)
        log = os.path.join(self.home, "output")
        with open(log, "w+b") as output:
            done = subprocess.run(
                ["bash", "-c", SHELL + commands], env=self.environment, cwd=os.path.join(self.home, directory),
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, timeout=240)
            output.seek(0)
            said = output.read().decode(errors="replace")
        if done.returncode and not commands.startswith("set +e"):
            sys.exit(f"exit {done.returncode} of:\n{commands}\n{said}")
        return said

    def type(self, block):
        """Runs each line after a prompt, and compares what it prints with the lines below. A question is answered."""
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            found = self.run(f"set +e\n{command}\nwait")
            wanted = shown.replace("/home/ada", self.home).replace("~", self.home)
            wanted = wanted.replace("Passphrase:\n", "")
            if found != wanted and not command.endswith("&"):
                sys.exit(f"{command} prints\n{found}and not\n{wanted}")


def make(reader, block):
    """A vault with a file, mounted."""
    reader.run("""
        vaultfs init ~/Vault --scrypt-logn 10 >/dev/null
        vaultfs mount ~/Vault ~/Private >/dev/null; mkdir ~/Private/Inbox
        echo text >~/Private/notes.txt; echo dear >~/Private/diary; echo report >~/report.pdf""")


def lock_file(reader, block):
    reader.run("vaultfs unmount ~/Private >/dev/null")
    reader.type(block)
    # The removal reaches the daemon by inotify(7), so a request directly after it can still find the lock.
    reader.run("timeout 60 bash -c 'until [ \"$(cat ~/Private/diary 2>/dev/null)\" = dear ]; do sleep 0.01; done'")


def inbox(reader, block):
    """A copy stands in for curl, which needs a network."""
    reader.type(re.sub(r"curl -o (\S+) \S+", r"cp ~/report.pdf \1", block))


def locked_copy(reader, block):
    reader.run("restic -q -r /media/disk/restic init\n" + block + "rm -r /media/disk/restic")
    reader.run("vaultfs unmount ~/Private")


def restic(reader, block):
    reader.run(block + "vaultfs verify ~/Restored/$HOME/Vault; rm -r ~/Restored")


def borg(reader, block):
    name = "$(borg list --short /media/disk/borg)"
    reader.run(block.replace("NAME", name) + "vaultfs verify ~/Restored/Vault; cp -a ~/Restored/Vault ~/Copy; rm -r ~/Restored")


def restored(reader, block):
    reader.run("mv ~/Copy ~/Restored")
    reader.run(block + "test $(cat ~/Old/notes.txt) = text; vaultfs unmount ~/Old; rm -r ~/Restored")


def bisync(reader, block):
    reader.run(block.replace("~/Vault", "--resync ~/Vault") + block)


def conflict(reader, block):
    """Each of the commands on a new conflict copy."""
    reader.run("vaultfs mount ~/Vault ~/Private; rm -r ~/Private/Inbox ~/Private/diary")
    lines = block.rstrip().split("\n")
    entry = reader.run("cd ~/Vault; for file in *; do case $file in vaultfs.*) ;; *) echo $file ;; esac; done").strip()
    compare, keep, other, both = lines[0], lines[1], lines[2], "\n".join(lines[3:])
    for commands, left in ((keep, "text"), (other, "text"), (both, "text text")):
        reader.run(f"cp -a ~/Vault/{entry} ~/Vault/{entry}..path1")
        reader.run(f"{compare}\n{commands}\n[ \"$(echo $(cat *))\" = '{left}' ]", "Private")
    reader.run("vaultfs unmount ~/Private")


def extract(reader, block):
    command = block.replace("VAULT", "~/Vault").replace("OUT", "~/out").split("\n")[1].split("   ")[0]
    reader.run(command.replace("vaultfs_reader.py", "$ROOT/Reader/vaultfs_reader.py --passfile ~/passphrase")
               + "\ntest $(cat ~/out/notes.txt) = text; rm -r ~/out")


def metrics(reader, block):
    reader.run("sponge() { cat >~/metrics; }\n" + block.split("   ")[0] + "\ngrep -q vaultfs_up ~/metrics || cat ~/metrics")


def completion(reader, block):
    reader.run("sudo() { :; }\n" + block + "bash -n ~/.local/share/bash-completion/completions/vaultfs")
    reader.run("grep -q complete ~/.config/fish/completions/vaultfs.fish")


def transfer(reader, block):
    reader.run("mkdir -p ~/Documents/taxes; echo tax >~/Documents/taxes/2026\n" + block + "test $(cat ~/Taxes/2026) = tax")


def fragments(reader, block):
    reader.write("Download/index.m3u8", "#EXTM3U\n#EXTINF:2,\na/first.ts\n#EXTINF:2,\nb/second.ts\n")
    reader.run("touch film.part-Frag1 film.part-Frag2\n" + block + "test -e first.ts -a -e second.ts", "Download")


def offline(reader, block):
    reader.write("Download/film.m3u8", "#EXTM3U\n")
    reader.write("film.key", "0123456789abcdef")
    reader.write("offline", "tea and toast", 0o600)
    reader.run(block.replace("--label offline", "--label offline --new-passfile ~/offline"))
    reader.run("$BINARY mount ~/Films ~/Open --passfile ~/offline\n"
               "cmp ~/film.key ~/Open/film/000102030405060708090a0b0c0d0e0f.key\nvaultfs unmount ~/Open")


def wallets(reader, block):
    """Programs stand in for both wallets. Like the real ones, one ends the passphrase with a line feed and one does not."""
    for program, arguments, ending in (
            ("kwallet-query", "-r Private kdewallet", "\\n"), ("secret-tool", "lookup vault Private", "")):
        reader.write(
            f"bin/{program}", f"#!/bin/sh\n[ \"$*\" = '{arguments}' ] && printf 'correct horse{ending}'\n", 0o755)
    for line in block.splitlines():
        reader.run('PATH=~/bin:$PATH\n' + line.replace("vaultfs", '"$BINARY"', 1)
                   + "\ntest $(cat ~/Private/notes.txt) = text\nvaultfs unmount ~/Private")


def listed(reader, block):
    """The columns are as wide as the paths here, so only the words of each row are compared."""
    reader.run("""
        vaultfs unmount ~/Private; rm -r ~/.config/vaultfs
        vaultfs init ~/Taxes --scrypt-logn 10; vaultfs mount ~/Taxes ~/Private
        vaultfs init /media/disk/Photos --scrypt-logn 10; mv /media/disk/Photos /media/disk/away""")
    rows = block.replace("/media/disk", os.path.join(reader.home, "media")).replace("/home/ada", reader.home).splitlines()[1:]
    found = reader.run("vaultfs list").splitlines()
    if [row.split() for row in found] != [row.split() for row in rows]:
        sys.exit(f"vaultfs list prints\n{found}and not\n{rows}")
    reader.run("vaultfs unmount Taxes; rm -r ~/Taxes /media/disk/away; vaultfs mount ~/Vault ~/Private")


# The beginning of each block: the function that runs it, or what does else. In the order of running.
BLOCKS = {
    "Manual/AtLogin.md": {
        "vaultfs mount": "scripts/system/login", "<fusemount>": "scripts/system/login", "pam-auth-update": "scripts/system/login"},
    "Manual/Files.md": {"$ vaultfs list": listed},
    "Manual/Locking.md": {
        "$ vaultfs mount": lock_file, "$ vaultfs protect inbox": inbox, "systemctl --user": "desktop_units.sh"},
    "Manual/Sync.md": {
        "vaultfs lock": locked_copy, "rsync": lambda reader, block: reader.run(block), "restic": restic, "borg": borg,
        "rclone sync": lambda reader, block: reader.run(block + "vaultfs verify ~/Restored; rm -r ~/Restored"),
        "vaultfs verify": restored, "rclone bisync": bisync, "/vaultfs.lock": "scripts/system/sync", "cmp": conflict},
    "Manual/Questions.md": {"vaultfs mount": wallets},
    "Manual/Recovery.md": {"pip": extract},
    "Manual/System.md": {
        "vaultfs status --prometheus": metrics, "mkdir -p": completion, "/srv/vault": "fstab.sh, boot_use.sh",
        "mkdir -m 700": "boot_use.sh"},
    "Manual/Transfer.md": {"vaultfs import": transfer, "vaultfs init": "TransferMountTests"},
    "Manual/Views.md": {
        "n=1": fragments, "vaultfs view hls": "HlsPlaylistTests, with another command than curl", "vaultfs view mp4": "mp4_files.py",
        "vaultfs init ~/Films": offline, "vaultfs mount ~/Films ~/Open": "HlsPlaylistTests, and LeaseTests for the end of a window",
        '{"format"': "ViewManifestTests"},
    "Manual/Keys.md": {"(umask": "ManualCommandTests", "vaultfs-tpm2": "TpmTests", "vaultfs-fido2": "Fido2Tests",
                       "vaultfs-keyring": "desktop_keyring.sh"},
    "Manual/FirstHour.md": {"": "TranscriptTests"},
    "README.md": {"scripts/package": "scripts/system/fresh", "vaultfs ": "ReadmeTests", "$ vaultfs lock": "TranscriptTests"},
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    parser.add_argument("--directory", required=True)
    arguments = parser.parse_args()
    reader = Reader(arguments.binary, arguments.directory)
    missing = []
    try:
        make(reader, None)
        for page in list(BLOCKS) + sorted({f"Manual/{path.name}" for path in (ROOT / "Manual").glob("*.md")} - set(BLOCKS)):
            blocks = re.findall(r"^```\w*\n(.*?)^```", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
            known = BLOCKS.get(page, {})
            missing += [f"{page}: {block.split(chr(10))[0]}" for block in blocks if not any(map(block.startswith, known))]
            for beginning, what in known.items():
                found = [block for block in blocks if block.startswith(beginning)]
                if not found:
                    missing.append(f"{page}: no block begins with {beginning}")
                elif callable(what):
                    what(reader, found[0])
                    print(f"{page}: {beginning}")
    finally:
        for name in "Private", "Old", "Open":
            subprocess.run(["fusermount3", "-uz", os.path.join(arguments.directory, name)], stderr=subprocess.DEVNULL)
    if missing:
        sys.exit("neither run here nor by another test:\n" + "\n".join(missing))


main()
