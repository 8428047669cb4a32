#!/usr/bin/env python3
"""notify.py MOUNTPOINT COMMAND...: runs a command as systemd runs a service of Type=notify, once with a socket that
is a file and once with an abstract one. When the command reports that it is ready, something must be mounted. Then
SIGTERM ends it.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile


def serve(name, bound, mountpoint, command):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(bound)
        listener.settimeout(30)
        service = subprocess.Popen(command, env={**os.environ, "NOTIFY_SOCKET": name}, stderr=subprocess.PIPE)
        try:
            message = listener.recv(4096)
            assert message == b"READY=1\n", message
            assert os.path.ismount(mountpoint), "ready, and nothing is mounted"
            assert service.poll() is None, "ready, and ended"
            service.send_signal(signal.SIGTERM)
            assert service.wait(30) == 0
        except BaseException:
            service.kill()
            print(service.stderr.read().decode(errors="replace"), file=sys.stderr)
            raise
    assert not os.path.ismount(mountpoint)


def main():
    mountpoint, command = sys.argv[1], sys.argv[2:]
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "notify")
        serve(path, path, mountpoint, command)
    name = f"vaultfs-test-{os.getpid()}"
    serve("@" + name, "\0" + name, mountpoint, command)


main()
