#!/usr/bin/python3
"""desktop_tray_dialogs.py EXAMPLES VAULTFS HOME PICTURES: the windows in which vaultfs-tray makes and mounts vaults.

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
os.environ["PATH"] = f"{os.path.dirname(vaultfs)}:{os.environ['PATH']}"
from vaultfs_tray import dialogs

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


GLib.timeout_add(10, tick)
try:
    check_key(*check_making())
    check_mounting()
finally:
    subprocess.run([vaultfs, "unmount", mountpoint], stderr=subprocess.DEVNULL, timeout=SECONDS)
