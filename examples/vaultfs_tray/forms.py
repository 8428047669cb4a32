"""The windows that run one command of vaultfs for a vault."""

import os

from gi.repository import Gtk

from vaultfs_tray import commands
from vaultfs_tray.dialogs import Dialog, Form, sentence, shown, shown_path

MOUNTPOINT = "The mountpoint is an empty or new folder, in which the vault's files appear while it is mounted."


class MakeDialog(Form):
    """Makes a vault. `made` is called with its path, its recovery key and warnings."""

    # A cancel at the very end would leave a vault whose recovery key nobody has seen.
    can_cancel = False

    def __init__(self, made):
        super().__init__("Make a vault", "_Make", "Making the vault…")
        self.made = made
        self.name = self.add_text("_Name")
        self.folder = self.add_folder("In the _folder", "~")
        self.first = self.add_secret("_Passphrase")
        self.second = self.add_secret("The same _again")
        self.show_all()

    def read(self):
        self.vault = commands.new_vault(self.folder.get_text(), self.name.get_text())
        return [(commands.init(self.vault), commands.new_passphrase(self.first.get_text(), self.second.get_text()))]

    def succeed(self, outcome):
        self.made(self.vault, outcome.recovery_key, outcome.notices)


class KeyDialog(Dialog):
    """Shows the recovery key of a new vault, until it is saved or a person says that they have it."""

    def __init__(self, vault, key, warnings, mount):
        super().__init__("Recovery key")
        self.vault = vault
        self.key = key
        self.mount = mount
        self.save_button = self.add_button("_Save…", Gtk.ResponseType.APPLY)
        self.mount_button = self.add_button("_Mount the Vault…", Gtk.ResponseType.OK)
        self.close_button = self.add_button("_Close", Gtk.ResponseType.CLOSE)
        text = Gtk.Label(label=key, selectable=True, wrap=True, max_width_chars=45)
        text.get_style_context().add_class(Gtk.STYLE_CLASS_MONOSPACE)
        self.kept = Gtk.CheckButton(label="I have _kept the recovery key", use_underline=True)
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
        # Otherwise GTK selects the text of a label that gets the focus, and every program can read the selection.
        self.get_settings().set_property("gtk-label-select-on-focus", False)
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
        chooser = self.choose_file("Save the recovery key", Gtk.FileChooserAction.SAVE, "_Save", self.save)
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


class MountForm(Form):
    """A form that mounts a vault, and can make the desktop's keyring open it from then on."""

    remember = None

    def add_remember(self):
        if commands.has_keyring():
            self.remember = self.add_check("Remember in this _desktop's keyring")

    def succeed(self, outcome):
        self.mounted(self.folder, outcome.notices)

    def check(self, outcome):
        # The next attempt has only to mount: the keyring need not be changed again.
        self.remember.set_active(False)
        return "This desktop's keyring opens the vault now. The vault is not mounted."

    def steps_to_mount(self, vault, path, mountpoint):
        """The commands for a vault, by its path or label, whose directory is at `path`."""
        if not (self.remember and self.remember.get_active()):
            return [(commands.mount(vault, mountpoint, self.opening), self.secret)]
        # The mount shows that the keyring opens the vault.
        by_keyring = commands.mount(vault, mountpoint, commands.KEYRING)
        return [(commands.enroll(path, self.opening), self.secret), (by_keyring,)]


class MountDialog(MountForm):
    """Mounts a vault, which may be new to the list. `mounted` is called with its mountpoint and warnings."""

    def __init__(self, mounted):
        super().__init__("Mount a vault", "_Mount", "Mounting…")
        self.mounted = mounted
        self.add_sentence(f"To restore a backup, choose the copy of the vault's directory. {MOUNTPOINT}")
        self.vault = self.add_folder("_Vault")
        self.mountpoint = self.add_text("M_ountpoint")
        self.add_opener()
        self.add_remember()
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
        self.opener.grab_focus()

    def read(self):
        vault = commands.typed_path(self.vault.get_text(), "vault")
        self.folder = commands.typed_path(self.mountpoint.get_text(), "mountpoint")
        return self.steps_to_mount(vault, vault, self.folder)


class ListedMountDialog(MountForm):
    """Mounts a vault of the list. `mounted` is called with its mountpoint and warnings."""

    def __init__(self, vault, mounted):
        super().__init__(f"Mount {vault['label']}", "_Mount", "Mounting…")
        self.listed = vault
        self.mounted = mounted
        self.mountpoint = None
        if not vault.get("mountpoint"):
            self.add_sentence(MOUNTPOINT)
            self.mountpoint = self.add_folder("M_ountpoint", shown_path(commands.suggested_mountpoint(vault["path"])))
        self.add_opener().grab_focus()
        self.add_remember()
        self.show_all()

    def read(self):
        mountpoint = commands.typed_path(self.mountpoint.get_text(), "mountpoint") if self.mountpoint else None
        self.folder = mountpoint or self.listed["mountpoint"]
        return self.steps_to_mount(self.listed["label"], self.listed["path"], mountpoint)


class UnlockDialog(Form):
    """Unlocks a vault that has forgotten its keys."""

    def __init__(self, mountpoint):
        super().__init__("Unlock a vault", "_Unlock", "Unlocking…")
        self.mountpoint = mountpoint
        self.add_opener(f"_Passphrase of {shown_path(mountpoint).replace('_', '__')}")
        self.show_all()

    def read(self):
        return [(commands.unlock(self.mountpoint, self.opening), self.secret)]

    def succeed(self, outcome):
        pass


class VaultForm(Form):
    """A form for a vault of the list, by its path. `done` is called with the outcome."""

    def __init__(self, vault, done, title, action, progress):
        super().__init__(f"{title}: {shown(vault['label'])}", action, progress)
        self.vault = vault["path"]
        self.succeed = done


class ChangeDialog(VaultForm):
    """Changes a passphrase."""

    def __init__(self, vault, done):
        super().__init__(vault, done, "Change the passphrase", "C_hange", "Changing the passphrase…")
        self.add_sentence("The old passphrase still opens older copies of the vault, such as backups.")
        self.add_opener("_Passphrase now")
        self.first = self.add_secret("_New passphrase")
        self.second = self.add_secret("The same _again")
        self.show_all()

    def read(self):
        new = commands.new_passphrase(self.first.get_text(), self.second.get_text())
        return [(commands.change(self.vault, self.opening), self.secret, new)]


class AddSlotDialog(VaultForm):
    """Adds a passphrase for another person."""

    def __init__(self, vault, done):
        super().__init__(vault, done, "Add a person", "A_dd", "Adding the slot…")
        self.add_sentence("The person opens the vault with a passphrase of their own. Anybody who can read the vault's "
                          "directory can read for whom it is.")
        self.label = self.add_text("_For")
        self.expiry = self.add_choice("_Expires", commands.EXPIRIES)
        self.first = self.add_secret("_Their passphrase")
        self.second = self.add_secret("The same _again")
        self.add_opener("_Your passphrase")
        self.show_all()

    def read(self):
        label = commands.person(self.label.get_text())
        theirs = commands.new_passphrase(self.first.get_text(), self.second.get_text())
        return [(commands.add_slot(self.vault, label, self.expiry.get_active_id(), self.opening), self.secret, theirs)]


class SlotForm(VaultForm):
    """Removes a slot of `info`, if the vault still has it."""

    def __init__(self, vault, slot, done, title, text):
        super().__init__(vault, done, title, "Re_move", "Removing the slot…")
        self.slot = slot
        self.add_sentence(text)
        self.add_opener("_Your passphrase")
        self.show_all()

    def read(self):
        return [(commands.info(self.vault),), (self.removal(), self.secret)]

    def check(self, outcome):
        if not commands.is_still(self.slot, outcome.slots):
            raise commands.Refusal("The slots of the vault have changed: close this window, and choose the slot again")
        return ""

    def failure(self, outcome):
        # The rest of a line is advice to force it, for a command line.
        return "\n".join(line.partition("; --force")[0] for line in outcome.failure.splitlines())


class RemoveSlotDialog(SlotForm):
    """Removes a slot whose secret this desktop's keyring does not have."""

    def __init__(self, vault, slot, done):
        super().__init__(vault, slot, done, "Remove a slot", (
            f"{commands.slot_title(slot)}, made {slot['created'][:10]}: whoever has its secret and a copy of the vault "
            "from before, such as a backup, can still open the vault, until 'vaultfs rekey' encrypts it anew."))

    def removal(self):
        return commands.remove_slot(self.vault, self.slot["id"], self.opening)


class LeaveKeyringDialog(SlotForm):
    """Removes a slot and its secret, which is in the desktop's keyring."""

    def __init__(self, vault, slot, done):
        super().__init__(vault, slot, done, "Remove from the keyring", (
            "The keyring's secret, and the slot that it opens, are removed. Then a mount asks for the passphrase."))

    def removal(self):
        return commands.leave_keyring(self.vault, self.opening)


class LongForm(VaultForm):
    """A command that may take hours. If it fails, its lines name what it has found."""

    has_progress = True

    def failure(self, outcome):
        found = [line for line in outcome.report if line != outcome.failure]
        return "\n".join([*commands.shortened(found), outcome.failure])


class ImportDialog(LongForm):
    """Imports a folder."""

    cancelled_note = "The import was interrupted. Import the same folder again to go on where it was."

    def __init__(self, vault, done):
        super().__init__(vault, done, "Import a folder", "_Import", "Importing…")
        self.add_sentence("The folder's files are encrypted into the vault, and stay where they are, too.")
        self.source = self.add_folder("_Folder")
        self.name = self.add_text("_Name in the vault", is_needed=False)
        self.suggestion = ""
        self.source.connect("changed", lambda _source: self.suggest())
        self.add_opener()
        self.show_all()

    def suggest(self):
        """Fills in the name, unless a person has."""
        if self.name.get_text() == self.suggestion:
            self.suggestion = os.path.basename(self.source.get_text().rstrip("/"))
            self.name.set_text(self.suggestion)

    def read(self):
        source = commands.typed_path(self.source.get_text(), "folder")
        name = commands.import_name(self.name.get_text())
        return [(commands.import_folder(source, self.vault, name, self.opening), self.secret)]


class VerifyDialog(LongForm):
    """Verifies a vault."""

    def __init__(self, vault, done):
        super().__init__(vault, done, "Verify", "_Verify", "Verifying…")
        self.add_sentence("This reads the whole vault, looks for damage, and changes nothing.")
        self.add_opener()
        self.show_all()

    def read(self):
        return [(commands.verify(self.vault, self.opening), self.secret)]
