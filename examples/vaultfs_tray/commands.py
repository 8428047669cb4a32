"""The part of the windows that needs no display: checks of the fields, commands of vaultfs, the recovery key's file."""

import dataclasses
import fcntl
import json
import os
import pathlib
import pwd
import re
import shutil
import string
import struct
import subprocess
import sys
import termios
import threading
import tty

# The unit that locks all vaults with the session (vaultfs-agent(1)).
AGENT = "vaultfs-agent.service"
# The exit code of an unmount that a program prevents.
IN_USE = 5
# The sources of the secret that opens a vault.
PASSPHRASE = ("--passfile", "-")
RECOVERY_KEY = (*PASSPHRASE, "--recovery-key")
KEYRING = ("--desktop-keyring",)
# Stands in the arguments for the file with the second secret of a command.
SECOND_SECRET = object()
# The values of `slot add --expires`, with the texts for people.
EXPIRIES = {"never": "Never", "1d": "In a day", "7d": "In a week", "30d": "In a month", "365d": "In a year"}
KINDS = {"passphrase": "Passphrase", "recovery": "Recovery key", "keyfile": "Keyfile"}
# The most lines of a command that a window shows.
MOST_LINES = 12
# vaultfs writes this before each text of the progress line, so that the text replaces the one before on a terminal.
START_OVER = b"\r\x1b[K"


class Refusal(Exception):
    """A field's text that cannot be used. The message is for people."""


def short(path):
    """A path for people, with ~ for the home directory."""
    home = os.path.expanduser("~")
    return "~" + path[len(home):] if path == home or path.startswith(home.rstrip("/") + "/") else path


def typed_path(text, what):
    """The path that a person has typed, perhaps with ~."""
    path = os.path.expanduser(text)
    if not os.path.isabs(path):
        raise Refusal(f"Type the whole path of the {what}: it begins with / or ~/")
    return path


def new_vault(folder, name):
    """The path of a vault that is made in a folder."""
    name = name.strip()
    if not name:
        raise Refusal("Type a name for the vault")
    if "/" in name or name in (".", ".."):
        raise Refusal("Type another name: it cannot have a / in it, nor be . or ..")
    return os.path.join(typed_path(folder, "folder"), name)


def new_passphrase(first, second):
    if not first:
        raise Refusal("Type a passphrase")
    if first != second:
        raise Refusal("The two passphrases differ: type them again")
    return first


def secret(text, what="passphrase"):
    if not text:
        raise Refusal(f"Type the {what} of the vault")
    return text


def person(text):
    """The label of a slot."""
    if not text.strip():
        raise Refusal("Type for whom the slot is: it is shown in the list of slots")
    return text.strip()


def import_name(text):
    """The path in a vault, below its top, of an imported folder. Empty for the top itself."""
    if text.startswith("/"):
        raise Refusal("Type the name that the folder gets in the vault: it does not begin with /")
    return text


def device(directory):
    try:
        return os.stat(directory).st_dev
    except OSError:
        return None


def suggested_mountpoint(vault):
    """The mountpoint that `vaultfs init` proposes: a directory that does not exist yet, beside the vault, or in the home
    directory if the vault is on another disk.
    """
    place, name = os.path.split(vault.rstrip("/") or "/")
    home = os.path.expanduser("~")
    if device(home) not in (None, device(place)):
        place = home
    usual = os.path.join(place, "Private")
    return os.path.join(place, name + ".open") if os.path.lexists(usual) else usual


def init(vault):
    return ["vaultfs", "init", "--json", *PASSPHRASE, vault]


def beyond_session():
    """The beginning of a command whose daemon ends with the user's last session.

    A desktop such as Xfce starts its programs in logind's scope of the session. There a daemon would stay after the
    logout, with an unlocked vault, and would keep the service manager of the user, and so the keyring. In a scope of
    that manager it is ended with it.
    """
    manager = os.path.join(os.environ.get("XDG_RUNTIME_DIR") or "/nonexistent", "systemd/private")
    if os.path.exists(manager) and shutil.which("systemd-run"):
        return ["systemd-run", "--user", "--scope", "--quiet", "--collect"]
    return []


def mount(vault, mountpoint=None, opening=PASSPHRASE):
    """Mounts a vault by its path, or by its label. Without a mountpoint it is that of the last mount."""
    return [*beyond_session(), "vaultfs", "mount", *opening, vault, *([mountpoint] if mountpoint else [])]


def unlock(mountpoint, opening=PASSPHRASE):
    return ["vaultfs", "unlock", *opening, mountpoint]


def unmount(mountpoint, force=False):
    return ["vaultfs", "unmount", *(["--force"] if force else []), mountpoint]


def known():
    return ["vaultfs", "list", "--json"]


def forget(label):
    return ["vaultfs", "forget", label]


def change(vault, opening=PASSPHRASE):
    """Changes the passphrase that is given, or with the recovery key the only one. The second secret is the new one."""
    return ["vaultfs", "slot", "change", *opening, "--new-passfile", SECOND_SECRET, vault]


def info(vault):
    return ["vaultfs", "info", "--json", vault]


def add_slot(vault, label, expiry, opening=PASSPHRASE):
    """Adds a slot. The second secret is its passphrase."""
    return ["vaultfs", "slot", "add", *opening, "--new-passfile", SECOND_SECRET, f"--label={label}",
            *([] if expiry == "never" else ["--expires", expiry]), vault]


def remove_slot(vault, number, opening=PASSPHRASE):
    return ["vaultfs", "slot", "remove", *opening, vault, str(number)]


def keyring_slots(vault):
    """Finds the slots that the desktop's keyring opens."""
    return ["vaultfs", "slot", "list", "--json", *KEYRING, vault]


def is_still(slot, slots):
    """True if the slot is still one of a vault's. A new slot may have the id of one that was removed."""
    return any(all(each[name] == slot[name] for name in ("id", "created", "label")) for each in slots)


def import_folder(source, vault, name, opening=PASSPHRASE):
    return ["vaultfs", "import", *opening, source, f"{vault}:{name}" if name else vault]


def verify(vault, opening=PASSPHRASE):
    return ["vaultfs", "verify", *opening, vault]


def mount_unit(label):
    """The unit that mounts a vault at login (vaultfs-at-login(7)), with the label as systemd-escape(1) writes it."""
    kept = set((string.ascii_letters + string.digits + ":_.").encode())
    escaped = [chr(each) if each in kept else f"\\x{each:02x}" for each in os.fsencode(label)]
    if escaped[:1] == ["."]:
        escaped[0] = "\\x2e"
    return f"vaultfs@{''.join(escaped)}.service"


def is_enabled(unit):
    return ["systemctl", "--user", "is-enabled", "--quiet", unit]


def enable(unit, is_on, starts):
    """Enables a unit of this user, or disables it. `starts` is true if that also starts or stops it."""
    return ["systemctl", "--user", "enable" if is_on else "disable", *(["--now"] if starts else []), unit]


def config_directory():
    base = os.environ.get("XDG_CONFIG_HOME", "")
    return pathlib.Path(base if base.startswith("/") else os.path.expanduser("~/.config"))


class Autostart:
    """A program that the desktop starts with each session of this user, by a file in its directory autostart."""

    def __init__(self, name, title, *command):
        self.file = config_directory() / "autostart" / f"{name}.desktop"
        # The paths come from the installation, so they need no more than quotes.
        words = " ".join(f'"{word}"' for word in command)
        self.text = f"[Desktop Entry]\nType=Application\nName={title}\nExec={words}\nTryExec=vaultfs\n"

    def is_on(self):
        """False also for a file with which a person has switched the program off in the desktop's settings."""
        try:
            return re.search(r"^Hidden *= *true", self.file.read_text(errors="replace"), re.MULTILINE) is None
        except OSError:
            return False

    def switch(self, is_on):
        try:
            if is_on:
                self.file.parent.mkdir(parents=True, exist_ok=True)
                self.file.write_text(self.text)
            else:
                self.file.unlink(missing_ok=True)
        except OSError as error:
            raise Refusal(f"{short(str(self.file))} cannot be written: {error.strerror}") from error


def tray_autostart():
    """Starts the applet."""
    return Autostart("vaultfs-tray", "Vaults", os.path.abspath(sys.argv[0]))


def mount_autostart():
    """Mounts vaults at login where the desktop does not start the units itself (session.py)."""
    session = pathlib.Path(__file__).resolve().parent / "session.py"
    return Autostart("vaultfs-at-login", "Mount vaults at login", "/usr/bin/python3", str(session))


def has_keyring():
    return shutil.which("vaultfs-keyring") is not None


def enroll(vault, opening=PASSPHRASE):
    """Makes a slot whose secret is in the desktop's keyring."""
    return ["vaultfs-keyring", "enroll", vault, *opening]


def leave_keyring(vault, opening=PASSPHRASE):
    return ["vaultfs-keyring", "remove", vault, *opening]


def is_in_keyring(slot):
    """True for a slot that `enroll` has made for this user on this machine, by its label (vaultfs-keyring(1))."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = os.getuid()
    place = f"{user}@{os.uname().nodename}".encode()[:60].decode(errors="ignore")
    return slot["kind"] == "keyfile" and slot["label"].startswith("keyring ") and slot["label"].endswith(f" of {place}")


def slot_title(slot):
    """`Passphrase “guest”`, for a slot of `info`. Whoever can write the vault's directory can write any label there."""
    kind = KINDS.get(slot["kind"], slot["kind"])
    label = "".join(each if each.isprintable() else "\ufffd" for each in slot["label"])
    return f"{kind} “{label}”" if label else kind


def slot_times(slot, now):
    """`Made 2026-11-29, expires 2026-12-29`. Times compare as texts."""
    parts = [f"made {slot['created'][:10]}"]
    if expiry := slot.get("expires"):
        parts.append(f"{'expired' if expiry <= now else 'expires'} {expiry[:10]}")
    if window := slot.get("window"):
        parts.append(f"opens for {window['seconds'] // 3600} h after its first use")
    return ", ".join(parts).capitalize()


def progress(text):
    """The done part of a progress line, from 0 to 1, and the rest of its text. The part is None if it is unknown."""
    bar = re.match(r"\[[# ]*\] +(\d+)% *", text)
    return (int(bar[1]) / 100, text[bar.end():]) if bar else (None, text)


def shortened(lines):
    """The first lines, and how many there are besides."""
    left = len(lines) - MOST_LINES
    return lines[:MOST_LINES] + [f"… and {left} more lines"] if left > 1 else lines


class Command:
    """A program that runs. It gets the secrets through pipes: others can read arguments and the environment.

    `show_progress` is called by another thread with each text of the progress line. vaultfs writes that only on a
    terminal, so it then gets one as its standard error.
    """

    def __init__(self, arguments, show_progress=None):
        self.show_progress = show_progress
        self.has_json = "--json" in arguments
        self.errors = b""
        second, self.second = os.pipe() if SECOND_SECRET in arguments else (None, None)
        self.terminal, errors = wide_terminal() if show_progress else (None, subprocess.PIPE)
        try:
            # A vault in the working directory would be taken for the listed vault whose label is its name, so vaultfs
            # runs in /. A terminal from which the tray was started must not be asked for a passphrase, so the command
            # has a session of its own, without a terminal.
            self.process = subprocess.Popen(
                [f"/dev/fd/{second}" if each is SECOND_SECRET else each for each in arguments], cwd="/",
                pass_fds=() if second is None else (second,), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=errors, start_new_session=True)
        except OSError as error:
            close(self.second, self.terminal)
            raise Refusal(f"{arguments[0]} cannot be run: {error.strerror}") from error
        finally:
            close(second, errors if show_progress else None)

    def finish(self, secret="", second=""):
        """Waits for the end of the command. Any thread."""
        threads = [threading.Thread(target=self.write_second, args=[second])] if self.second else []
        threads += [threading.Thread(target=self.read_terminal)] if self.terminal else []
        for thread in threads:
            thread.start()
        output, errors = self.process.communicate(secret.encode())
        for thread in threads:
            thread.join()
        outcome = Outcome(self.process.returncode, output.decode(errors="replace"),
                          (self.errors if errors is None else errors).decode(errors="replace"))
        return outcome.checked() if self.has_json else outcome

    def write_second(self, secret):
        try:
            with open(self.second, "wb") as pipe:
                pipe.write(secret.encode())
        except BrokenPipeError:
            # The command has ended before it needed the secret, and says why.
            pass

    def read_terminal(self):
        line = b""
        while data := read(self.terminal):
            *complete, line = (line + data).split(START_OVER)
            self.errors += b"".join(part for part in complete if b"\n" in part)
            if complete and line and b"\n" not in line:
                self.show_progress(line.decode(errors="replace"))
        os.close(self.terminal)
        self.errors += line

    def cancel(self):
        self.process.terminate()


def close(*descriptors):
    for descriptor in descriptors:
        if descriptor is not None:
            os.close(descriptor)


def wide_terminal():
    """The two ends of a terminal in which a progress line has room."""
    ours, theirs = os.openpty()
    tty.setraw(theirs)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 200, 0, 0))
    return ours, theirs


def read(terminal):
    """The bytes that were written to a terminal. Empty once its last writer has closed it, an error on Linux."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def is_of_keyring(line):
    return line.startswith("vaultfs-keyring: ")


@dataclasses.dataclass
class Outcome:
    """The end of a command, with its output."""

    code: int
    output: str
    errors: str

    def checked(self):
        """The same outcome, or a failure if the output is not JSON."""
        if self.code == 0:
            try:
                json.loads(self.output)
            except ValueError:
                return Outcome(1, "", f"{self.errors}\nvaultfs: its answer is not JSON: try again")
        return self

    @property
    def notices(self):
        """The lines on standard error: warnings, and at the end the failure."""
        return [line for line in self.errors.splitlines() if line]

    @property
    def failure(self):
        """The line that says why the command failed, or several of vaultfs-keyring. None if it did not fail."""
        if self.code == 0:
            return None
        # Lines about the usage may follow it.
        lines = [line for line in self.notices if re.match(r"vaultfs[a-z-]*: ", line)] or self.notices
        if not lines:
            return f"The command ended with the code {self.code}, without a message"
        # vaultfs-keyring says only how it has ended, if vaultfs has said why.
        lines.sort(key=is_of_keyring)
        return "\n".join(lines) if is_of_keyring(lines[-1]) else lines[-1]

    @property
    def fact(self):
        """The line that says why the command failed, without its end, which is advice for a command line."""
        return self.failure.removeprefix("vaultfs: ").rpartition(": ")[0] or self.failure

    @property
    def report(self):
        """The lines on standard output, and then those on standard error."""
        return [line for line in self.output.splitlines() if line] + self.notices

    @property
    def slots(self):
        """The objects of `info`. Empty after a failure."""
        return json.loads(self.output)["slots"] if self.code == 0 else []

    @property
    def opened(self):
        """The ids of `keyring_slots`. Empty after a failure."""
        return json.loads(self.output)["openedSlots"] if self.code == 0 else []

    @property
    def recovery_key(self):
        return json.loads(self.output)["recoveryKey"]

    @property
    def vaults(self):
        """The objects of `known`. Empty after a failure."""
        return json.loads(self.output) if self.code == 0 else []


def save_key(key, file, vault):
    """Writes a recovery key to a new file, for `--recovery-key --passfile FILE`. Only its owner can read the file."""
    file = pathlib.Path(file)
    try:
        directory = file.parent.resolve(strict=True)
        # A copy of the vault, such as a backup, must not contain the key that opens it.
        if any(parent.samefile(vault) for parent in (directory, *directory.parents)):
            raise Refusal("The key cannot be kept in the vault that it opens: choose another folder")
        # Never over another file: that may be the only recovery key of another vault.
        descriptor = os.open(directory / file.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise Refusal(f"{short(str(file))} exists already: choose another name") from None
    except OSError as error:
        raise Refusal(f"{short(str(file))} cannot be made: {error.strerror}") from error
    try:
        with open(descriptor, "w") as opened:
            opened.write(key + "\n")
            opened.flush()
            os.fsync(descriptor)
    except OSError as error:
        os.unlink(directory / file.name)
        raise Refusal(f"{short(str(file))} cannot be written: {error.strerror}") from error
