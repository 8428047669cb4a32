#!/usr/bin/python3
"""desktop_tray.py TRAY VAULTFS HOME SCREENSHOT: vaultfs-tray, used by its menu, its windows and its notifications.

Run it with a display and a session bus of its own (scripts/system/desktop). HOME is an empty directory. The file
SCREENSHOT gets a picture of the open menu. Pictures of the windows are made beside it.
"""

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
        self.label, self.policy = f"~/{name}", policy
        os.mkdir(self.mountpoint)
        run(vaultfs, "init", self.path, "--passfile", passfile, "--scrypt-logn", "10", "--no-recovery-key")

    def mount(self):
        run(vaultfs, "mount", self.path, self.mountpoint, "--passfile", passfile, "--on-lock", self.policy)

    def unmount(self):
        run(vaultfs, "unmount", self.mountpoint)

    def has_state(self, state):
        return any(line.replace(",", " ").split()[:2] == ["state", state] for line in run(vaultfs, "status", self.mountpoint).split("\n"))


def items(layout, above=""):
    """The items of a menu by their labels: `~/Private: locked/Unlock`."""
    number, properties, below = layout
    label = above + properties.get("label", "").replace("_", "")
    if properties.get("enabled", True):
        yield label, number
    for item in below:
        yield from items(item, label + "/" if number else "")


def menu():
    layout = call(
        "vaultfs.Tray", MENU, "com.canonical.dbusmenu", "GetLayout", GLib.Variant("(iias)", (0, -1, [])),
        "(u(ia{sv}av))").unpack()[1]
    return dict(items(layout))


def choose(label):
    number = until(f"the item '{label}'", lambda: menu().get(label))
    call("vaultfs.Tray", MENU, "com.canonical.dbusmenu", "Event",
         GLib.Variant("(isvu)", (number, "clicked", GLib.Variant("i", 0), 0)))


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
    until("the mount in the menu", has_item(f"{vault.label}: unlocked/Lock"))
    choose(f"{vault.label}: unlocked/Lock")
    notified(f"{vault.label} is locked")
    assert vault.has_state("locked")
    choose(f"{vault.label}: locked/Unlock")
    notified(f"{vault.label} is unlocked")
    assert vault.has_state("unlocked")


def check_passphrase(vault):
    vault.mount()
    choose(f"{vault.label}: unlocked/Lock")
    notified(f"{vault.label} is locked")
    choose(f"{vault.label}: locked/Unlock")
    enter("wrong", "Unlock a vault")
    enter("correct horse", "Wrong passphrase")
    notified(f"{vault.label} is unlocked")
    ended("Wrong passphrase")
    # A lock file refuses the unlock, with its reason.
    lock_file.touch()
    notified(f"{vault.label} is locked", 2)
    choose(f"{vault.label}: locked/Unlock")
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
        subprocess.run(["/usr/bin/python3", programs / f"{name}.py", *arguments], check=True, timeout=3 * SECONDS)


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
    until("the mount in the menu", has_item("~/Letters.open: unlocked/Lock"))
    assert os.path.ismount(mountpoint)


def check_unmounting(mountpoint):
    with open(os.path.join(mountpoint, "file"), "w"):
        choose("~/Letters.open: unlocked/Unmount")
        # It says which program uses the mount.
        type_into("Unmount", "<Return>")
        ended("Unmount")
        assert os.path.ismount(mountpoint)
    choose("~/Letters.open: unlocked/Unmount")
    until("the unmount", lambda: not any(label.startswith("~/Letters.open") for label in menu()))
    until("the end of the mountpoint, which the mount made", lambda: not os.path.lexists(mountpoint))


def check_damage(vault):
    """A changed byte in a file's ciphertext."""
    # The lock file has locked this vault too.
    until("the unlock", lambda: vault.has_state("unlocked"))
    file = pathlib.Path(vault.mountpoint, "file")
    file.write_bytes(os.urandom(100_000))
    vault.unmount()
    until("the end of the mount", lambda: not any(label.startswith(vault.label) for label in menu()))
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
    first, second = Vault("Private", "refuse"), Vault("Taxes", "forget")
    made = os.path.join(home, "Letters.open")
    try:
        check_making(made)
        check_unmounting(made)
        check_locks(first)
        check_passphrase(second)
        check_damage(first)
        check_picture()
        # Another start finds the first.
        run(tray)
        choose("Lock All")
        until("both locked", lambda: first.has_state("locked") and second.has_state("locked"))
        choose("Quit")
        assert applet.wait(SECONDS) == 0
    finally:
        for mountpoint in (first.mountpoint, second.mountpoint, made):
            subprocess.run([vaultfs, "unmount", mountpoint], stderr=subprocess.DEVNULL, timeout=SECONDS)


# The applet runs vaultfs.
os.environ["PATH"] = f"{os.path.dirname(vaultfs)}:{os.environ['PATH']}"
passfile = os.path.join(home, "passfile")
pathlib.Path(passfile).write_text("correct horse")
os.chmod(passfile, 0o600)
notifications = pathlib.Path(home, "notifications")
lock_file = pathlib.Path(os.environ["XDG_RUNTIME_DIR"], "vaultfs/device.lock")
try:
    main()
finally:
    for process in started:
        process.kill()
        process.wait()
