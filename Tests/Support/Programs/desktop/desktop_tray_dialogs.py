#!/usr/bin/python3
"""desktop_tray_dialogs.py EXAMPLES VAULTFS HOME PICTURES: the windows of vaultfs-tray.

It fills in their fields and presses their buttons itself. Run it with a display of its own. HOME is an empty directory.
The directory PICTURES gets pictures of the windows, light and dark. Each control in them must have a name for screen
readers, and each letter of a form one meaning.
"""

import importlib.machinery
import importlib.util
import os
import pathlib
import signal
import stat
import subprocess
import sys
import time

import gi

gi.require_version("Atk", "1.0")
gi.require_version("Gdk", "3.0")
gi.require_version("Gtk", "3.0")
from gi.repository import Atk, Gdk, GLib, Gtk

SECONDS = 20
SECRET = "correct horse battery"
examples, vaultfs, home, pictures = sys.argv[1:]
sys.dont_write_bytecode = True
sys.path.insert(0, examples)
os.environ["HOME"] = home
os.environ["XDG_CONFIG_HOME"] = os.path.join(home, ".config")
os.environ["PATH"] = f"{home}/bin:{os.path.dirname(vaultfs)}:{os.environ['PATH']}"
from vaultfs_tray import commands, forms, vaults

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
    settings = Gtk.Settings.get_default()
    for prefix in ("dark-", ""):
        settings.set_property("gtk-application-prefer-dark-theme", bool(prefix))
        # Some turns, so that the windows are drawn.
        drawn = ticks + 20
        while ticks < drawn:
            Gtk.main_iteration()
        root = Gdk.get_default_root_window()
        picture = Gdk.pixbuf_get_from_window(root, 0, 0, root.get_width(), root.get_height())
        picture.savev(os.path.join(pictures, f"{prefix}{name}.png"), "png", [], [])
    for window in Gtk.Window.list_toplevels():
        if window.get_visible() and isinstance(window, Gtk.Dialog):
            check_controls(window)


def tree(widget):
    yield widget
    if isinstance(widget, Gtk.Container):
        for child in widget.get_children():
            yield from tree(child)


def check_controls(window):
    letters = []
    for widget in filter(Gtk.Widget.get_visible, tree(window)):
        control = widget.get_accessible()
        if widget.get_can_focus():
            has_label = control.ref_relation_set().contains(Atk.RelationType.LABELLED_BY)
            assert control.get_name() or has_label, f"{window.get_title()}: {widget} has no name"
        if isinstance(widget, Gtk.Label) and widget.get_use_underline():
            letters.append(widget.get_mnemonic_keyval())
    letters = [letter for letter in letters if letter != Gdk.KEY_VoidSymbol]
    # In a list, the same letter moves the focus from one vault or slot to the next.
    if not hasattr(window, "grid"):
        assert len(letters) == len(set(letters)), f"{window.get_title()}: {[Gdk.keyval_name(each) for each in letters]}"


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


def check_selection(window):
    """No text becomes the selection, which every program can read, while Tab goes through the window."""
    clipboard = Gtk.Clipboard.get(Gdk.SELECTION_PRIMARY)
    focused = set()
    while window.get_focus() not in focused:
        focused.add(window.get_focus())
        window.child_focus(Gtk.DirectionType.TAB_FORWARD)
        assert clipboard.wait_for_text() is None, clipboard.wait_for_text()
    return focused


def check_note(note, expected):
    assert note == expected, f"{note!r} instead of {expected!r}"


def check_making():
    made = []
    form, closed = shown(forms.MakeDialog(lambda *result: made.append(result)))
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
    form, closed = shown(forms.MakeDialog(lambda *result: made.append(result)))
    form.name.set_text("Letters")
    check_note(press(form, SECRET, SECRET), f"vaultfs: a vault already exists: {vault}")
    form.response(Gtk.ResponseType.CANCEL)
    assert closed and len(made) == 1
    return made[0]


def check_key(path, key, warnings):
    assert path == vault and not warnings
    mounts = []
    dialog, closed = shown(forms.KeyDialog(path, key, ["vaultfs: warning: it is short"], mounts.append))
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
    assert any(isinstance(each, Gtk.Label) for each in check_selection(dialog))
    dialog.mount_button.clicked()
    assert closed and mounts == [vault]


def check_mounting():
    mounts = []
    form, closed = shown(forms.MountDialog(lambda *result: mounts.append(result)))
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
    assert closed and mounts == [(mountpoint, [])] and os.path.ismount(mountpoint)
    # The usual name is used now, and then a person has typed another.
    form, closed = shown(forms.MountDialog(lambda *result: mounts.append(result)))
    form.fill(vault)
    assert form.mountpoint.get_text() == "~/Letters.open"
    form.mountpoint.set_text("~/Private")
    form.vault.set_text("~/Other")
    assert form.mountpoint.get_text() == "~/Private"
    form.fill(vault)
    note = press(form, SECRET)
    assert note.startswith(f"vaultfs: {mountpoint} is mounted already"), note
    unmount()
    form.opener.set_text(SECRET)
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
    form, closed = shown(forms.ListedMountDialog(listed()[0], lambda *result: mounts.append(result)))
    check_note(press(form, "wrong"), f"vaultfs: {vault}: wrong passphrase")
    press(form, SECRET)
    assert closed and mounts == [(mountpoint, [])] and os.path.ismount(mountpoint)
    assert listed()[0]["state"] == "unlocked"
    unmount()
    form, closed = shown(forms.ListedMountDialog({"label": "Mail", "path": os.path.join(home, "Mail")}, None))
    assert form.mountpoint.get_text() == "~/Private" and form.get_focus() is form.opener
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
    labels = {
        entry.label: [label.replace("_", "") for part in entry.actions() for label, _ in part] for entry in entries}
    assert labels == {
        "Letters": ["Open Folder", "Lock", "Unmount", "Slots…", "Change the Passphrase…", "Verify…", "At Login…",
                    "Remove from the List…"],
        "Photos": ["Unlock", "Unmount", "Slots…", "Change the Passphrase…", "Verify…", "At Login…",
                   "Remove from the List…"],
        "Taxes": ["Mount…", "Slots…", "Change the Passphrase…", "Import a Folder…", "Verify…", "At Login…",
                  "Remove from the List…"],
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


def one():
    """The vault, as `list` shows it."""
    return next(each for each in listed() if each["path"] == vault)


def slots():
    outcome = commands.Command(commands.info(vault)).finish()
    assert outcome.failure is None, outcome
    return outcome.slots


def done(form, *passphrases):
    """Presses the button of a form that succeeds, and returns the outcome."""
    outcomes = []
    form, closed = shown(form)
    form.succeed = outcomes.append
    note = press(form, *passphrases)
    assert closed and outcomes, note
    return outcomes[0]


def check_recovery_key(key):
    """The recovery key mounts, and replaces the passphrase."""
    form, closed = shown(forms.ListedMountDialog(one(), lambda *_: None))
    form.opener.set_text(SECRET)
    form.key_box.set_active(True)
    assert form.opener.get_text() == "" and form.opener.get_visibility()
    assert "recovery key" in press(form, "nonsense")
    save_picture("recovery")
    form.opener.set_text(key)
    assert form.opener in check_selection(form)
    form.opener.select_region(0, -1)
    assert not form.opener.get_selection_bounds()
    press(form, key)
    assert closed and os.path.ismount(mountpoint)
    form = forms.ChangeDialog(one(), None)
    form.key_box.set_active(True)
    done(form, key, "another passphrase", "another passphrase")
    form, closed = shown(forms.ChangeDialog(one(), None))
    note = press(form, "another passphrase", SECRET, "correct house")
    check_note(note, "The two passphrases differ: type them again")
    check_note(press(form, SECRET, SECRET, SECRET), f"vaultfs: {vault}: wrong passphrase")
    save_picture("change")
    form.succeed = lambda _outcome: None
    press(form, "another passphrase", SECRET, SECRET)
    assert closed


def check_cancelling():
    """A cancel that comes after the end of a command does not hide its change."""
    outcomes = []
    form, closed = shown(forms.ChangeDialog(one(), outcomes.append))
    press_late(form, SECRET, SECRET, SECRET)
    until("the outcome", lambda: closed)
    assert [outcome.failure for outcome in outcomes] == [None]


def press_late(form, *passphrases):
    """Presses the button of a form, and Cancel when its command has ended, before the form is told."""
    for entry, passphrase in zip(form.secrets, passphrases, strict=True):
        entry.set_text(passphrase)
    form.button.clicked()
    deadline = time.monotonic() + SECONDS
    while form.command.process.returncode is None and time.monotonic() < deadline:
        time.sleep(0.01)
    form.response(Gtk.ResponseType.CANCEL)


def check_unlocking():
    subprocess.run([vaultfs, "lock", "--forget", mountpoint], check=True, timeout=SECONDS, stdout=subprocess.DEVNULL)
    form, closed = shown(forms.UnlockDialog(mountpoint))
    assert "wrong passphrase" in press(form, "wrong")
    save_picture("unlock")
    press(form, SECRET)
    assert closed and one()["state"] == "unlocked"


def check_slots():
    """Another person's slot, for a month, while the vault is mounted."""
    form, closed = shown(forms.AddSlotDialog(one(), lambda _outcome: None))
    assert "for whom" in press(form, "guest's passphrase", "guest's passphrase", SECRET)
    width = form.get_size()[0]
    form.label.set_text("x" * 200)
    assert "at most 100 bytes" in press(form, "guest's passphrase", "guest's passphrase", SECRET)
    assert form.get_size()[0] < width + 100, "a long word makes the window wide"
    form.label.set_text("-Ben")
    form.expiry.set_active_id("30d")
    save_picture("person")
    note = press(form, "guest's passphrase", "guest's passphrase", SECRET)
    assert closed, note
    window, closed = shown(vaults.SlotsWindow(Tray(), one()))
    window.show_slots(slots(), None, "2026-01-01T00:00:00Z")
    save_picture("slots")
    added = slots()[-1]
    assert added["label"] == "-Ben" and added["expires"] > added["created"], added
    calls.clear()
    buttons = {widget.get_accessible().get_name(): widget for widget in tree(window) if isinstance(widget, Gtk.Button)}
    buttons["Remove: Passphrase “-Ben”"].clicked()
    assert calls == [("remove_slot", window.vault, added)], calls
    window.show_slots([], "vaultfs: the line of vaultfs", "")
    check_note(window.note.get_text(), "vaultfs: the line of vaultfs")
    window.response(Gtk.ResponseType.CLOSE)
    assert closed
    done(forms.RemoveSlotDialog(one(), added, None), SECRET)
    done(forms.RemoveSlotDialog(one(), slots()[1], None), SECRET)
    last, = slots()
    form, closed = shown(forms.RemoveSlotDialog(one(), last, None))
    note = press(form, SECRET)
    assert "the vault can never be opened again" in note and "--force" not in note, note
    save_picture("remove")
    form.response(Gtk.ResponseType.CANCEL)


def check_keyring():
    """The box is there if vaultfs-keyring is, here a stand-in."""
    form = forms.ListedMountDialog(one(), lambda *_: None)
    assert not form.remember
    form.destroy()
    os.mkdir(f"{home}/bin")
    os.symlink(pathlib.Path(__file__).with_name("tray_keyring.sh"), f"{home}/bin/vaultfs-keyring")
    mounts = []
    form, closed = shown(forms.ListedMountDialog(one(), lambda *result: mounts.append(result)))
    assert not form.remember.get_active()
    form.remember.set_active(True)
    check_note(press(form, "wrong"), f"vaultfs: {vault}: wrong passphrase\nvaultfs-keyring: no slot was added")
    assert form.remember.get_active()
    save_picture("remember")
    note = press(form, SECRET)
    assert closed and mounts == [(mountpoint, [])] and os.path.ismount(mountpoint), note
    unmount()
    assert [commands.is_in_keyring(slot) for slot in slots()] == [False, True]
    # The keyring gets the secret, and then a cancel or a failure prevents the mount.
    done(forms.LeaveKeyringDialog(one(), slots()[1], None), SECRET)
    form, closed = shown(forms.ListedMountDialog(one(), None))
    form.remember.set_active(True)
    press_late(form, SECRET)
    until("the end of the first step", lambda: not form.command)
    note = form.note.get_text()
    assert "keyring opens the vault now" in note and not form.remember.get_active(), note
    assert not closed and not os.path.ismount(mountpoint)
    form.destroy()
    done(forms.LeaveKeyringDialog(one(), slots()[1], None), SECRET)
    form, closed = shown(forms.MountDialog(None))
    form.fill(vault)
    form.mountpoint.set_text(vault)
    form.remember.set_active(True)
    assert "mountpoint" in press(form, SECRET) and not form.remember.get_active()
    form.destroy()
    # The keyring opens the vault already.
    form, closed = shown(forms.ListedMountDialog(one(), lambda *result: mounts.append(result)))
    form.remember.set_active(True)
    note = press(form, SECRET)
    assert closed and len(mounts) == 2, note
    unmount()
    done(forms.LeaveKeyringDialog(one(), slots()[1], None), SECRET)
    assert [slot["label"] for slot in slots()] == [""]


def applet():
    """The applet, without its icon. Mounts are noted in `calls`."""
    loader = importlib.machinery.SourceFileLoader("applet", os.path.join(examples, "vaultfs-tray"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("applet", loader))
    loader.exec_module(module)
    tray = module.Tray()
    tray.show_mounted = lambda *arguments: calls.append(arguments)
    return tray


def opened_form(tray, kind):
    return until(f"a {kind.__name__}", lambda: next(
        (window for window in tray.windows.values() if isinstance(window, kind)), None))


def run(command, secret=SECRET, *second):
    outcome = commands.Command(command).finish(secret, *second)
    assert outcome.failure is None, outcome


def check_removing(tray):
    """Two slots with the label of this keyring, which opens only the second. Then a slot whose id is used again."""
    for _ in range(2):
        run(commands.enroll(vault))
        os.rename(f"{home}/keyring", f"{home}/lost")
    os.rename(f"{home}/lost", f"{home}/keyring")
    _, dead, live = slots()
    assert dead["label"] == live["label"]
    tray.show_slots(one())
    window = tray.windows[("slots", vault)]
    for slot, kind, left in (dead, forms.RemoveSlotDialog, [live]), (live, forms.LeaveKeyringDialog, []):
        key = slot["id"], slot["created"]
        until("the slot in the window", lambda: key in window.buttons)
        window.buttons[key].clicked()
        form = opened_form(tray, kind)
        note = press(form, SECRET)
        assert slots()[1:] == left, note
    assert not os.path.exists(f"{home}/keyring")
    run(commands.add_slot(vault, "Ben", "never"), SECRET, "ben's passphrase")
    ben = slots()[1]
    form, closed = shown(forms.RemoveSlotDialog(one(), ben, None))
    run(commands.remove_slot(vault, ben["id"]))
    run(commands.add_slot(vault, "Eva", "never"), SECRET, "eva's passphrase")
    eva = slots()[1]
    assert eva["id"] == ben["id"]
    assert "slots of the vault have changed" in press(form, SECRET) and slots()[1] == eva
    form.response(Gtk.ResponseType.CANCEL)
    window.emit("focus-in-event", Gdk.Event.new(Gdk.EventType.FOCUS_CHANGE))
    until("the other slot in the window", lambda: (eva["id"], eva["created"]) in window.buttons)
    window.destroy()
    run(commands.remove_slot(vault, eva["id"]))


def check_lost_keyring(tray):
    """Without its secret in the keyring, a vault asks for the passphrase to mount and to unlock. Remember mends that."""
    calls.clear()
    run(commands.enroll(vault))
    os.remove(f"{home}/keyring")
    tray.mount_listed(one())
    form = opened_form(tray, forms.ListedMountDialog)
    assert "no secret for this vault" in form.note.get_text() and not form.remember.get_active()
    form.remember.set_active(True)
    note = press(form, SECRET)
    assert calls == [(mountpoint, [])] and not tray.windows, note
    for is_lost in False, True:
        run(["vaultfs", "lock", "--forget", mountpoint])
        if is_lost:
            os.remove(f"{home}/keyring")
        tray.listed = listed()
        tray.unlock(Mount(mountpoint, "locked"))
        if is_lost:
            form = opened_form(tray, forms.UnlockDialog)
            assert "no secret for this vault" in form.note.get_text()
            press(form, SECRET)
        until("the end of the unlock", lambda: not tray.asking)
        assert one()["state"] == "unlocked" and not tray.windows
    unmount()
    for slot in slots()[1:]:
        run(commands.remove_slot(vault, slot["id"]))


def check_missing_program(tray):
    """While vaultfs is missing, as during an update, or gives no JSON, Mount… opens its window with the reason."""
    listed, path = one(), os.environ["PATH"]
    for program, reason in (None, "vaultfs cannot be run"), ("/bin/echo", "not JSON"), (vaultfs, ""):
        if program:
            os.symlink(program, f"{home}/bin/vaultfs")
        os.environ["PATH"] = f"{home}/bin"
        tray.mount_listed(listed)
        form = opened_form(tray, forms.ListedMountDialog)
        assert reason in form.note.get_text() and bool(reason) == bool(form.note.get_text()), form.note.get_text()
        form.destroy()
        if program:
            os.remove(f"{home}/bin/vaultfs")
    os.environ["PATH"] = path


def check_login(tray):
    """Check boxes show and switch units of systemd, for which a stand-in has a file each, and files of the desktop."""
    program = pathlib.Path(home, "bin/systemctl")
    program.write_text("""#!/bin/sh
        cd "$HOME" && for unit in "$@"; do :; done
        case $2 in
            is-enabled) [ -e "$unit" ] ;;
            enable) if [ -e broken ]; then echo "Failed to enable" >&2; exit 1; fi; touch "$unit" ;;
            disable) rm "$unit" ;;
        esac""")
    program.chmod(0o755)
    window, closed = shown(vaults.LoginDialog(tray, {"label": "My-1"}))
    boxes = [each for each in tree(window) if isinstance(each, Gtk.CheckButton)]
    until("the states", lambda: all(box.get_sensitive() for box in boxes))
    assert [box.get_active() for box in boxes] == [False, False, False]
    save_picture("login")
    for box, unit in zip(boxes, ("vaultfs@My\\x2d1.service", "vaultfs-agent.service"), strict=False):
        for is_on in (True, False):
            box.clicked()
            # The box shows the unit's state after each change, so it may follow the file.
            until(f"{unit}", lambda box=box, unit=unit, is_on=is_on:
                  pathlib.Path(home, unit).exists() == box.get_active() == is_on)
    autostart = pathlib.Path(home, ".config/autostart")
    assert [each.name for each in autostart.iterdir()] == ["vaultfs-at-login.desktop"]
    boxes[2].clicked()
    assert (autostart / "vaultfs-tray.desktop").read_text().startswith("[Desktop Entry]\n")
    # As a desktop's settings switch it off.
    with (autostart / "vaultfs-tray.desktop").open("a") as file:
        file.write("Hidden=true\n")
    assert not commands.tray_autostart().is_on()
    boxes[2].clicked()
    assert not (autostart / "vaultfs-tray.desktop").exists()
    boxes[0].clicked()
    check_note(window.note.get_text(), "Not remembered yet: until then, its mount at login will fail.")
    boxes[0].clicked()
    pathlib.Path(home, "broken").touch()
    boxes[0].clicked()
    until("the reason", lambda: window.note.get_text() == "Failed to enable" and not boxes[0].get_active())
    window.response(Gtk.ResponseType.CLOSE)
    assert closed
    program.unlink()


def check_import():
    """A folder, whose import is cancelled and goes on, and a damaged vault."""
    folder = pathlib.Path(home, "Photos")
    folder.mkdir()
    (folder / "picture").write_bytes(os.urandom(100_000))
    form, closed = shown(forms.ImportDialog(one(), None))
    assert "whole path of the folder" in press(form, SECRET)
    form.source.set_text("~/Photos")
    assert form.name.get_text() == "Photos"
    form.opener.set_text(SECRET)
    form.button.clicked()
    # Otherwise the command may end before the picture is made.
    process = form.command.process
    process.send_signal(signal.SIGSTOP)
    assert form.bar.get_visible()
    save_picture("importing")
    form.response(Gtk.ResponseType.CANCEL)
    process.send_signal(signal.SIGCONT)
    until("the end of the import", lambda: not form.command)
    check_note(form.note.get_text(), form.cancelled_note)
    form.destroy()
    form = forms.ImportDialog(one(), None)
    form.source.set_text("~/Photos")
    assert "imported" in done(form, SECRET).report[0]
    verified = done(forms.VerifyDialog(one(), None), SECRET)
    assert "no damage" in verified.report[-1], verified
    stored = max(pathlib.Path(vault).rglob("*"), key=lambda path: path.stat().st_size * (path.name != "vaultfs.log"))
    content = bytearray(stored.read_bytes())
    content[50_000] ^= 1
    stored.write_bytes(content)
    form, closed = shown(forms.VerifyDialog(one(), None))
    note = press(form, SECRET)
    assert "Photos/picture" in note and "of damage" in note, note
    save_picture("verify")
    form.response(Gtk.ResponseType.CANCEL)
    assert closed


def unmount():
    subprocess.run([vaultfs, "unmount", mountpoint], check=True, timeout=SECONDS, stdout=subprocess.DEVNULL)


calls = []
GLib.timeout_add(10, tick)
try:
    check_window()
    path, key, warnings = check_making()
    check_key(path, key, warnings)
    check_mounting()
    check_listed()
    check_recovery_key(key)
    check_cancelling()
    check_unlocking()
    check_slots()
    unmount()
    check_keyring()
    tray = applet()
    check_removing(tray)
    check_lost_keyring(tray)
    check_missing_program(tray)
    check_login(tray)
    check_import()
finally:
    subprocess.run([vaultfs, "unmount", mountpoint], stderr=subprocess.DEVNULL, timeout=SECONDS)
