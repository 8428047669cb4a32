#!/usr/bin/python3
"""session_use.py STAGE PICTURES: a person without a terminal, in a desktop session, with a vault.

A display manager shows its greeter. The person logs in there, and has a desktop with a panel and a file manager. The
person does everything by keys and by the mouse, on controls that the accessibility bus names. The directory PICTURES
gets a picture after each step. Commands only look at the result. Run it as root, in its own machine
(scripts/system/session). Stages, each in a boot of its own: make, remember, restore.
"""

import json
import os
import pathlib
import pwd
import subprocess
import sys
import threading
import time

SECONDS = 120
LOGIN = "log in with horses"
FIRST = "a vault of horses"
SECOND = "another vault of cows"
GUEST = "a guest with goats"
HOME = pathlib.Path("/home/ada")
# A backup is there, as on a disk that is plugged in.
BACKUP = HOME / "Backup"
KEY_FILE = HOME / "Letters recovery key.txt"
FILES = ["letter.txt", "numbers.txt"]
stage, pictures = sys.argv[1:]
user = pwd.getpwnam("ada")
runtime = f"/run/user/{user.pw_uid}"
become_ada = ["setpriv", "--reuid=ada", "--regid=ada", "--init-groups", "env", "-C", HOME, f"HOME={HOME}", "USER=ada",
              f"XDG_RUNTIME_DIR={runtime}", f"DBUS_SESSION_BUS_ADDRESS=unix:path={runtime}/bus"]


def until(what, condition, seconds=SECONDS):
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() > deadline:
            stop(f"waited {seconds} s for {what}")
        time.sleep(0.2)
    return result


def stop(reason):
    # The picture shows what was there instead.
    take_picture("failed")
    sys.exit(f"FAILED: {reason}")


def check(what, holds):
    if not holds:
        stop(what)


def output(*command, **options):
    options = {"stdin": subprocess.DEVNULL, **options}
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=SECONDS,
                          check=False, **options).stdout


def as_ada(*command, **options):
    return output(*become_ada, *command, **options)


def is_mounted():
    return output("findmnt", "--noheadings", "--output=FSTYPE", HOME / "Private").strip() == "fuse.vaultfs"


def state():
    """The state of the mount, empty if there is none."""
    for line in as_ada("vaultfs", "status", "Private").splitlines():
        if line.startswith("state "):
            return line.split()[1].rstrip(",")
    return ""


def units(state):
    """The units of vaults in this state."""
    return as_ada("systemctl", "--user", "list-units", "--all", "--no-legend", "--plain", f"--state={state}", "vaultfs@*")


def unlocks(passphrase):
    """True if a passphrase opens the vault."""
    return "openedSlots" in as_ada(
        "vaultfs", "slot", "list", "--json", "--passfile=-", "Letters", stdin=None, input=passphrase)


def are_equal(first, second):
    """True if both are directories with the same content."""
    return as_ada("sh", "-c", f"diff -r {first} {second} && echo equal").strip() == "equal"


# The screen

def seat(name):
    """A property of the session that a person sees on this seat."""
    session = output("loginctl", "show-seat", "seat0", "--property=ActiveSession", "--value").strip()
    return output("loginctl", "show-session", session, f"--property={name}", "--value").strip() if session else ""


def on_screen(*command, **options):
    # A locked screen is another X server, with the greeter.
    display = seat("Display")
    environment = {**os.environ, "DISPLAY": display, "XAUTHORITY": f"/run/lightdm/root/{display}"}
    return output(*command, env=environment, **options)


def take_picture(name):
    take_picture.number += 1
    # A menu or a window may still be drawn.
    time.sleep(1.5)
    on_screen("scrot", "--overwrite", f"{pictures}/{stage}-{take_picture.number:02}-{name}.png")


take_picture.number = 0


def key(*names):
    for name in names:
        on_screen("xdotool", "key", name)
        time.sleep(0.3)


def type_text(text):
    # Not as an argument, because a passphrase is typed, too.
    on_screen("xdotool", "type", "--delay", "40", "--file", "-", stdin=None, input=text)
    time.sleep(0.3)


def click(place):
    on_screen("xdotool", "mousemove", *map(str, place), "sleep", "0.3", "click", "1")
    time.sleep(0.3)


def titles():
    """The titles of the windows on the screen."""
    return on_screen("xdotool", "search", "--onlyvisible", "--name", ".", "getwindowname", "%@").splitlines()


# The desktop

def look(run=as_ada, **request):
    """The answer of session_look.py, null while the desktop begins or ends."""
    program = pathlib.Path(__file__).parent / "session_look.py"
    return json.loads(run("timeout", "20", "python3", program, json.dumps(request)) or "null")


def press(window, name):
    """Clicks on the control of this name, in a window or in any."""
    click(until(f"'{name}' in the window '{window}'", lambda: look(window=window, name=name)))


def fill(window, label, text):
    """Clicks into the field with this label, and types over what it has."""
    click(until(f"the field '{label}' in the window '{window}'", lambda: look(window=window, label=label)))
    key("ctrl+a")
    type_text(text)


def shows(window, part):
    return lambda: any(part in line for line in look(window=window, text=True) or [])


def wait_for_window(title):
    until(f"the window '{title}'", lambda: title in titles())


def wait_for_end(title):
    until(f"the end of the window '{title}'", lambda: title not in titles())


# The actions of the person

def greeter():
    return seat("Class") == "greeter" and on_screen(
        "xdotool", "search", "--onlyvisible", "--class", "lightdm-gtk-greeter")


def type_passphrase():
    key("Return")
    time.sleep(3)
    type_text(LOGIN)
    key("Return")
    until("the session", lambda: seat("Class") == "user")


def log_in():
    until("the greeter", greeter)
    time.sleep(2)
    type_text("ada")
    take_picture("greeter")
    type_passphrase()
    until("the panel", lambda: output("pgrep", "-u", "ada", "-x", "xfdesktop"))
    time.sleep(5)
    until("the menu in the panel", lambda: look(name="Applications"))


def log_out():
    press(None, "Applications")
    press(None, "Log Out")
    until("the dialog", shows("", "Log out ada"))
    take_picture("log-out")
    press("", "Log Out")
    until("the greeter", greeter)
    until("the unmount", lambda: not is_mounted())
    until("the end of all sessions", lambda: "ada" not in output("loginctl", "--no-legend", "list-users"))
    check("a daemon stays after the logout", not output("pgrep", "-u", "ada", "vaultfs"))
    print("logged out: unmounted, no process of the person is left")


def lock_screen():
    key("ctrl+alt+l")
    until("the greeter", greeter)
    until("the lock", lambda: state() == "locked")
    check("a locked vault gives a file", not as_ada("cat", "Private/letter.txt"))
    time.sleep(2)
    take_picture("locked")
    # The greeter has the name already.
    type_passphrase()
    until("the unlock", lambda: state() == "unlocked")
    take_picture("unlocked")
    print("the screen was locked: so was the vault, until the passphrase of the login")


def open_vaults():
    press(None, "Applications")
    press(None, "System")
    press(None, "Vaults")
    wait_for_window("Your vaults")


def open_files():
    press(None, "Applications")
    press(None, "System")
    press(None, "Thunar File Manager")
    wait_for_window("ada - Thunar")
    time.sleep(1)


def copy_all(folder, chosen):
    """Copies all of a folder, whose status bar then says what is chosen."""
    go(folder)
    key("ctrl+a")
    until("the choice", shows(f"{folder.name} - Thunar", chosen))
    copy_chosen(f"{folder}/")


def copy_chosen(place):
    """Copies what is chosen: a file or directory whose path begins with this."""
    def is_copied():
        # After a dialog, the window may get no keys for a moment.
        key("ctrl+c")
        return f"file://{place}" in (look(on_screen, copied=True) or "")
    until("the files to be copied", is_copied)


def choose_folder(name):
    """Chooses a folder in the file manager, which must be new: the field for a path keeps the keys that follow. A
    pattern without ? would also match longer names."""
    key("ctrl+s")
    wait_for_window("Select by Pattern")
    type_text(f"{name[:-1]}?")
    key("Return")
    wait_for_end("Select by Pattern")
    until("the choice", shows(f"{HOME.name} - Thunar", f'"{name}"'))


def choose(item):
    press("Your vaults", "More: Letters")
    press(None, item)


def go(folder):
    """Goes to a folder, in the file manager's window in front."""
    key("ctrl+l")
    time.sleep(1)
    key("ctrl+a")
    type_text(str(folder))
    key("Return")
    wait_for_window(f"{folder.name} - Thunar")
    time.sleep(1)


def see_folder():
    """The file manager shows the files of the vault that was just mounted."""
    until("the mount", lambda: state() == "unlocked")
    wait_for_window("Private - Thunar")


def make():
    log_in()
    take_picture("desktop")
    open_vaults()
    take_picture("no-vault")
    press("Your vaults", "Make a Vault…")
    fill("Make a vault", "Name", "Letters")
    fill("Make a vault", "Passphrase", FIRST)
    fill("Make a vault", "The same again", FIRST)
    take_picture("make")
    press("Make a vault", "Make")
    press("Recovery key", "Save…")
    wait_for_window("Save the recovery key")
    press("Save the recovery key", "Save")
    until("the saved key", shows("Recovery key", "Saved as ~/Letters recovery key.txt"))
    take_picture("recovery-key")
    press("Recovery key", "Mount the Vault…")
    fill("Mount a vault", "Passphrase", FIRST)
    press("Mount a vault", "Remember in this desktop's keyring")
    press("Mount a vault", "Mount")
    until("the reason", shows("Mount a vault", "from the second login on"))
    take_picture("no-keyring")
    press("Mount a vault", "Remember in this desktop's keyring")
    fill("Mount a vault", "Passphrase", FIRST)
    press("Mount a vault", "Mount")
    see_folder()
    print("made a vault, kept its recovery key, mounted it")

    copy_all(HOME / "Documents", "Selection: 2 files")
    go(HOME / "Private")
    key("ctrl+v")
    until("the files", lambda: as_ada("ls", "Private").split() == FILES)
    take_picture("filled")
    key("ctrl+w")
    wait_for_end("Private - Thunar")
    print("filled it in the file manager")

    choose("At Login…")
    press("At login: Letters", "Lock all vaults with the screen, and before sleep")
    press("At login: Letters", "Show your vaults in the panel at login")
    until("the agent", lambda: as_ada("systemctl", "--user", "is-active", "vaultfs-agent").strip() == "active")
    take_picture("at-login")
    press("At login: Letters", "Close")
    lock_screen()
    log_out()


def remember():
    log_in()
    until("the icon in the panel", lambda: output("pgrep", "-u", "ada", "-x", "vaultfs-tray"))
    check("the vault is mounted without being asked for", not is_mounted())
    open_vaults()
    take_picture("unmounted")
    press("Your vaults", "Mount…: Letters")
    fill("Mount Letters", "Passphrase", FIRST)
    press("Mount Letters", "Remember in this desktop's keyring")
    take_picture("remember")
    press("Mount Letters", "Mount")
    see_folder()
    key("ctrl+w")
    wait_for_end("Private - Thunar")
    choose("At Login…")
    press("At login: Letters", "Mount this vault at login")
    until("the unit", lambda: as_ada("systemctl", "--user", "is-enabled", "vaultfs@Letters").strip() == "enabled")
    take_picture("at-login")
    press("At login: Letters", "Close")
    log_out()

    log_in()
    until("the mount", lambda: state() == "unlocked")
    time.sleep(5)
    asking = [each for each in titles() if "ault" in each or "eyring" in each]
    check(f"a window asks for something after the login: {asking}", not asking)
    check("the files differ after the login", as_ada("ls", "Private").split() == FILES)
    take_picture("mounted-at-login")
    print("logged in: mounted by the keyring, without a question")
    lock_screen()

    open_vaults()
    choose("Change the Passphrase…")
    fill("Change the passphrase: Letters", "Passphrase now", FIRST)
    fill("Change the passphrase: Letters", "New passphrase", SECOND)
    fill("Change the passphrase: Letters", "The same again", SECOND)
    take_picture("change")
    press("Change the passphrase: Letters", "Change")
    wait_for_end("Change the passphrase: Letters")
    check("the new passphrase does not open the vault", unlocks(SECOND))
    check("the old passphrase opens the vault", not unlocks(FIRST))
    print("changed the passphrase of the mounted vault")

    choose("Slots…")
    press("Slots: Letters", "Add a Person…")
    fill("Add a person: Letters", "For", "Ben")
    click(until("the choice", lambda: look(window="Add a person: Letters", label="Expires")))
    take_picture("expires")
    press(None, "In a month")
    fill("Add a person: Letters", "Their passphrase", GUEST)
    fill("Add a person: Letters", "The same again", GUEST)
    fill("Add a person: Letters", "Your passphrase", SECOND)
    take_picture("person")
    press("Add a person: Letters", "Add")
    wait_for_end("Add a person: Letters")
    until("the slot in the list", shows("Slots: Letters", "Passphrase “Ben”"))
    take_picture("slots")
    slots = json.loads(as_ada("vaultfs", "info", "--json", "Letters"))["slots"]
    slot = next(each for each in slots if each["label"] == "Ben")
    days = (time.mktime(time.strptime(slot["expires"][:10], "%Y-%m-%d")) - time.time()) / 86400
    check(f"the slot expires in {days} days", 28 < days < 31)
    check("the other person's passphrase does not open the vault", unlocks(GUEST))
    press("Slots: Letters", "Close")
    print("gave another person a slot for a month")
    log_out()


def restore():
    log_in()
    until("the mount", lambda: state() == "unlocked")
    open_vaults()
    choose("Unmount")
    until("the unmount", lambda: not is_mounted())
    until("the end of the unit", lambda: not units("active,deactivating"))
    check("an unmount by hand is a failure of the unit", not units("failed"))
    open_files()
    choose_folder("Letters")
    copy_chosen(HOME / "Letters")
    go(BACKUP)
    key("ctrl+v")
    until("the copy", lambda: are_equal("Letters", "Backup/Letters"))
    take_picture("backup")
    print("copied the unmounted vault in the file manager")

    # A disk has lost a part of the largest file.
    largest = max((HOME / "Letters").rglob("*"), key=lambda file: file.stat().st_size)
    with largest.open("r+b") as file:
        file.seek(40_000)
        file.write(bytes(9000))
    key("ctrl+w")
    wait_for_window("Your vaults")
    time.sleep(2)
    choose("Verify…")
    fill("Verify: Letters", "Passphrase", SECOND)
    press("Verify: Letters", "Verify")
    until("the damage", shows("Verify: Letters", "numbers.txt"))
    take_picture("damaged")
    press("Verify: Letters", "Cancel")
    wait_for_end("Verify: Letters")

    open_files()
    choose_folder("Letters")
    key("F2")
    time.sleep(2)
    key("ctrl+a")
    type_text("Letters damaged")
    key("Return")
    until("the other name", lambda: not (HOME / "Letters").exists())
    copy_all(BACKUP, '"Letters"')
    go(HOME)
    key("ctrl+v")
    until("the copy", lambda: are_equal("Backup/Letters", "Letters"))
    take_picture("copied-back")
    key("ctrl+w")
    wait_for_window("Your vaults")
    time.sleep(2)
    choose("Verify…")
    fill("Verify: Letters", "Passphrase", SECOND)
    press("Verify: Letters", "Verify")
    wait_for_window("Verified")
    take_picture("verified")
    press(None, "Close")
    wait_for_end("Verified")
    press("Your vaults", "Mount…: Letters")
    see_folder()
    check("the files differ", are_equal("Documents", "Private"))
    take_picture("restored")
    key("ctrl+w")
    print("found the damage, and restored the backup: mounted by the keyring, with the same files")
    log_out()


class Spy(threading.Thread):
    """Looks for secrets in the arguments and the environment of the person's processes."""

    daemon = True

    def __init__(self):
        super().__init__()
        self.found = set()
        self.has_ended = False

    def run(self):
        while not self.has_ended:
            for process in pathlib.Path("/proc").glob("[0-9]*"):
                try:
                    if process.stat().st_uid == user.pw_uid:
                        for name in ("cmdline", "environ"):
                            self.search(process / name)
                except OSError:
                    # The process has ended.
                    pass
            time.sleep(0.3)

    def search(self, file):
        text = file.read_bytes()
        self.found.update(
            f"{secret!r} in {file.name}: {text[:60]!r}" for secret in secrets() if secret.encode() in text)


def secrets():
    try:
        return [LOGIN, FIRST, SECOND, GUEST, KEY_FILE.read_text().strip()]
    except OSError:
        return [LOGIN, FIRST, SECOND, GUEST]


def check_secrets(spy):
    spy.has_ended = True
    journal = output("journalctl", "--quiet", "--boot", "--no-pager", "--all")
    for file in [*HOME.glob(".xsession-errors*"), *(HOME / ".config").rglob("*"), *(HOME / ".cache").rglob("*")]:
        if file.is_file() and not file.is_symlink():
            spy.search(file)
    spy.found.update(f"{secret!r} in the journal" for secret in secrets() if secret in journal)
    check("\n".join(spy.found), not spy.found)
    print("no secret in an argument, in an environment, in the journal, nor in ~/.config and ~/.cache")


if __name__ == "__main__":
    spy = Spy()
    spy.start()
    {"make": make, "remember": remember, "restore": restore}[stage]()
    check_secrets(spy)
