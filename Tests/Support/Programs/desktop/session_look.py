#!/usr/bin/python3
"""session_look.py REQUEST: finds a control on the screen, through the desktop's accessibility bus.

REQUEST is a JSON object with `window`, the title of a window, and `name`, that of a control in it. Prints the control's
middle, as [x, y], or null if the screen does not show it. With `label` it is the field that has this label, and with
`text` all texts of the window. Without `window`, the control is one of any window, such as a menu. With `copied` it
is what a file manager has copied, which the X server knows. Run it in the user's session, anew for each request: the
library keeps what it has seen.
"""

import json
import sys

import gi

gi.require_version("Atspi", "2.0")
from gi.repository import Atspi, GLib


def shows(control):
    states = control.get_state_set()
    return states.contains(Atspi.StateType.SHOWING) and states.contains(Atspi.StateType.VISIBLE)


def below(control):
    """The control and all that it has on the screen, in the order of the window."""
    yield control
    for number in range(control.get_child_count()):
        child = control.get_child_at_index(number)
        if child and shows(child):
            yield from below(child)


def windows(title):
    """The windows of this title, or all if it is None."""
    desktop = Atspi.get_desktop(0)
    for number in range(desktop.get_child_count()):
        program = desktop.get_child_at_index(number)
        for each in range(program.get_child_count() if program else 0):
            window = program.get_child_at_index(each)
            if window and (title is None or window.get_name() == title) and shows(window):
                yield window


def middle(control):
    place = control.get_extents(Atspi.CoordType.SCREEN)
    return [place.x + place.width // 2, place.y + place.height // 2] if place.width > 0 else None


def field(label):
    for relation in label.get_relation_set():
        if relation.get_relation_type() == Atspi.RelationType.LABEL_FOR:
            return relation.get_target(0)
    return None


def text(control):
    if control.get_role() != Atspi.Role.PASSWORD_TEXT and "Text" in control.get_interfaces():
        return Atspi.Text.get_text(control, 0, -1)
    return ""


def copied():
    gi.require_version("Gtk", "3.0")
    from gi.repository import Gdk, Gtk
    content = Gtk.Clipboard.get(Gdk.SELECTION_CLIPBOARD).wait_for_contents(
        Gdk.Atom.intern("x-special/gnome-copied-files", False))
    return content.get_data().decode() if content else ""


def answer(request):
    if "copied" in request:
        return copied()
    found = [control for window in windows(request.get("window")) for control in below(window)]
    if "text" in request:
        return [line for control in found for line in {control.get_name(), text(control)} if line]
    for control in found:
        if "label" in request and control.get_name() == request["label"] and (entry := field(control)):
            return middle(entry)
        if "name" in request and control.get_name() == request["name"] and control.get_role() != Atspi.Role.LABEL:
            if place := middle(control):
                return place
    return None


try:
    print(json.dumps(answer(json.loads(sys.argv[1]))))
except GLib.Error:
    # The window has closed meanwhile.
    print("null")
