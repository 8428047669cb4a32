"""The list of a person's vaults, and its window."""

from gi.repository import Gtk, Pango

from vaultfs_tray.commands import short
from vaultfs_tray.dialogs import Dialog, MARGIN, SPACING, sentence, shown

STATES = {"locking": "locking…"}
# Advice for states in which a vault cannot be used.
ADVICE = {
    "absent": "Its disk is away, or the vault has moved: then mount it from its new place",
    "dead": "Its daemon has ended: unmount it",
    "unknown": "Its daemon or its disk does not answer",
}
TALLEST_LIST = 400


def command(label, action, is_possible=True):
    item = Gtk.MenuItem(label=label, sensitive=is_possible)
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
            usual.append(("Unlock", self.mount.unlock))
        elif self.mount:
            if self.state == "unlocked":
                usual.append(("Open Folder", lambda: self.tray.open(self.mountpoint)))
            usual.append(("Lock", self.mount.lock))
        elif self.state == "unmounted":
            usual.append(("Mount…", lambda: self.tray.mount_listed(self.listed)))
        if self.mountpoint:
            (others if usual else usual).append(("Unmount", lambda: self.tray.unmount(self.mountpoint)))
        if self.listed:
            others.append(("Remove from the List…", lambda: self.tray.forget(self.listed)))
        return usual, others

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
        self.add_button("Make a Vault…", self.MAKE)
        self.add_button("Mount a Vault…", self.MOUNT)
        self.lock_button = self.add_button("Lock All", self.LOCK)
        self.grid = Gtk.Grid(row_spacing=MARGIN, column_spacing=SPACING)
        scrolled = Gtk.ScrolledWindow(
            hscrollbar_policy=Gtk.PolicyType.NEVER, propagate_natural_height=True, max_content_height=TALLEST_LIST)
        scrolled.add(self.grid)
        # The keyboard scrolls.
        self.grid.set_focus_vadjustment(scrolled.get_vadjustment())
        self.get_content_area().add(scrolled)
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
        title = Gtk.Label(label=entry.title, xalign=0, ellipsize=Pango.EllipsizeMode.MIDDLE, width_chars=32,
                          max_width_chars=44)
        title.set_attributes(Pango.AttrList.from_string("0 -1 weight bold"))
        text = Gtk.Box(orientation=Gtk.Orientation.VERTICAL, hexpand=True)
        text.add(title)
        text.add(Gtk.Label(label=entry.place, xalign=0, ellipsize=Pango.EllipsizeMode.MIDDLE, max_width_chars=44))
        for line in filter(None, [ADVICE.get(entry.state), *entry.damage]):
            text.add(sentence(shown(line)))
        self.grid.attach(text, 0, row, 1, 1)
        buttons = Gtk.Box(spacing=SPACING, halign=Gtk.Align.END, valign=Gtk.Align.CENTER)
        usual, others = entry.actions()
        for label, action in usual:
            button = Gtk.Button(label=label)
            button.connect("clicked", lambda _button, action=action: action())
            self.add_to(buttons, button, entry, label)
        if others:
            menu = Gtk.Menu()
            for label, action in others:
                menu.append(command(label, action))
            menu.show_all()
            button = Gtk.MenuButton(popup=menu, tooltip_text="More")
            button.add(Gtk.Image.new_from_icon_name("view-more-symbolic", Gtk.IconSize.BUTTON))
            self.add_to(buttons, button, entry, "More")
        self.grid.attach(buttons, 1, row, 1, 1)

    def add_to(self, box, button, entry, label):
        # The label alone is the same for every vault.
        button.get_accessible().set_name(f"{label}: {entry.label}")
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
