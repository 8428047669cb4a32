#!/usr/bin/python3
"""desktop_tray.py TRAY VAULTFS HOME SCREENSHOT: vaultfs-tray, used by its menu, its windows and its notifications.

Run it with a display and a session bus of its own (scripts/system/desktop). HOME is an empty directory. The file
SCREENSHOT gets a picture of the open menu. Pictures of the windows are made beside it.
"""

import json
import os
import pathlib
import stat
import subprocess
import sys
import time

import gi

gi.require_version("Gdk", "3.0")
from gi.repository import Gdk, Gio, GLib

SECONDS = 20
MENU = "/org/ayatana/NotificationItem/vaultfs/Menu"
tray, vaultfs, home, screenshot = sys.argv[1:]
bus = Gio.bus_get_sync(Gio.BusType.SESSION, None)
started = []


def until(what, condition):
    deadline = time.monotonic() + SECONDS
    while not (result := condition()):
        if time.monotonic() > deadline:
            # The picture shows a person what was there instead.
            take_picture().savev(screenshot, "png", [], [])
            sys.exit(f"FAILED: waited {SECONDS} s for {what}")
        time.sleep(0.02)
    return result


def take_picture():
    root = Gdk.get_default_root_window()
    return Gdk.pixbuf_get_from_window(root, 0, 0, root.get_width(), root.get_height())


def run(*command, **options):
    return subprocess.run(command, check=True, timeout=SECONDS, stdout=subprocess.PIPE, text=True, **options).stdout


def start(*command, **options):
    process = subprocess.Popen(command, **options)
    started.append(process)
    return process


def call(name, path, interface, method, arguments=None, reply=None):
    return bus.call_sync(
        name, path, interface, method, arguments, GLib.VariantType(reply) if reply else None, Gio.DBusCallFlags.NONE,
        SECONDS * 1000, None)


class Vault:
    def __init__(self, name, policy):
        self.path, self.mountpoint = os.path.join(home, f"{name}.vault"), os.path.join(home, name)
        # Its item in the menu, its name in notifications.
        self.item, self.label, self.policy = f"{name}.vault", f"~/{name}", policy
        os.mkdir(self.mountpoint)
        run(vaultfs, "init", self.path, "--passfile", passfile, "--scrypt-logn", "10", "--no-recovery-key")

    def mount(self):
        run(vaultfs, "mount", self.path, self.mountpoint, "--passfile", passfile, "--on-lock", self.policy)

    def unmount(self):
        run(vaultfs, "unmount", self.mountpoint)

    def has_state(self, state):
        # A mount with damage has an exit code of its own.
        status = subprocess.run(
            [vaultfs, "status", "--json", self.mountpoint], stdout=subprocess.PIPE, timeout=SECONDS, text=True).stdout
        return f'"state" : "{state}"' in status


def items(layout, is_enabled, above=""):
    """The items of a menu by their labels: `Taxes: locked/Unlock`."""
    number, properties, below = layout
    label = above + properties.get("label", "").replace("_", "")
    if properties.get("enabled", True) == is_enabled:
        yield label, number
    for item in below:
        yield from items(item, is_enabled, label + "/" if number else "")


def menu(is_enabled=True):
    layout = call(
        "vaultfs.Tray", MENU, "com.canonical.dbusmenu", "GetLayout", GLib.Variant("(iias)", (0, -1, [])),
        "(u(ia{sv}av))").unpack()[1]
    return dict(items(layout, is_enabled))


def choose(label):
    def chosen():
        if number := menu().get(label):
            try:
                call("vaultfs.Tray", MENU, "com.canonical.dbusmenu", "Event",
                     GLib.Variant("(isvu)", (number, "clicked", GLib.Variant("i", 0), 0)))
            except GLib.Error:
                # The menu was made anew meanwhile.
                return False
        return number

    until(f"the item '{label}'", chosen)


def is_empty():
    """True if the applet has its menu, and there is nothing to lock in it."""
    try:
        return "Quit" in menu() and "Lock All" not in menu()
    except GLib.Error:
        return False


def has_item(label):
    return lambda: label in menu()


def notified(text, count=1):
    until(f"the notification '{text}'", lambda: notifications.read_text().count(text) >= count)


def windows(*arguments):
    """The windows that xdotool finds."""
    found = subprocess.run(["xdotool", "search", *arguments], stdout=subprocess.PIPE, timeout=SECONDS, text=True)
    return found.stdout.split()


def type_into(title, *inputs):
    """Types texts and, in angle brackets, keys into a window. Each input must be in a field before the next."""
    window = until(f"the window '{title}'", lambda: windows("--onlyvisible", "--name", f"^{title}$"))[0]
    run("xdotool", "windowfocus", "--sync", window)
    for text in inputs:
        if text.startswith("<"):
            run("xdotool", "key", text.strip("<>"))
        else:
            run("xdotool", "type", "--delay", "5", text)


def enter(text, title):
    type_into(title, text, "<Return>")


def ended(title):
    until(f"the end of the window '{title}'", lambda: not windows("--onlyvisible", "--name", f"^{title}$"))


def changed(before):
    """A picture of the screen, once it has changed and stays as it is."""
    def settled():
        picture, later = take_picture(), take_picture()
        return later if picture.get_pixels() == later.get_pixels() != before.get_pixels() else None

    return until("a change on the screen", settled)


def check_locks(vault):
    vault.mount()
    until("the mount in the menu", has_item(f"{vault.item}: unlocked/Lock"))
    choose(f"{vault.item}: unlocked/Lock")
    notified(f"{vault.label} is locked")
    assert vault.has_state("locked")
    choose(f"{vault.item}: locked/Unlock")
    notified(f"{vault.label} is unlocked")
    assert vault.has_state("unlocked")


def check_passphrase(vault):
    vault.mount()
    choose(f"{vault.item}: unlocked/Lock")
    notified(f"{vault.label} is locked")
    choose(f"{vault.item}: locked/Unlock")
    enter("correct horse", "Unlock a vault")
    notified(f"{vault.label} is unlocked")
    ended("Unlock a vault")
    # A lock file refuses the unlock, with its reason.
    lock_file.touch()
    notified(f"{vault.label} is locked", 2)
    choose(f"{vault.item}: locked/Unlock")
    notified(f"{vault.label} stays locked")
    assert str(lock_file) in notifications.read_text()
    lock_file.unlink()


def check_windows():
    """The windows alone, and the part of them that needs no display."""
    programs = pathlib.Path(__file__).parent
    for name in ("tray_commands", "desktop_tray_dialogs"):
        directory = os.path.join(home, name)
        os.mkdir(directory)
        pictures = [os.path.dirname(screenshot)] if name == "desktop_tray_dialogs" else []
        arguments = [os.path.dirname(tray), vaultfs, directory, *pictures]
        subprocess.run(["/usr/bin/python3", programs / f"{name}.py", *arguments], check=True, timeout=10 * SECONDS)


def check_making(mountpoint):
    """A vault that is made and mounted with the keyboard, and its recovery key saved."""
    choose("Make a Vault…")
    type_into("Make a vault", "Letters", *["<Tab>"] * 3, "correct horse", "<Tab>", "correct horse", "<Return>")
    # The applet would lose the key.
    until("the recovery key", lambda: windows("--onlyvisible", "--name", "^Recovery key$"))
    ended("Make a vault")
    choose("Quit")
    type_into("Recovery key", "<Return>")
    type_into("Save the recovery key", "<Return>")
    ended("Save the recovery key")
    key = pathlib.Path(home, "Letters recovery key.txt")
    until("the file of the recovery key", key.exists)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    type_into("Recovery key", "<Tab>", "<Return>")
    ended("Recovery key")
    # With a lock file the mount succeeds, and a window shows the message of vaultfs.
    lock_file.parent.mkdir(mode=0o700, exist_ok=True)
    lock_file.touch()
    enter("correct horse", "Mount a vault")
    type_into("Mounted", "<Return>")
    ended("Mounted")
    assert not windows("--onlyvisible", "--name", "^Mount a vault$")
    lock_file.unlink()
    # ~/Private is there already.
    until("the mount in the menu", has_item("Letters: unlocked/Lock"))
    assert os.path.ismount(mountpoint)


def check_unmounting(mountpoint):
    with open(os.path.join(mountpoint, "file"), "w"):
        choose("Letters: unlocked/Unmount")
        # It says which program uses the mount, and cancels unless told otherwise.
        type_into("Unmount", "<Return>")
        ended("Unmount")
        assert os.path.ismount(mountpoint)
        choose("Letters: unlocked/Unmount")
        type_into("Unmount", "<alt+l>")
        ended("Unmount")
        choose("Letters: locked/Unlock")
    choose("Letters: unlocked/Unmount")
    until("the unmount", has_item("Letters: unmounted/Mount…"))
    until("the end of the mountpoint, which the mount made", lambda: not os.path.lexists(mountpoint))


def check_slots():
    """A new passphrase, and a slot for another person, with the keyboard."""
    choose("Letters: unmounted/Slots…")
    type_into("Slots: Letters", "<alt+h>")
    type_into("Change the passphrase: Letters", "<alt+p>", "correct horse", "<alt+n>", "correct house", "<alt+a>",
              "correct house", "<Return>")
    ended("Change the passphrase: Letters")
    type_into("Slots: Letters", "<alt+a>")
    type_into("Add a person: Letters", "<alt+f>", "Ben", "<Tab>", "<Down>", "<Down>", "<Down>", "<alt+t>",
              "bens passphrase", "<alt+a>", "bens passphrase", "<alt+y>", "correct house", "<alt+d>")
    ended("Add a person: Letters")
    type_into("Slots: Letters", "<Escape>")
    ended("Slots: Letters")
    slot = json.loads(run(vaultfs, "info", "--json", "Letters"))["slots"][-1]
    assert slot["label"] == "Ben" and slot["expires"], slot
    choose("Letters: unmounted/Verify…")
    enter("correct house", "Verify: Letters")
    type_into("Verified", "<Return>")
    ended("Verified")


def check_keyring(mountpoint):
    """A vault in the desktop's keyring, here a stand-in, is mounted without a question, unless the keyring fails."""
    os.mkdir(f"{home}/bin")
    os.symlink(pathlib.Path(__file__).with_name("tray_keyring.sh"), f"{home}/bin/vaultfs-keyring")
    for answer in ["correct house", "<alt+d>", "<Return>"], [], ["correct house", "<Return>"]:
        choose("Letters: unmounted/Mount…")
        if answer:
            type_into("Mount Letters", *answer)
        assert until("the folder", opened_folder) == mountpoint
        choose("Letters: unlocked/Unmount")
        until("the unmount", has_item("Letters: unmounted/Mount…"))
        if not answer:
            os.remove(f"{home}/keyring")


def check_damage(vault):
    """A changed byte in a file's ciphertext."""
    # The lock file has locked this vault too.
    until("the unlock", lambda: vault.has_state("unlocked"))
    file = pathlib.Path(vault.mountpoint, "file")
    file.write_bytes(os.urandom(100_000))
    vault.unmount()
    until("the end of the mount", has_item(f"{vault.item}: unmounted/Mount…"))
    stored = max((path for path in pathlib.Path(vault.path).rglob("*") if path.name != "vaultfs.log" and path.is_file()),
                 key=lambda path: path.stat().st_size)
    content = bytearray(stored.read_bytes())
    content[50_000] ^= 1
    stored.write_bytes(content)
    vault.mount()
    try:
        file.read_bytes()
        sys.exit("FAILED: the damage was not found")
    except OSError:
        pass
    notified(f"{vault.label} is damaged")
    until("the mark in the menu", lambda: any("damaged" in label for label in menu()))


def opened_folder():
    """The folder that the file manager, a stand-in, was started with. None if it was not."""
    try:
        text = opened.read_text()
    except FileNotFoundError:
        return None
    opened.unlink()
    return text.strip()


def check_list(vault):
    """From the list to files, by the menu and then by the keyboard in the window."""
    choose(f"{vault.item}: unmounted/Mount…")
    # It asks for the mountpoint: the vault was not mounted before.
    type_into(f"Mount {vault.item}", "<shift+Tab>", "<shift+Tab>", "<ctrl+a>", vault.mountpoint, "<Tab>", "<Tab>",
              "correct horse", "<Return>")
    assert until("the folder", opened_folder) == vault.mountpoint
    choose(f"{vault.item}: unlocked/Open Folder")
    assert until("the folder", opened_folder) == vault.mountpoint
    choose(f"{vault.item}: unlocked/Unmount")
    until("the unmount", has_item(f"{vault.item}: unmounted/Mount…"))
    run(tray)
    type_into("Your vaults", "<Return>")
    enter("correct horse", f"Mount {vault.item}")
    assert until("the folder", opened_folder) == vault.mountpoint
    # The focus stays on the vault, whose first button is now another.
    until("the mount in the menu", has_item(f"{vault.item}: unlocked/Lock"))
    type_into("Your vaults", "<Return>")
    assert until("the folder", opened_folder) == vault.mountpoint
    type_into("Your vaults", "<Tab>", "<Return>")
    notified(f"{vault.label} is locked")
    type_into("Your vaults", "<Return>")
    notified(f"{vault.label} is unlocked")
    vault.unmount()
    until("the unmount", has_item(f"{vault.item}: unmounted/Mount…"))
    type_into("Your vaults", "<Escape>")
    ended("Your vaults")


def check_moving(vault):
    """The window finds that a vault was moved, also back."""
    away = vault.path + ".away"
    for old, new, state in (vault.path, away, "absent"), (away, vault.path, "unmounted"):
        os.rename(old, new)
        run(tray)
        type_into("Your vaults", "<Tab>")
        until(f"the state {state}", has_item(f"{vault.item}: {state}/Remove from the List…"))
        type_into("Your vaults", "<Escape>")
        ended("Your vaults")


def check_forgetting(vault):
    choose(f"{vault.item}: unmounted/Remove from the List…")
    # Cancel has the focus.
    type_into("Remove from the list", "<Return>")
    ended("Remove from the list")
    choose(f"{vault.item}: unmounted/Remove from the List…")
    type_into("Remove from the list", "<Tab>", "<Return>")
    until("the end of the item", lambda: not any(label.startswith(vault.item) for label in menu()))
    assert "[\n\n]" in run(vaultfs, "list", "--json") and os.path.isdir(vault.path)


def check_broken_list():
    """The line of vaultfs, beside the mounts."""
    file = pathlib.Path(home, ".config/vaultfs/vaults.json")
    content = file.read_bytes()
    file.write_text("{")
    line = f"vaultfs: {file} is not a list of vaults: move it away: vaultfs then begins a new list"
    until("the line in the menu", lambda: line in menu(is_enabled=False))
    file.write_bytes(content)
    until("the list", lambda: line not in menu(is_enabled=False))


def check_picture():
    """Clicks on the icon in the panel. The menu's window is where a person would see it."""
    panel = until("the panel", lambda: windows("--onlyvisible", "--class", "trayer"))[0]
    run("xdotool", "mousemove", "--window", panel, "12", "12")
    before = take_picture()
    run("xdotool", "click", "1")
    opened = changed(before)
    # The first submenu.
    run("xdotool", "key", "Down", "Right")
    changed(opened).savev(screenshot, "png", [], [])
    run("xdotool", "key", "Escape", "Escape")


def main():
    # Without a window manager, a panel for the icon is enough.
    start("trayer", "--edge", "top", "--align", "left", "--widthtype", "request", "--height", "24")
    with notifications.open("w") as log:
        start("/usr/bin/python3", "-m", "dbusmock", "--session", "--template", "notification_daemon", stdout=log)
    check_windows()
    applet = start(tray)
    until("the empty menu", is_empty)
    made = os.path.join(home, "Letters.open")
    listed = Vault("Mail", "refuse")
    try:
        check_list(listed)
        check_moving(listed)
        check_forgetting(listed)
        check_broken_list()
        first, second = Vault("Private", "refuse"), Vault("Taxes", "forget")
        check_making(made)
        check_unmounting(made)
        check_slots()
        check_keyring(made)
        check_locks(first)
        check_passphrase(second)
        check_damage(first)
        check_picture()
        choose("Lock All")
        until("both locked", lambda: first.has_state("locked") and second.has_state("locked"))
        choose("Quit")
        assert applet.wait(SECONDS) == 0
    finally:
        for mountpoint in (*(os.path.join(home, name) for name in ("Mail", "Private", "Taxes")), made):
            subprocess.run([vaultfs, "unmount", mountpoint], stderr=subprocess.DEVNULL, timeout=SECONDS)


# The applet runs vaultfs.
os.environ["PATH"] = f"{home}/bin:{os.path.dirname(vaultfs)}:{os.environ['PATH']}"
passfile = os.path.join(home, "passfile")
pathlib.Path(passfile).write_text("correct horse")
os.chmod(passfile, 0o600)
notifications = pathlib.Path(home, "notifications")
# A file manager, as the one that the desktop has for folders.
opened, manager = pathlib.Path(home, "opened"), pathlib.Path(home, "manager")
manager.write_text(f"#!/bin/sh\necho \"$1\" >'{opened}.new' && mv '{opened}.new' '{opened}'\n")
manager.chmod(0o755)
for path, text in (
    (".local/share/applications/manager.desktop",
     f"[Desktop Entry]\nType=Application\nName=Manager\nMimeType=inode/directory;\nExec={manager} %f\n"),
    (".config/mimeapps.list", "[Default Applications]\ninode/directory=manager.desktop\n"),
):
    os.makedirs(os.path.dirname(os.path.join(home, path)), mode=0o700, exist_ok=True)
    pathlib.Path(home, path).write_text(text)
lock_file = pathlib.Path(os.environ["XDG_RUNTIME_DIR"], "vaultfs/device.lock")
try:
    main()
finally:
    for process in started:
        process.kill()
        process.wait()
