"""Records what a daemon of this version answers on its control socket: a test vector for later versions (Vectors/README.md).

control_record.py --binary VAULTFS >Tests/Support/Vectors/control-VERSION.txt"""

import argparse
import base64
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

from mounting import Mount

SECONDS = 60


class Connection:
    """A connection to a mount's control socket (ControlSocket.md, Where it is)."""

    def __init__(self, directory, mountpoint):
        number = 0xCBF29CE484222325
        for byte in os.fsencode(mountpoint):
            number = (number ^ byte) * 0x100000001B3 % 2**64
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(SECONDS)
        self.socket.connect(f"{directory}/mount-{number:016x}.socket")
        self.lines = self.socket.makefile("rb")

    def ask(self, request):
        self.socket.sendall(json.dumps(request, separators=(",", ":")).encode() + b"\n")
        return self.lines.readline().decode().rstrip("\n")


class Recorder:
    def __init__(self, binary, directory):
        self.mount, self.directory = Mount(binary, directory), directory
        os.environ["XDG_RUNTIME_DIR"] = directory
        self.runtime = "/run/vaultfs" if os.geteuid() == 0 else f"{directory}/vaultfs"
        self.lock_file = os.path.join(directory, "device.lock")

    def connect(self):
        return Connection(self.runtime, self.mount.mountpoint)

    def print(self, text):
        print(text.replace(self.directory, "/home/ada"))

    def tell(self, request):
        """Sends a request on a new connection, and prints it with its answer."""
        connection = self.connect()
        self.print("> " + json.dumps(request, separators=(",", ":")))
        self.print("< " + connection.ask(request))

    def vault(self):
        self.mount.initialise()
        self.mount.mount("--on-lock", "forget", "--idle-lock", "1h", "--grace", "1s", "--lock-file", self.lock_file)
        with open(f"{self.mount.mountpoint}/file", "w") as file:
            file.write("plaintext")
        secret = {"kind": "passphrase", "bytes": base64.b64encode(b"correct horse").decode()}
        events = self.connect()
        first = events.ask({"request": "events"})
        self.tell({"request": "status"})
        self.tell({"request": "sync"})
        self.tell({"request": "lock"})
        self.tell({"request": "status"})
        self.tell({"request": "unlock"})
        self.tell({"request": "unlock", "secret": {"kind": "passphrase", "bytes": "d3Jvbmc="}})
        # The daemon tries no other secret for a second.
        time.sleep(1.1)
        self.tell({"request": "unlock", "secret": secret})
        self.tell({"request": "lock", "forget": True})
        with open(self.lock_file, "w"):
            pass
        self.tell({"request": "unlock", "secret": secret})
        os.unlink(self.lock_file)
        self.tell({"request": "unlock", "secret": secret})
        self.damage()
        self.tell({"request": "status"})
        self.tell({"request": "explode"})
        self.mount.run(self.mount.binary, "unmount", self.mount.mountpoint)
        self.print('> {"request":"events"}')
        self.print("< " + first)
        for line in events.lines:
            self.print("< " + line.decode().rstrip("\n"))

    def damage(self):
        """Has a program meet damage, which is a problem in the status."""
        self.mount.run(self.mount.binary, "unmount", self.mount.mountpoint)
        names = [name for name in os.listdir(self.mount.vault) if not name.startswith("vaultfs.")]
        with open(f"{self.mount.vault}/{names[0]}", "r+b") as file:
            file.seek(-1, os.SEEK_END)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_END)
            file.write(bytes([byte ^ 1]))
        self.mount.mount("--lock-file", self.lock_file)
        subprocess.run(["cat", f"{self.mount.mountpoint}/file"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=SECONDS)

    def view(self):
        source = os.path.join(self.directory, "source")
        os.mkdir(source)
        command = ["openssl", "enc", "-aes-256-cbc", "-pbkdf2", "-pass", f"file:{self.mount.passfile}", "-out", f"{source}/file.enc"]
        subprocess.run(command, input=b"plaintext", check=True, timeout=SECONDS)
        self.mount.run(
            self.mount.binary, "view", "openssl", source, self.mount.mountpoint, "--passfile", self.mount.passfile,
            "--lock-file", self.lock_file)
        self.tell({"request": "status"})
        self.mount.run(self.mount.binary, "unmount", self.mount.mountpoint)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        recorder = Recorder(os.path.abspath(options.binary), directory)
        try:
            recorder.vault()
            recorder.view()
        finally:
            if os.path.ismount(recorder.mount.mountpoint):
                subprocess.run([options.binary, "unmount", "--force", recorder.mount.mountpoint], timeout=SECONDS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
