"""The windows in which vaults are made and mounted."""

import os
import threading

from gi.repository import GLib, Gtk

from vaultfs_tray import commands

SPACING = 8
MARGIN = 12


def sentence(text=""):
    return Gtk.Label(label=text, xalign=0, wrap=True, max_width_chars=56)


def passphrase_entry():
    # A pasted line may have a line break at its end, which nobody sees.
    return Gtk.Entry(visibility=False, truncate_multiline=True, activates_default=True, width_chars=36,
                     input_purpose=Gtk.InputPurpose.PASSWORD)


def shown(text):
    """Text as GTK takes it. A path in it need not be UTF-8."""
    return os.fsencode(text).decode(errors="replace")


def shown_path(path):
    return shown(commands.short(path))


def run(command, done, secret=""):
    """Calls `done` with the outcome when the command has ended. The main loop runs meanwhile: a key derivation takes
    about a second, and a store may not answer.
    """
    def wait():
        GLib.idle_add(done, command.finish(secret))

    threading.Thread(target=wait, daemon=True).start()


class Dialog(Gtk.Dialog):
    """A window with a line for problems. It closes only when `respond` destroys it."""

    def __init__(self, title):
        super().__init__(title=title, icon_name="vaultfs", resizable=False)
        self.note = sentence()
        self.note.set_no_show_all(True)
        area = self.get_content_area()
        area.set_border_width(MARGIN)
        area.set_spacing(SPACING)
        self.connect("response", self.respond)
        # Otherwise GTK destroys it when a person closes it.
        self.connect("delete-event", lambda *_: True)

    def set_note(self, text):
        self.note.set_text(shown(text))
        self.note.set_visible(bool(text))

    def choose_file(self, title, action, label, use):
        """Makes a file dialog. It calls `use` with the path that is chosen."""
        def respond(chooser, response):
            path = chooser.get_filename()
            chooser.destroy()
            if response == Gtk.ResponseType.ACCEPT and path:
                use(path)

        chooser = Gtk.FileChooserDialog(title=title, action=action, transient_for=self, modal=True)
        chooser.add_buttons("Cancel", Gtk.ResponseType.CANCEL, label, Gtk.ResponseType.ACCEPT)
        chooser.set_default_response(Gtk.ResponseType.ACCEPT)
        chooser.connect("response", respond)
        return chooser


class Form(Dialog):
    """Fields, and a button that runs vaultfs. After a failure all fields are as they were, except the passphrases."""

    def __init__(self, title, action, progress, can_cancel):
        super().__init__(title)
        self.progress = progress
        self.can_cancel = can_cancel
        self.command = None
        self.is_cancelled = False
        self.entries = []
        self.secrets = []
        self.cancel_button = self.add_button("Cancel", Gtk.ResponseType.CANCEL)
        self.button = self.add_button(action, Gtk.ResponseType.OK)
        self.set_default_response(Gtk.ResponseType.OK)
        self.fields = Gtk.Grid(row_spacing=SPACING, column_spacing=MARGIN)
        self.get_content_area().add(self.fields)
        self.get_content_area().add(self.note)

    def add_text(self, label, text="", entry=None):
        entry = entry or Gtk.Entry(text=text, activates_default=True, width_chars=36)
        row = len(self.entries)
        self.fields.attach(Gtk.Label(label=label, xalign=1, mnemonic_widget=entry), 0, row, 1, 1)
        self.fields.attach(entry, 1, row, 1, 1)
        self.entries.append(entry)
        return entry

    def add_folder(self, label, text=""):
        entry = self.add_text(label, text)
        button = Gtk.Button(label="Choose…")
        button.connect("clicked", lambda _button: self.choose_folder(label, entry))
        self.fields.attach(button, 2, len(self.entries) - 1, 1, 1)
        return entry

    def choose_folder(self, label, entry):
        chooser = self.choose_file(
            label, Gtk.FileChooserAction.SELECT_FOLDER, "Choose", lambda path: entry.set_text(shown_path(path)))
        folder = os.path.expanduser(entry.get_text() or "~")
        # A mountpoint may not exist yet.
        chooser.set_current_folder(folder if os.path.isdir(folder) else os.path.dirname(folder))
        chooser.show()

    def add_secret(self, label):
        entry = self.add_text(label, entry=passphrase_entry())
        self.secrets.append(entry)
        return entry

    def respond(self, _dialog, response):
        if response == Gtk.ResponseType.OK:
            self.submit()
        elif not self.command:
            self.destroy()
        elif self.can_cancel:
            self.is_cancelled = True
            self.command.cancel()

    def submit(self):
        try:
            arguments, secret = self.read()
            self.command = commands.Command(arguments)
        except commands.Refusal as refusal:
            self.refuse(str(refusal))
            return
        self.set_busy(True)
        self.set_note(self.progress)
        run(self.command, self.end, secret)

    def end(self, outcome):
        self.command = None
        if self.is_cancelled:
            self.destroy()
        elif outcome.failure:
            self.refuse(outcome.failure)
        else:
            self.succeed(outcome)
            self.destroy()

    def set_busy(self, is_busy):
        for entry in self.secrets:
            entry.set_text("")
        self.fields.set_sensitive(not is_busy)
        self.button.set_sensitive(not is_busy)
        self.cancel_button.set_sensitive(not is_busy or self.can_cancel)

    def refuse(self, reason):
        self.set_busy(False)
        self.set_note(reason)
        # The passphrases are empty, and perhaps the field of the problem, which is then above them.
        next(entry for entry in self.entries if not entry.get_text()).grab_focus()


class MakeDialog(Form):
    """Makes a vault. `made` is called with its path, its recovery key and warnings."""

    def __init__(self, made):
        # A cancel at the very end would leave a vault whose recovery key nobody has seen.
        super().__init__("Make a vault", "Make", "Making the vault…", can_cancel=False)
        self.made = made
        self.name = self.add_text("Name")
        self.folder = self.add_folder("In the folder", "~")
        self.first = self.add_secret("Passphrase")
        self.second = self.add_secret("The same again")
        self.show_all()

    @property
    def may_close(self):
        return not self.command

    def read(self):
        self.vault = commands.new_vault(self.folder.get_text(), self.name.get_text())
        return commands.init(self.vault), commands.new_passphrase(self.first.get_text(), self.second.get_text())

    def succeed(self, outcome):
        self.made(self.vault, outcome.recovery_key, outcome.notices)


class KeyDialog(Dialog):
    """Shows the recovery key of a new vault, until it is saved or a person says that they have it."""

    def __init__(self, vault, key, warnings, mount):
        super().__init__("Recovery key")
        self.vault = vault
        self.key = key
        self.mount = mount
        self.save_button = self.add_button("Save…", Gtk.ResponseType.APPLY)
        self.mount_button = self.add_button("Mount the Vault…", Gtk.ResponseType.OK)
        self.close_button = self.add_button("Close", Gtk.ResponseType.CLOSE)
        text = Gtk.Label(label=key, selectable=True, wrap=True, max_width_chars=45)
        text.get_style_context().add_class(Gtk.STYLE_CLASS_MONOSPACE)
        self.kept = Gtk.CheckButton(label="I have kept the recovery key")
        self.kept.connect("toggled", lambda _kept: self.update())
        area = self.get_content_area()
        for widget in (
            sentence(f"The vault {shown_path(vault)} is made. This is its recovery key, which opens it if the "
                     "passphrase is lost:"),
            text,
            sentence("Whoever has it can open the vault. Write it down or save it, and keep it elsewhere. It is not "
                     "shown again. Without the passphrase and the recovery key, nothing opens the vault."),
            self.kept, self.note,
        ):
            area.add(widget)
        self.set_note("\n".join(warnings))
        self.update()
        self.show_all()
        # GTK selects the text of a label that gets the focus, and every program can read the selection.
        self.save_button.grab_focus()

    @property
    def may_close(self):
        return self.kept.get_active()

    def update(self):
        self.mount_button.set_sensitive(self.may_close)
        self.close_button.set_sensitive(self.may_close)

    def respond(self, _dialog, response):
        if response == Gtk.ResponseType.APPLY:
            self.choose_key_file()
        elif not self.may_close:
            self.set_note("Save the recovery key, or write it down, before you close this window")
        else:
            self.destroy()
            if response == Gtk.ResponseType.OK:
                self.mount(self.vault)

    def choose_key_file(self):
        folder, name = os.path.split(self.vault)
        chooser = self.choose_file("Save the recovery key", Gtk.FileChooserAction.SAVE, "Save", self.save)
        chooser.set_current_folder(folder)
        chooser.set_current_name(shown(f"{name} recovery key.txt"))
        chooser.show()

    def save(self, file):
        try:
            commands.save_key(self.key, file, self.vault)
        except commands.Refusal as refusal:
            self.set_note(str(refusal))
            return
        self.kept.set_active(True)
        self.set_note(f"Saved as {commands.short(file)}")


class MountDialog(Form):
    """Mounts a vault. `mounted` is called with warnings."""

    def __init__(self, mounted):
        super().__init__("Mount a vault", "Mount", "Mounting…", can_cancel=True)
        self.mounted = mounted
        self.vault = self.add_folder("Vault")
        self.mountpoint = self.add_text("Mountpoint")
        self.passphrase = self.add_secret("Passphrase")
        self.suggestion = ""
        self.vault.connect("changed", lambda _vault: self.suggest())
        self.show_all()

    def suggest(self):
        """Fills in the mountpoint, unless a person has."""
        if self.mountpoint.get_text() == self.suggestion:
            vault = os.path.expanduser(self.vault.get_text())
            self.suggestion = shown_path(commands.suggested_mountpoint(vault)) if os.path.isabs(vault) else ""
            self.mountpoint.set_text(self.suggestion)

    def fill(self, vault):
        self.vault.set_text(shown_path(vault))
        self.passphrase.grab_focus()

    def read(self):
        vault = commands.typed_path(self.vault.get_text(), "vault")
        mountpoint = commands.typed_path(self.mountpoint.get_text(), "mountpoint")
        return commands.mount(vault, mountpoint), commands.passphrase(self.passphrase.get_text())

    def succeed(self, outcome):
        self.mounted(outcome.notices)


class ListedMountDialog(Form):
    """Mounts a vault of the list. `mounted` is called with its mountpoint and warnings."""

    def __init__(self, vault, mounted):
        super().__init__(f"Mount {vault['label']}", "Mount", "Mounting…", can_cancel=True)
        self.label = vault["label"]
        self.remembered = vault.get("mountpoint")
        self.mounted = mounted
        self.mountpoint = None
        if not self.remembered:
            area = self.get_content_area()
            meaning = sentence("The mountpoint is an empty or new folder, in which the vault's files appear while it is mounted.")
            area.add(meaning)
            area.reorder_child(meaning, 0)
            self.mountpoint = self.add_folder("Mountpoint", shown_path(commands.suggested_mountpoint(vault["path"])))
        self.passphrase = self.add_secret("Passphrase")
        self.passphrase.grab_focus()
        self.show_all()

    def read(self):
        mountpoint = commands.typed_path(self.mountpoint.get_text(), "mountpoint") if self.mountpoint else None
        self.folder = mountpoint or self.remembered
        return commands.mount(self.label, mountpoint), commands.passphrase(self.passphrase.get_text())

    def succeed(self, outcome):
        self.mounted(self.folder, outcome.notices)
