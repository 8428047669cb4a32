"""Mounts this user's vaults at login, and unmounts them when the session ends, in a desktop that does not do it.

The units of the vaults (vaultfs-at-login(7)) belong to graphical-session.target. GNOME and KDE Plasma start and stop
it, but Xfce, MATE, Cinnamon, LXQt and LXDE of Debian 12 do not. In such a desktop this program starts the enabled
units, waits for the end of the X server's session, and stops them. Elsewhere it ends at once. The desktop starts it,
by a file in ~/.config/autostart, which the window At Login makes.
"""

import ctypes
import os
import select
import subprocess

TARGET = "graphical-session.target"


def systemctl(*arguments):
    return subprocess.run(["systemctl", "--user", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                          check=False)


def enabled_units():
    wanted = systemctl("show", "--property=Wants", "--value", TARGET).stdout.split()
    return [unit for unit in wanted if unit.startswith("vaultfs@")]


def connect():
    """A connection to the X server, which ends with the session. None if there is no X server."""
    try:
        xlib = ctypes.CDLL("libX11.so.6")
    except OSError:
        return None
    xlib.XOpenDisplay.restype = ctypes.c_void_p
    display = xlib.XOpenDisplay(None)
    return xlib.XConnectionNumber(ctypes.c_void_p(display)) if display else None


def wait_for_end(connection):
    """Drops what the server sends to all programs, until it closes the connection."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    while True:
        poll.poll()
        try:
            if not os.read(connection, 4096):
                return
        except BlockingIOError:
            pass
        except OSError:
            return


def main():
    if systemctl("is-active", "--quiet", TARGET).returncode == 0:
        return
    units = enabled_units()
    if not units:
        return
    connection = connect()
    systemctl("start", "--no-block", *units)
    # Without an X server, the units end with the user's last session.
    if connection is not None:
        wait_for_end(connection)
        systemctl("stop", "--no-block", *units)


if __name__ == "__main__":
    main()
