"""The list of a person's vaults, and its window."""

from gi.repository import Gtk, Pango

from vaultfs_tray import commands
from vaultfs_tray.commands import short
from vaultfs_tray.dialogs import Dialog, MARGIN, SPACING, described, named_button, scrolled, sentence, shown

STATES = {"locking": "locking…"}
# Advice for states in which a vault cannot be used.
ADVICE = {
    "absent": "Its disk is away, or the vault has moved: then mount it from its new place",
    "dead": "Its daemon has ended: unmount it",
    "unknown": "Its daemon or its disk does not answer",
}
# The states in which the vault's directory is there and answers.
USABLE = ("unmounted", "unlocked", "locked", "locking")


def command(label, action, is_possible=True):
    item = Gtk.MenuItem(label=label, use_underline=True, sensitive=is_possible)
    item.connect("activate", lambda _item: action())
    return item


class Entry:
    """A vault: a mount, an object of `vaultfs list`, or both."""

    def __init__(self, tray, mount, listed=None):
        self.tray = tray
        self.mount = mount
        self.listed = listed
        self.mountpoint = mount.mountpoint if mount else listed.get("mountedAt")
        self.label = shown(listed["label"] if listed else mount.name)
        # The events of a mount are newer than the list.
        self.state = mount.state if mount else listed["state"]
        self.damage = list(mount.damage) if mount else []

    @property
    def title(self):
        mark = "  ⚠ damaged" if self.damage else ""
        return f"{self.label}: {STATES.get(self.state, self.state)}{mark}"

    @property
    def place(self):
        return shown(short(self.mountpoint or self.listed["path"]))

    @property
    def content(self):
        """All that is shown, and what its actions are for. The list's state follows that of a mount later."""
        listed = {name: value for name, value in (self.listed or {}).items() if name != "state"}
        return self.title, self.place, self.damage, self.mount, listed

    def actions(self):
        """The labels and functions of what fits the state: the usual ones first, then the others."""
        usual, others = [], []
        if self.mount and self.state == "locked":
            usual.append(("_Unlock", self.mount.unlock))
        elif self.mount:
            if self.state == "unlocked":
                usual.append(("_Open Folder", lambda: self.tray.open(self.mountpoint)))
            usual.append(("_Lock", self.mount.lock))
        elif self.state == "unmounted":
            usual.append(("_Mount…", lambda: self.tray.mount_listed(self.listed)))
        if self.mountpoint:
            (others if usual else usual).append(("U_nmount", lambda: self.tray.unmount(self.mountpoint)))
        if self.listed:
            others += self.care() + [("_Remove from the List…", lambda: self.tray.forget(self.listed))]
        return usual, others

    def care(self):
        """The actions for a vault of the list, mounted or not. An import needs it unmounted."""
        care = []
        if self.state in USABLE:
            care += [("_Slots…", lambda: self.tray.show_slots(self.listed)),
                     ("_Change the Passphrase…", lambda: self.tray.change(self.listed))]
            if self.state == "unmounted":
                care.append(("_Import a Folder…", lambda: self.tray.import_folder(self.listed)))
            care += [("_Verify…", lambda: self.tray.verify(self.listed)),
                     ("_At Login…", lambda: self.tray.show_login(self.listed))]
        return care

    def menu_item(self):
        item = Gtk.MenuItem(label=self.title)
        below = Gtk.Menu()
        usual, others = self.actions()
        for label, action in usual + others:
            below.append(command(label, action))
        for reason in self.damage:
            below.append(Gtk.MenuItem(label=reason, sensitive=False))
        item.set_submenu(below)
        return item


class VaultsWindow(Dialog):
    """The list, with buttons for what fits the state of each vault."""

    MAKE, MOUNT, LOCK = range(1, 4)

    def __init__(self, tray):
        super().__init__("Your vaults")
        self.tray = tray
        self.add_button("Ma_ke a Vault…", self.MAKE)
        self.add_button("Moun_t a Vault…", self.MOUNT)
        self.lock_button = self.add_button("Lock _All", self.LOCK)
        self.grid = Gtk.Grid(row_spacing=MARGIN, column_spacing=SPACING)
        self.get_content_area().add(scrolled(self.grid, "Your vaults"))
        self.get_content_area().add(self.note)
        self.buttons = {}
        # Not the window itself: its first focus is a vault's button.
        self.get_content_area().show_all()

    def show_entries(self, entries, error, is_open):
        """Makes the rows anew. The focus stays on its vault."""
        focused = next((key for key, button in self.buttons.items() if button is self.get_focus()), None)
        for child in self.grid.get_children():
            child.destroy()
        self.buttons = {}
        for row, entry in enumerate(entries):
            self.add_row(row, entry)
        if not entries and not error:
            text = sentence("You have no vault yet: make one, or mount one that is there already.")
            text.set_width_chars(44)
            self.grid.add(text)
        self.set_note(error or "")
        self.lock_button.set_sensitive(is_open)
        self.grid.show_all()
        same = [key for key in self.buttons if focused and key[0] == focused[0]]
        chosen = focused if focused in same else next(iter(same or self.buttons), None)
        if chosen and (focused or not self.get_focus()):
            self.buttons[chosen].grab_focus()

    def add_row(self, row, entry):
        place = Gtk.Label(label=entry.place, xalign=0, ellipsize=Pango.EllipsizeMode.MIDDLE, max_width_chars=44)
        lines = [sentence(shown(line)) for line in filter(None, [ADVICE.get(entry.state), *entry.damage])]
        self.grid.attach(described(entry.title, [place, *lines]), 0, row, 1, 1)
        buttons = Gtk.Box(spacing=SPACING, halign=Gtk.Align.END, valign=Gtk.Align.CENTER)
        usual, others = entry.actions()
        for label, action in usual:
            plain = label.replace("_", "")
            self.add_to(buttons, named_button(label, f"{plain}: {entry.label}", action), entry, plain)
        if others:
            menu = Gtk.Menu()
            for label, action in others:
                menu.append(command(label, action))
            menu.show_all()
            button = Gtk.MenuButton(popup=menu, tooltip_text="More")
            button.add(Gtk.Image.new_from_icon_name("view-more-symbolic", Gtk.IconSize.BUTTON))
            button.get_accessible().set_name(f"More: {entry.label}")
            self.add_to(buttons, button, entry, "More")
        self.grid.attach(buttons, 1, row, 1, 1)

    def add_to(self, box, button, entry, label):
        # A vault may have two mounts.
        self.buttons[(entry.label, entry.mountpoint, label)] = button
        box.add(button)

    def respond(self, _dialog, response):
        if response == self.MAKE:
            self.tray.make()
        elif response == self.MOUNT:
            self.tray.mount()
        elif response == self.LOCK:
            self.tray.lock_all()
        else:
            self.destroy()


class LoginDialog(Dialog):
    """Check boxes for what happens at login: a unit of systemd mounts a vault of the list, another one locks all vaults,
    and the desktop starts the applet.
    """

    def __init__(self, tray, vault):
        super().__init__(f"At login: {shown(vault['label'])}")
        self.tray = tray
        self.is_in_keyring = "--desktop-keyring" in vault.get("options", [])
        self.add_button("_Close", Gtk.ResponseType.CLOSE)
        area = self.get_content_area()
        self.add_unit("_Mount this vault at login", commands.mount_unit(vault["label"]), starts=False)
        area.add(sentence("The desktop's keyring opens it then: mount it once with Remember checked."))
        self.add_unit("_Lock all vaults with the screen, and before sleep", commands.AGENT, starts=True)
        self.add_autostart("_Show your vaults in the panel at login", commands.tray_autostart())
        area.add(self.note)
        area.show_all()

    def add_unit(self, label, unit, starts):
        """Adds a check box that always shows whether the unit is enabled."""
        box = Gtk.CheckButton(label=label, use_underline=True, sensitive=False)
        self.get_content_area().add(box)
        toggles = 0

        def show(outcome):
            with box.handler_block(handler):
                box.set_active(outcome.code == 0)
            box.set_sensitive(True)

        def look():
            number = toggles
            # After another toggle the answer is old.
            self.tray.execute(commands.is_enabled(unit), lambda outcome: show(outcome) if number == toggles else None)

        def toggled(_box):
            nonlocal toggles
            toggles += 1
            number = toggles
            self.set_note("")
            if box.get_active() and not starts:
                # A failure at login would be in the journal only.
                if not self.is_in_keyring:
                    self.set_note("Not remembered yet: until then, its mount at login will fail.")
                # Some desktops do not start the unit (session.py).
                self.switch(commands.mount_autostart(), True)

            def changed(outcome):
                if outcome.failure:
                    self.set_note(outcome.failure)
                if number == toggles:
                    look()

            self.tray.execute(commands.enable(unit, box.get_active(), starts), changed)

        handler = box.connect("toggled", toggled)
        look()

    def add_autostart(self, label, autostart):
        """Adds a check box for a program that the desktop starts."""
        box = Gtk.CheckButton(label=label, use_underline=True, active=autostart.is_on())
        self.get_content_area().add(box)

        def toggled(_box):
            self.set_note("")
            self.switch(autostart, box.get_active())
            with box.handler_block(handler):
                box.set_active(autostart.is_on())

        handler = box.connect("toggled", toggled)

    def switch(self, autostart, is_on):
        try:
            autostart.switch(is_on)
        except commands.Refusal as refusal:
            self.set_note(str(refusal))

    def respond(self, _dialog, _response):
        self.destroy()


class SlotsWindow(Dialog):
    """The slots of a vault of the list, as `vaultfs info` shows them, with buttons to add, change and remove them."""

    ADD, CHANGE = range(1, 3)

    def __init__(self, tray, vault):
        super().__init__(f"Slots: {shown(vault['label'])}")
        self.tray = tray
        self.vault = vault
        self.add_button("_Add a Person…", self.ADD)
        self.add_button("C_hange the Passphrase…", self.CHANGE)
        self.close_button = self.add_button("_Close", Gtk.ResponseType.CLOSE)
        self.close_button.grab_focus()
        self.rows = []
        self.buttons = {}
        self.grid = Gtk.Grid(row_spacing=MARGIN, column_spacing=SPACING)
        area = self.get_content_area()
        area.add(sentence("A slot is one way to open the vault. The last slot without an expiry cannot be removed here, "
                          "because nothing would open the vault."))
        area.add(scrolled(self.grid, "Slots"))
        area.add(self.note)
        area.show_all()

    def show_slots(self, slots, error, now):
        """Makes the rows anew, if they differ. The focus stays on its slot."""
        self.set_note(error or "")
        rows = [(slot, commands.slot_times(slot, now)) for slot in slots]
        # A new button would lose the click that has given the window the focus, and so caused this.
        if rows == self.rows:
            return
        self.rows = rows
        focused = next((key for key, button in self.buttons.items() if button is self.get_focus()), None)
        for child in self.grid.get_children():
            child.destroy()
        self.buttons = {}
        for row, (slot, times) in enumerate(rows):
            title = shown(commands.slot_title(slot))
            self.grid.attach(described(title, [Gtk.Label(label=times, xalign=0)]), 0, row, 1, 1)
            button = named_button(
                "_Remove…", f"Remove: {title}", lambda slot=slot: self.tray.remove_slot(self.vault, slot))
            button.set_valign(Gtk.Align.CENTER)
            self.grid.attach(button, 1, row, 1, 1)
            self.buttons[(slot["id"], slot["created"])] = button
        self.grid.show_all()
        if focused:
            self.buttons.get(focused, self.close_button).grab_focus()

    def respond(self, _dialog, response):
        if response == self.ADD:
            self.tray.add_slot(self.vault)
        elif response == self.CHANGE:
            self.tray.change(self.vault)
        else:
            self.destroy()
