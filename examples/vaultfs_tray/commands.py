"""Making, mounting and listing vaults, without a window: checks of the fields, commands of vaultfs, the recovery key's
file.
"""

import dataclasses
import json
import os
import pathlib
import subprocess


# The exit code of an unmount that a program prevents.
IN_USE = 5


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


def passphrase(text):
    if not text:
        raise Refusal("Type the passphrase of the vault")
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
    return ["init", "--json", "--passfile", "-", vault]


def mount(vault, mountpoint=None):
    """Mounts a vault by its path, or by its label. Without a mountpoint it is that of the last mount."""
    return ["mount", "--passfile", "-", vault, *([mountpoint] if mountpoint else [])]


def unmount(mountpoint, force=False):
    return ["unmount", *(["--force"] if force else []), mountpoint]


def known():
    return ["list", "--json"]


def forget(label):
    return ["forget", label]


class Command:
    """A vaultfs that runs. It gets the passphrase through a pipe: others can read arguments and the environment."""

    def __init__(self, arguments):
        try:
            # vaultfs takes a label for a path if a vault is there, so run it where vaults hardly are.
            self.process = subprocess.Popen(
                ["vaultfs", *arguments], cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        except OSError as error:
            raise Refusal(f"vaultfs cannot be run: {error.strerror}") from error

    def finish(self, secret=""):
        """Waits for the end of the command. Any thread."""
        output, errors = self.process.communicate(secret.encode())
        return Outcome(self.process.returncode, output.decode(), errors.decode(errors="replace"))

    def cancel(self):
        self.process.terminate()


@dataclasses.dataclass
class Outcome:
    """The end of a command, with its output."""

    code: int
    output: str
    errors: str

    @property
    def notices(self):
        """The lines on standard error: warnings, and at the end the failure."""
        return [line for line in self.errors.splitlines() if line]

    @property
    def failure(self):
        """The line that says why the command failed. None if it did not."""
        if self.code == 0:
            return None
        # Lines about the usage may follow it.
        lines = [line for line in self.notices if line.startswith("vaultfs: ")] or self.notices
        return lines[-1] if lines else f"vaultfs ended with the code {self.code}, without a message"

    @property
    def fact(self):
        """The line that says why the command failed, without its end, which is advice for a command line."""
        return self.failure.removeprefix("vaultfs: ").rpartition(": ")[0] or self.failure

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
