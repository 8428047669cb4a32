#!/bin/sh
# xss-lock(1) on X11: the screen and the vaults lock after five minutes, on `loginctl lock-session`, and before sleep.
# The two commands go to ~/.xsession or your window manager's startup file; vaultfs-screen-lock, beside this file, to
# /usr/local/bin. Sleep does not wait for the lock here: that it does is the work of
# systemd/vaultfs-lock-on-sleep.service.
xset s 300
xss-lock -- vaultfs-screen-lock i3lock --nofork &
