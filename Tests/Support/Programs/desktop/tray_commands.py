#!/usr/bin/env python3
"""tray_commands.py EXAMPLES VAULTFS DIRECTORY: the commands that vaultfs-tray runs, without a display.

DIRECTORY is an empty directory. Nothing is mounted.
"""

import os
import pathlib
import signal
import stat
import subprocess
import sys

examples, vaultfs, directory = (os.path.realpath(argument) for argument in sys.argv[1:])
sys.dont_write_bytecode = True
sys.path.insert(0, examples)
os.environ["PATH"] = f"{os.path.dirname(vaultfs)}:{os.environ['PATH']}"
os.environ["HOME"] = directory
os.environ["XDG_CONFIG_HOME"] = f"{directory}/.config"
from vaultfs_tray import commands

SECRET = "correct horse battery"


def refusal(function, *arguments):
    try:
        result = function(*arguments)
    except commands.Refusal as refused:
        return str(refused)
    sys.exit(f"FAILED: {function.__name__}{arguments} returned {result}")


def run(arguments, secret=SECRET, second=""):
    return commands.Command(arguments).finish(secret, second)


def check_fields():
    assert commands.new_vault("~", " Letters ") == f"{directory}/Letters"
    assert commands.new_vault("/srv", "Letters") == "/srv/Letters"
    assert "name" in refusal(commands.new_vault, "~", " ")
    assert "another name" in refusal(commands.new_vault, "~", "a/b")
    assert "another name" in refusal(commands.new_vault, "~", "..")
    assert "whole path of the folder" in refusal(commands.new_vault, "Documents", "Letters")
    assert commands.new_passphrase(SECRET, SECRET) == SECRET
    assert refusal(commands.new_passphrase, "", "") == "Type a passphrase"
    assert "differ" in refusal(commands.new_passphrase, SECRET, SECRET + " ")
    assert "passphrase" in refusal(commands.secret, "")
    assert "recovery key" in refusal(commands.secret, "", "recovery key")
    assert commands.person(" Ben ") == "Ben" and "for whom" in refusal(commands.person, " ")
    assert commands.import_name("a/b") == "a/b" and "begin with /" in refusal(commands.import_name, "/a")
    assert commands.shortened(["a"] * 13) == ["a"] * 13
    assert commands.shortened(["a"] * 14) == ["a"] * 12 + ["… and 2 more lines"]
    assert commands.short(f"{directory}/a") == "~/a" and commands.short(f"{directory}b") == f"{directory}b"


def check_suggestion():
    """The mountpoint that is suggested is that of `vaultfs init`."""
    for mountpoint in ("Private", "Second.open"):
        vault = f"{directory}/{'First' if mountpoint == 'Private' else 'Second'}"
        made = subprocess.run([vaultfs, "init", "--no-recovery-key", "--passfile", "-", vault], input=SECRET, text=True,
                              check=True, timeout=60, stdout=subprocess.PIPE).stdout
        assert commands.suggested_mountpoint(vault) == f"{directory}/{mountpoint}" in made, made
        assert commands.suggested_mountpoint(vault + "/") == f"{directory}/{mountpoint}"
        os.makedirs(f"{directory}/Private", exist_ok=True)
    # The vault is on another disk than the home directory.
    os.environ["HOME"] = "/proc"
    for vault, mountpoint in ((f"{directory}/Third", "/proc/Private"), (f"{directory}/none/Third", "/proc/Private")):
        assert commands.suggested_mountpoint(vault) == mountpoint
    os.environ["HOME"] = directory


def check_making(vault):
    outcome = run(commands.init(vault), "short")
    assert outcome.failure is None and "fewer than 8 characters" in outcome.notices[0], outcome
    again = run(commands.init(vault))
    assert again.failure == f"vaultfs: a vault already exists: {vault}", again
    assert run(commands.init(directory)).failure == f"vaultfs: directory is not empty: {directory}"
    return outcome.recovery_key


def stand_in(program):
    """Puts a shell script in the place of vaultfs and vaultfs-keyring. Returns the PATH without it."""
    folder = pathlib.Path(directory, "bin")
    folder.mkdir(exist_ok=True)
    for name in ("vaultfs", "vaultfs-keyring"):
        file = folder / name
        file.write_text(f"#!/bin/sh\n{program}\n")
        file.chmod(0o755)
    path = os.environ["PATH"]
    os.environ["PATH"] = f"{folder}:{path}"
    return path


def check_secrecy():
    """Arguments and environment, which other processes can see, have no secret. A stand-in prints them, and all that it
    can read.
    """
    path = stand_in("""
        echo "arguments: $*"
        env
        cat >&2
        for each in "$@"; do case $each in /dev/fd/*) cat "$each" >&2 ;; esac; done
        exit 1""")
    assert commands.has_keyring()
    new = "another secret"
    for opening in (commands.PASSPHRASE, commands.RECOVERY_KEY):
        one = [commands.mount("/vault", "/mountpoint", opening), commands.mount("/vault", None, opening),
               commands.unlock("/vault", opening), commands.remove_slot("/vault", 1, opening),
               commands.import_folder("/source", "/vault", "name", opening), commands.verify("/vault", opening),
               commands.init("/vault"), commands.enroll("/vault", opening), commands.leave_keyring("/vault", opening)]
        two = [commands.change("/vault", opening), commands.add_slot("/vault", "-Ben", "30d", opening)]
        for arguments in one + two:
            outcome = run(arguments, SECRET, new)
            assert "/vault" in outcome.output and "HOME=" in outcome.output, outcome
            assert SECRET not in outcome.output and new not in outcome.output, outcome
            assert outcome.errors == SECRET + (new if arguments in two else ""), outcome
    os.environ["PATH"] = path
    assert not commands.has_keyring()


def check_scope():
    """A mount gets a scope of the user's service manager if there is one, so that it does not outlive the last session."""
    path, runtime = os.environ["PATH"], os.environ.get("XDG_RUNTIME_DIR", "")
    manager = pathlib.Path(directory, "run/systemd/private")
    manager.parent.mkdir(parents=True)
    program = pathlib.Path(directory, "scope/systemd-run")
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    os.environ["PATH"], os.environ["XDG_RUNTIME_DIR"] = f"{program.parent}:{path}", f"{directory}/run"
    assert commands.mount("/vault")[0] == "vaultfs"
    manager.touch()
    assert commands.mount("/vault")[:3] == ["systemd-run", "--user", "--scope"]
    os.environ["PATH"], os.environ["XDG_RUNTIME_DIR"] = path, runtime


def check_autostart():
    """The desktop's file for a program, which its settings may have switched off."""
    each = commands.mount_autostart()
    assert not each.is_on()
    each.switch(True)
    assert each.is_on() and os.path.samefile(each.text.split('"')[3], f"{examples}/vaultfs_tray/session.py")
    with each.file.open("a") as file:
        file.write("Hidden=true\n")
    assert not each.is_on()
    each.switch(False)
    assert not each.file.exists()


def check_units():
    """The unit's name is that of systemd-escape(1), for each label."""
    for label in ("Vault", "My-1 (old)", ".hidden", "ä'\"$x\\y", "a.b:c_d", "%i"):
        name = subprocess.run(["systemd-escape", "--template=vaultfs@.service", "--", label], check=True, text=True,
                              stdout=subprocess.PIPE).stdout
        assert commands.mount_unit(label) == name.rstrip("\n"), (label, name)


def check_progress():
    """The progress line, which a program writes only on a terminal, and its other lines."""
    assert commands.progress("[####    ]  20%  0:08 left  9 files") == (0.2, "0:08 left  9 files")
    assert commands.progress("9 files  0 damaged") == (None, "9 files  0 damaged")
    path = stand_in("""
        [ -t 2 ] || exit 1
        start='\\r\\033[K'
        for percent in ' 20' 100; do printf "$start[##  ] $percent%%  9 files" >&2; sleep 0.1; done
        printf "${start}vaultfs: a: warning\\n$start[####] 100%%$start" >&2
        printf 'vaultfs: b: failure\\n' >&2
        exit 3""")
    texts = []
    outcome = commands.Command(commands.verify("/vault"), texts.append).finish(SECRET)
    assert texts[:2] == ["[##  ]  20%  9 files", "[##  ] 100%  9 files"], texts
    assert outcome.notices == ["vaultfs: a: warning", "vaultfs: b: failure"], outcome
    assert outcome.code == 3 and outcome.failure == "vaultfs: b: failure", outcome
    os.environ["PATH"] = path


def check_session():
    """A command cannot ask on the terminal from which the tray was started. A cancel ends it all the same."""
    path = stand_in("exec sleep 60")
    command = commands.Command(commands.verify("/vault"))
    assert os.getsid(command.process.pid) == command.process.pid
    command.cancel()
    assert command.finish(SECRET).code == -signal.SIGTERM
    os.environ["PATH"] = path


def check_slots(vault, key):
    """A person's slot, and a new passphrase by the recovery key."""
    added = run(commands.add_slot(vault, "-Ben", "30d"), "short", "guest's passphrase")
    assert added.failure is None and added.notices == [], added
    first, recovery, guest = run(commands.info(vault)).slots
    assert [commands.slot_title(slot) for slot in (first, recovery, guest)] == [
        "Passphrase", "Recovery key", "Passphrase “-Ben”"]
    assert commands.slot_title({"kind": "keyfile", "label": "a\n\u202eb"}) == "Keyfile “a\ufffd\ufffdb”"
    assert commands.is_still(guest, [first, guest]) and not commands.is_still(guest, [first, recovery])
    assert not commands.is_still(guest, [first, {**guest, "label": "-Eva"}])
    made, expiry = guest["created"], guest["expires"]
    assert commands.slot_times(first, made) == f"Made {made[:10]}"
    assert commands.slot_times(guest, made) == f"Made {made[:10]}, expires {expiry[:10]}"
    assert commands.slot_times(guest, "2999") == f"Made {made[:10]}, expired {expiry[:10]}"
    assert commands.slot_times({"created": "2026-01-01", "window": {"seconds": 172800}}, "") == (
        "Made 2026-01-01, opens for 48 h after its first use")
    assert run(commands.remove_slot(vault, guest["id"]), "guest's passphrase").failure is None
    assert run(commands.change(vault, commands.RECOVERY_KEY), key, SECRET).failure is None
    assert run(commands.verify(vault), "short").code != 0
    assert "no damage" in run(commands.verify(vault)).report[-1]


def check_import(vault):
    os.makedirs(f"{directory}/Photos")
    pathlib.Path(directory, "Photos/picture").write_bytes(b"a picture")
    imported = run(commands.import_folder(f"{directory}/Photos", vault, "Photos"))
    assert imported.failure is None and "imported 1 file" in imported.report[0], imported
    again = run(commands.import_folder(f"{directory}/Photos", vault, "none/Photos"))
    assert again.failure, again


def check_failures():
    wrong = run(commands.mount(f"{directory}/First", f"{directory}/Private"), "wrong")
    assert wrong.failure == f"vaultfs: {directory}/First: wrong passphrase", wrong
    # It ends before it reads a passphrase that does not fit into a pipe.
    missing = run(commands.mount(f"{directory}/none", f"{directory}/Private"), "x" * 1_000_000)
    assert missing.failure.startswith("vaultfs: ") and f"{directory}/none" in missing.failure, missing
    full = f"{directory}/full"
    os.makedirs(f"{full}/directory")
    assert "mountpoint is not empty" in run(commands.mount(f"{directory}/First", full)).failure
    assert run(["vaultfs", "--unknown"]).failure.startswith("vaultfs: ")
    busy = commands.Outcome(commands.IN_USE, "", "vaultfs: /m is in use by vi (47): close what uses it, or --force\n")
    assert busy.fact == "/m is in use by vi (47)"
    wrong, left = "vaultfs: /v: wrong passphrase", "vaultfs-keyring: no slot was added"
    for lines in (wrong, left), (left, wrong):
        assert commands.Outcome(1, "", "\n".join(lines)).failure == f"{wrong}\n{left}"
    assert commands.unmount("/m", force=True) == ["vaultfs", "unmount", "--force", "/m"]
    cancelled = commands.Command(commands.mount(f"{directory}/First", f"{directory}/Private"))
    cancelled.cancel()
    assert cancelled.finish(SECRET).failure
    path = os.environ["PATH"]
    os.environ["PATH"] = directory
    assert refusal(commands.Command, ["vaultfs", "status"]) == "vaultfs cannot be run: No such file or directory"
    os.environ["PATH"] = path
    # It is replaced by an update, for example.
    path = stand_in("echo updating")
    assert "not JSON" in run(commands.known()).failure and run(commands.info("/v")).slots == []
    os.environ["PATH"] = path


def check_list():
    """The list, a label that is also the name of a directory here, and a broken list."""
    outcome = run(commands.known())
    states = {vault["label"]: vault["state"] for vault in outcome.vaults}
    assert states == {"First": "unmounted", "Letters": "unmounted", "Second": "unmounted"}, outcome
    os.rename(f"{directory}/Second", f"{directory}/moved")
    assert [vault["state"] for vault in run(commands.known()).vaults] == ["unmounted", "unmounted", "absent"]
    os.mkdir(f"{directory}/here")
    os.symlink(f"{directory}/First", f"{directory}/here/Letters")
    os.chdir(f"{directory}/here")
    labelled = run(commands.mount("Letters", f"{directory}/new"), "wrong")
    assert labelled.failure == f"vaultfs: {directory}/Letters: wrong passphrase", labelled
    missing = run(commands.mount("First"))
    assert missing.failure.startswith("vaultfs: missing mountpoint: "), missing
    assert run(commands.forget("First")).failure is None and os.path.isdir(f"{directory}/First")
    assert "'First'" in run(commands.forget("First")).failure
    file = pathlib.Path(directory, ".config/vaultfs/vaults.json")
    file.write_text("{")
    broken = run(commands.known())
    assert broken.failure.startswith(f"vaultfs: {file} is not a list of vaults: ") and broken.vaults == [], broken


def check_key(vault, key):
    file = f"{directory}/key"
    os.umask(0)
    commands.save_key(key, file, vault)
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    verified = run(["vaultfs", "verify", vault, "--recovery-key", "--passfile", file])
    assert verified.failure is None, verified
    assert "exists already" in refusal(commands.save_key, "other", file, vault)
    os.symlink(f"{directory}/elsewhere", f"{directory}/link")
    assert "exists already" in refusal(commands.save_key, key, f"{directory}/link", vault)
    os.makedirs(f"{vault}/below")
    os.symlink(f"{vault}/below", f"{directory}/inside")
    for folder in (vault, f"{vault}/below", f"{directory}/inside"):
        assert "in the vault that it opens" in refusal(commands.save_key, key, f"{folder}/other", vault)
        assert not os.path.exists(f"{folder}/other")
    assert "cannot be made" in refusal(commands.save_key, key, f"{directory}/none/key", vault)
    assert pathlib.Path(file).read_text() == key + "\n"


check_fields()
check_suggestion()
key = check_making(f"{directory}/Letters")
check_secrecy()
check_scope()
check_autostart()
check_units()
check_progress()
check_session()
check_failures()
check_slots(f"{directory}/Letters", key)
check_import(f"{directory}/Letters")
check_list()
check_key(f"{directory}/Letters", key)
assert "gi" not in sys.modules, "this part needs no display"
