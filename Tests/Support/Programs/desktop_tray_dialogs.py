#!/usr/bin/python3
"""desktop_tray_dialogs.py EXAMPLES VAULTFS HOME PICTURES: the windows in which vaultfs-tray lists, makes and mounts vaults.

It fills in their fields and presses their buttons itself. Run it with a display of its own. HOME is an empty directory.
The directory PICTURES gets pictures of the windows.
"""

import os
import stat
import subprocess
import sys
import time

import gi

gi.require_version("Gdk", "3.0")
gi.require_version("Gtk", "3.0")
from gi.repository import Gdk, GLib, Gtk

SECONDS = 20
SECRET = "correct horse battery"
examples, vaultfs, home, pictures = sys.argv[1:]
sys.dont_write_bytecode = True
sys.path.insert(0, examples)
os.environ["HOME"] = home
os.environ["XDG_CONFIG_HOME"] = os.path.join(home, ".config")
os.environ["PATH"] = f"{os.path.dirname(vaultfs)}:{os.environ['PATH']}"
from vaultfs_tray import commands, dialogs, vaults

vault, mountpoint = os.path.join(home, "Letters"), os.path.join(home, "Private")
# The turns of the main loop that a timer has caused.
ticks = 0


def tick():
    global ticks
    ticks += 1
    return True


def until(what, condition):
    deadline = time.monotonic() + SECONDS
    while not (result := condition()):
        if time.monotonic() > deadline:
            save_picture("failed")
            sys.exit(f"FAILED: waited {SECONDS} s for {what}")
        Gtk.main_iteration()
    return result


def save_picture(name):
    # Some turns, so that the windows are drawn.
    drawn = ticks + 20
    while ticks < drawn:
        Gtk.main_iteration()
    root = Gdk.get_default_root_window()
    picture = Gdk.pixbuf_get_from_window(root, 0, 0, root.get_width(), root.get_height())
    picture.savev(os.path.join(pictures, f"{name}.png"), "png", [], [])


def shown(dialog):
    """The dialog, and a list that has an entry once it is destroyed."""
    closed = []
    dialog.connect("destroy", closed.append)
    dialog.present()
    return dialog, closed


def press(form, *passphrases):
    """Fills in the passphrases and presses the button. Returns the note when vaultfs has ended."""
    for entry, passphrase in zip(form.secrets, passphrases, strict=True):
        entry.set_text(passphrase)
    form.button.clicked()
    assert not any(entry.get_text() for entry in form.secrets), "a passphrase stays in the window"
    until("the end of vaultfs", lambda: not form.command)
    return form.note.get_text()


def check_note(note, expected):
    assert note == expected, f"{note!r} instead of {expected!r}"


def check_making():
    made = []
    form, closed = shown(dialogs.MakeDialog(lambda *result: made.append(result)))
    check_note(press(form, SECRET, SECRET), "Type a name for the vault")
    assert form.get_focus() is form.name
    form.name.set_text("Letters")
    check_note(press(form, SECRET, "correct house"), "The two passphrases differ: type them again")
    assert form.get_focus() is form.first
    os.makedirs(os.path.join(vault, "directory"))
    check_note(press(form, SECRET, SECRET), f"vaultfs: directory is not empty: {vault}")
    assert (form.name.get_text(), form.folder.get_text()) == ("Letters", "~")
    save_picture("make")
    os.rmdir(os.path.join(vault, "directory"))
    before = ticks
    for entry in form.secrets:
        entry.set_text(SECRET)
    form.button.clicked()
    # A person cannot close it now: they would not see the recovery key.
    form.close()
    until("the vault", lambda: made)
    assert closed and ticks > before + 5, "the window did not react during the key derivation"
    form, closed = shown(dialogs.MakeDialog(lambda *result: made.append(result)))
    form.name.set_text("Letters")
    check_note(press(form, SECRET, SECRET), f"vaultfs: a vault already exists: {vault}")
    form.response(Gtk.ResponseType.CANCEL)
    assert closed and len(made) == 1
    return made[0]


def check_key(path, key, warnings):
    assert path == vault and not warnings
    mounts = []
    dialog, closed = shown(dialogs.KeyDialog(path, key, ["vaultfs: warning: it is short"], mounts.append))
    check_note(dialog.note.get_text(), "vaultfs: warning: it is short")
    # As the window manager does. GTK destroys a dialog after its answer.
    dialog.close()
    until("the advice", lambda: "before you close" in dialog.note.get_text())
    save_picture("unsaved")
    assert not closed, "the recovery key is lost"
    dialog.save(os.path.join(vault, "key"))
    assert "in the vault that it opens" in dialog.note.get_text() and not dialog.mount_button.get_sensitive()
    file = os.path.join(home, "key")
    dialog.save(file)
    check_note(dialog.note.get_text(), "Saved as ~/key")
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    subprocess.run([vaultfs, "verify", vault, "--recovery-key", "--passfile", file], check=True, timeout=SECONDS,
                   stdout=subprocess.DEVNULL)
    save_picture("key")
    dialog.mount_button.clicked()
    assert closed and mounts == [vault]


def check_mounting():
    warnings = []
    form, closed = shown(dialogs.MountDialog(warnings.append))
    assert "whole path of the vault" in press(form, SECRET)
    form.choose_folder("Vault", form.vault)
    chooser = next(window for window in Gtk.Window.list_toplevels() if isinstance(window, Gtk.FileChooserDialog))
    chooser.set_filename(vault)
    until("the chosen folder", lambda: chooser.get_filename() == vault)
    chooser.response(Gtk.ResponseType.ACCEPT)
    assert form.vault.get_text() == "~/Letters"
    assert form.mountpoint.get_text() == "~/Private"
    check_note(press(form, "wrong"), f"vaultfs: {vault}: wrong passphrase")
    assert (form.vault.get_text(), form.mountpoint.get_text()) == ("~/Letters", "~/Private")
    save_picture("mount")
    press(form, SECRET)
    assert closed and warnings == [[]] and os.path.ismount(mountpoint)
    # The usual name is used now, and then a person has typed another.
    form, closed = shown(dialogs.MountDialog(warnings.append))
    form.fill(vault)
    assert form.mountpoint.get_text() == "~/Letters.open"
    form.mountpoint.set_text("~/Private")
    form.vault.set_text("~/Other")
    assert form.mountpoint.get_text() == "~/Private"
    form.fill(vault)
    note = press(form, SECRET)
    assert note.startswith(f"vaultfs: {mountpoint} is mounted already"), note
    subprocess.run([vaultfs, "unmount", mountpoint], check=True, timeout=SECONDS, stdout=subprocess.DEVNULL)
    form.passphrase.set_text(SECRET)
    form.button.clicked()
    form.response(Gtk.ResponseType.CANCEL)
    until("the cancelled mount", lambda: closed)
    assert not os.path.lexists(mountpoint)


def listed():
    outcome = commands.Command(commands.known()).finish()
    assert outcome.failure is None, outcome
    return outcome.vaults


def check_listed():
    """A vault of the list needs only its passphrase, or also a mountpoint if it has had none."""
    mounts = []
    form, closed = shown(dialogs.ListedMountDialog(listed()[0], lambda *result: mounts.append(result)))
    check_note(press(form, "wrong"), f"vaultfs: {vault}: wrong passphrase")
    press(form, SECRET)
    assert closed and mounts == [(mountpoint, [])] and os.path.ismount(mountpoint)
    assert listed()[0]["state"] == "unlocked"
    subprocess.run([vaultfs, "unmount", mountpoint], check=True, timeout=SECONDS, stdout=subprocess.DEVNULL)
    form, closed = shown(dialogs.ListedMountDialog({"label": "Mail", "path": os.path.join(home, "Mail")}, None))
    assert form.mountpoint.get_text() == "~/Private" and form.get_focus() is form.passphrase
    form.mountpoint.set_text("Private")
    assert "whole path of the mountpoint" in press(form, SECRET)
    save_picture("mountpoint")
    form.response(Gtk.ResponseType.CANCEL)
    assert closed


class Mount:
    """A mount, as the applet knows it."""

    def __init__(self, mountpoint, state, damage=()):
        self.mountpoint, self.state, self.damage = mountpoint, state, damage
        self.name = commands.short(mountpoint)

    def lock(self):
        calls.append(("lock", self.mountpoint))

    def unlock(self):
        calls.append(("unlock", self.mountpoint))


class Tray:
    """Notes what the window asks the applet for."""

    def __getattr__(self, name):
        return lambda *arguments: calls.append((name, *arguments))


def check_window():
    states = {"Letters": "unlocked", "Photos": "locked", "Taxes": "unmounted", "Stick": "absent", "Work": "dead"}
    objects = [{"label": label, "path": f"{home}/{label}", "state": state} for label, state in states.items()]
    objects[4]["mountedAt"] = "/srv/work"
    long = "/srv/" + "a long way " * 12
    mounts = [Mount(mountpoint, "unlocked"), Mount("/media/Photos", "locked", ["IMG_1.jpg: bad tag"]), None, None, None]
    entries = [vaults.Entry(Tray(), mount, one) for mount, one in zip(mounts, objects, strict=True)]
    entries.append(vaults.Entry(Tray(), Mount(long, "locking")))
    window, closed = shown(vaults.VaultsWindow(Tray()))
    window.show_entries(entries, None, True)
    titles = [entry.title for entry in entries]
    assert titles[:3] == ["Letters: unlocked", "Photos: locked  ⚠ damaged", "Taxes: unmounted"], titles
    labels = {entry.label: [label for part in entry.actions() for label, _ in part] for entry in entries}
    assert labels == {
        "Letters": ["Open Folder", "Lock", "Unmount", "Remove from the List…"],
        "Photos": ["Unlock", "Unmount", "Remove from the List…"],
        "Taxes": ["Mount…", "Remove from the List…"],
        "Stick": ["Remove from the List…"],
        "Work": ["Unmount", "Remove from the List…"],
        long: ["Lock", "Unmount"],
    }, labels
    names = [button.get_accessible().get_name() for button in window.buttons.values()]
    assert names[:4] == ["Open Folder: Letters", "Lock: Letters", "More: Letters", "Unlock: Photos"], names
    assert all(button.get_can_focus() for button in window.buttons.values())
    save_picture("vaults")
    buttons = {button.get_accessible().get_name(): button for button in window.buttons.values()}
    buttons["Lock: Letters"].clicked()
    buttons["Unlock: Photos"].clicked()
    buttons["Open Folder: Letters"].clicked()
    buttons["Mount…: Taxes"].clicked()
    assert calls == [
        ("lock", mountpoint), ("unlock", "/media/Photos"), ("open", mountpoint), ("mount_listed", objects[2])], calls
    # The focus stays on the vault, whose buttons are now others.
    buttons["Lock: Letters"].grab_focus()
    mounts[0].state = "locked"
    window.show_entries([vaults.Entry(Tray(), mounts[0], objects[0]), *entries[1:]], None, True)
    assert window.get_focus().get_accessible().get_name() == "Unlock: Letters"
    buttons = {button.get_accessible().get_name(): button for button in window.buttons.values()}
    buttons["Mount…: Taxes"].grab_focus()
    entries[2] = vaults.Entry(Tray(), Mount("/media/Taxes", "unlocked"), objects[2])
    window.show_entries([vaults.Entry(Tray(), mounts[0], objects[0]), *entries[1:]], None, True)
    assert window.get_focus().get_accessible().get_name() == "Open Folder: Taxes"
    buttons = {button.get_accessible().get_name(): button for button in window.buttons.values()}
    buttons["More: Letters"].clicked()
    save_picture("more")
    buttons["More: Letters"].get_popup().popdown()
    line = f"vaultfs: {home}/.config/vaultfs/vaults.json is not a list of vaults: move it away: vaultfs then begins a new list"
    window.show_entries([entries[-1]], line, True)
    check_note(window.note.get_text(), line)
    save_picture("broken")
    many = [vaults.Entry(Tray(), None, {"label": f"Vault {n}", "path": "/v", "state": "unmounted"}) for n in range(20)]
    window.show_entries(many, None, False)
    save_picture("many")
    list(window.buttons.values())[-1].grab_focus()
    until("the end of the list", lambda: window.grid.get_focus_vadjustment().get_value() > 0)
    window.show_entries([], None, False)
    save_picture("empty")
    assert not window.lock_button.get_sensitive()
    window.close()
    until("the end of the window", lambda: closed)


calls = []
GLib.timeout_add(10, tick)
try:
    check_window()
    check_key(*check_making())
    check_mounting()
    check_listed()
finally:
    subprocess.run([vaultfs, "unmount", mountpoint], stderr=subprocess.DEVNULL, timeout=SECONDS)
