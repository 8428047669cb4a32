"""The pieces of the windows: a dialog, and a form that runs commands."""

import os
import threading

from gi.repository import GLib, Gtk, Pango

from vaultfs_tray import commands

SPACING = 8
MARGIN = 12
TALLEST_LIST = 400


def sentence(text=""):
    # A path may be one long word, in which a hyphen would be wrong.
    label = Gtk.Label(label=text, xalign=0, wrap=True, wrap_mode=Pango.WrapMode.WORD_CHAR, max_width_chars=56)
    label.set_attributes(Pango.AttrList.from_string("0 -1 insert-hyphens false"))
    return label


def passphrase_entry():
    # A pasted line may have a line break at its end, which nobody sees.
    return Gtk.Entry(visibility=False, truncate_multiline=True, activates_default=True, width_chars=36,
                     input_purpose=Gtk.InputPurpose.PASSWORD)


def shown(text):
    """Text as GTK takes it. A path in it need not be UTF-8."""
    return os.fsencode(text).decode(errors="replace")


def shown_path(path):
    return shown(commands.short(path))


def named_button(label, name, action):
    """A button with a name for screen readers that says more than its label, which other buttons have too."""
    button = Gtk.Button(label=label, use_underline=True)
    button.get_accessible().set_name(name)
    button.connect("clicked", lambda _button: action())
    return button


def described(title, lines):
    """A title with lines below it, for a list."""
    heading = Gtk.Label(label=title, xalign=0, ellipsize=Pango.EllipsizeMode.MIDDLE, width_chars=32, max_width_chars=44)
    heading.set_attributes(Pango.AttrList.from_string("0 -1 weight bold"))
    box = Gtk.Box(orientation=Gtk.Orientation.VERTICAL, hexpand=True)
    box.add(heading)
    for line in lines:
        box.add(line)
    return box


def scrolled(grid, name):
    """A list that scrolls when it is long, also with the keyboard. The name is for screen readers."""
    window = Gtk.ScrolledWindow(
        hscrollbar_policy=Gtk.PolicyType.NEVER, propagate_natural_height=True, max_content_height=TALLEST_LIST)
    window.get_accessible().set_name(name)
    window.add(grid)
    grid.set_focus_vadjustment(window.get_vadjustment())
    return window


def run(command, done, *secrets):
    """Calls `done` with the outcome when the command has ended. The main loop runs meanwhile: a key derivation takes
    about a second, and a store may not answer.
    """
    def wait():
        GLib.idle_add(done, command.finish(*secrets))

    threading.Thread(target=wait, daemon=True).start()


class Dialog(Gtk.Dialog):
    """A window with a line for problems. It closes only when `respond` destroys it."""

    # False while something would be lost.
    may_close = True

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
        chooser.add_buttons("_Cancel", Gtk.ResponseType.CANCEL, label, Gtk.ResponseType.ACCEPT)
        chooser.set_default_response(Gtk.ResponseType.ACCEPT)
        chooser.connect("response", respond)
        return chooser


class Form(Dialog):
    """Fields, and a button that runs commands, one after the other, while a bar shows the progress. After a failure all
    fields are as they were, except the passphrases.

    A form is made by its kind, in forms.py: `read` returns the commands, each with its secrets, `check` gets the
    outcome of each except the last, and `succeed` that of the last.
    """

    # Cancel ends a running command, unless this is false.
    can_cancel = True
    # If it is not empty, the form stays after a cancel, and shows it.
    cancelled_note = ""
    # True for a command with a progress line, which a bar shows.
    has_progress = False

    def __init__(self, title, action, progress):
        super().__init__(title)
        self.progress = progress
        self.command = None
        self.steps = []
        self.is_cancelled = False
        # A sentence about the change that the commands before the current one have made.
        self.changed = ""
        self.rows = 0
        # The fields that must not be empty, and those of them with secrets.
        self.entries = []
        self.secrets = []
        self.key_box = None
        self.cancel_button = self.add_button("_Cancel", Gtk.ResponseType.CANCEL)
        self.button = self.add_button(action, Gtk.ResponseType.OK)
        self.set_default_response(Gtk.ResponseType.OK)
        self.fields = Gtk.Grid(row_spacing=SPACING, column_spacing=MARGIN)
        self.bar = Gtk.ProgressBar(no_show_all=True)
        for widget in (self.fields, self.bar, self.note):
            self.get_content_area().add(widget)

    @property
    def may_close(self):
        return not self.command

    def add_sentence(self, text):
        """Adds a sentence above the fields that follow."""
        self.fields.attach(sentence(shown(text)), 0, self.rows, 3, 1)
        self.rows += 1

    def add_field(self, label, widget):
        name = Gtk.Label(label=label, use_underline=True, xalign=1, mnemonic_widget=widget)
        self.fields.attach(name, 0, self.rows, 1, 1)
        self.fields.attach(widget, 1, self.rows, 1, 1)
        self.rows += 1
        return widget

    def add_text(self, label, text="", is_needed=True):
        entry = self.add_field(label, Gtk.Entry(text=text, activates_default=True, width_chars=36))
        if is_needed:
            self.entries.append(entry)
        return entry

    def add_folder(self, label, text=""):
        entry = self.add_text(label, text)
        name = label.replace("_", "")
        button = named_button("Choose…", f"Choose: {name}", lambda: self.choose_folder(name, entry))
        self.fields.attach(button, 2, self.rows - 1, 1, 1)
        return entry

    def choose_folder(self, label, entry):
        chooser = self.choose_file(
            label, Gtk.FileChooserAction.SELECT_FOLDER, "C_hoose", lambda path: entry.set_text(shown_path(path)))
        folder = os.path.expanduser(entry.get_text() or "~")
        # A mountpoint may not exist yet.
        chooser.set_current_folder(folder if os.path.isdir(folder) else os.path.dirname(folder))
        chooser.show()

    def add_choice(self, label, texts):
        """Adds a choice between the keys of a dictionary, shown by their texts."""
        box = self.add_field(label, Gtk.ComboBoxText())
        for key, text in texts.items():
            box.append(key, text)
        box.set_active(0)
        return box

    def add_check(self, label):
        box = Gtk.CheckButton(label=label, use_underline=True)
        self.fields.attach(box, 1, self.rows, 2, 1)
        self.rows += 1
        return box

    def add_secret(self, label):
        entry = self.add_field(label, passphrase_entry())
        self.entries.append(entry)
        self.secrets.append(entry)
        return entry

    def add_opener(self, label="_Passphrase"):
        """Adds the passphrase, in whose place the recovery key may be typed."""
        self.opener = self.add_secret(label)
        self.opener_label = label
        self.key_box = self.add_check("Use the _recovery key")
        self.key_box.connect("toggled", lambda _box: self.update_opener())
        # The two ends of the selection.
        for end in ("cursor-position", "selection-bound"):
            self.opener.connect(f"notify::{end}", lambda *_: self.deselect())
        return self.opener

    def update_opener(self):
        """A recovery key is long, and copied from paper, so it is shown."""
        is_key = self.key_box.get_active()
        self.opener.list_mnemonic_labels()[0].set_text_with_mnemonic("Recovery _key" if is_key else self.opener_label)
        self.opener.set_text("")
        self.opener.set_visibility(is_key)
        self.opener.grab_focus()

    def deselect(self):
        """Keeps the text of a recovery key from being selected. GTK selects a field's text when it gets the focus, and
        every program of the session can read the selection.
        """
        if self.opener.get_visibility() and self.opener.get_selection_bounds():
            self.opener.set_position(self.opener.get_position())

    @property
    def opening(self):
        return commands.RECOVERY_KEY if self.key_box.get_active() else commands.PASSPHRASE

    @property
    def secret(self):
        return commands.secret(self.opener.get_text(), "recovery key" if self.key_box.get_active() else "passphrase")

    def respond(self, _dialog, response):
        if response == Gtk.ResponseType.OK:
            self.submit()
        elif not self.command:
            self.destroy()
        elif self.can_cancel:
            self.is_cancelled = True
            self.command.cancel()

    def submit(self):
        self.is_cancelled = False
        self.changed = ""
        try:
            self.steps = self.read()
            self.start()
        except commands.Refusal as refusal:
            self.refuse(str(refusal))

    def start(self):
        """Runs the next command."""
        arguments, *secrets = self.steps.pop(0)
        self.command = commands.Command(
            arguments, (lambda text: GLib.idle_add(self.show_progress, text)) if self.has_progress else None)
        self.set_busy(True)
        self.set_note(self.progress)
        run(self.command, self.end, *secrets)

    def show_progress(self, line):
        part, text = commands.progress(line)
        if part is None:
            self.bar.pulse()
        else:
            self.bar.set_fraction(part)
        self.set_note(text or self.progress)

    def end(self, outcome):
        self.command = None
        if outcome.failure:
            self.stop(self.cancelled_note if self.is_cancelled else self.failure(outcome))
        elif self.steps:
            self.go_on(outcome)
        else:
            # The command has made its change, also if a cancel came just then.
            self.succeed(outcome)
            self.destroy()

    def go_on(self, outcome):
        """Runs the next command, unless the form was cancelled."""
        try:
            self.changed = self.check(outcome)
            if self.is_cancelled:
                self.stop("")
            else:
                self.start()
        except commands.Refusal as refusal:
            self.stop(str(refusal))

    def stop(self, reason):
        """Shows what has changed and why the rest has not, or closes a cancelled form that has nothing to show."""
        if self.changed or reason:
            self.refuse("\n".join(filter(None, [self.changed, reason])))
        else:
            self.destroy()

    def check(self, outcome):
        """Returns a sentence about the change that a command has made, if it has. Raises a Refusal to end the form's
        commands.
        """
        return ""

    def failure(self, outcome):
        return outcome.failure

    def set_busy(self, is_busy):
        for entry in self.secrets:
            entry.set_text("")
        self.fields.set_sensitive(not is_busy)
        self.button.set_sensitive(not is_busy)
        self.cancel_button.set_sensitive(not is_busy or self.can_cancel)
        self.bar.set_visible(is_busy and self.has_progress)
        self.bar.set_fraction(0)

    def refuse(self, reason):
        self.set_busy(False)
        self.set_note(reason)
        # The passphrases are empty, and perhaps the field of the problem, which is then above them.
        next(entry for entry in self.entries if not entry.get_text()).grab_focus()
