"""A vault mounted through the binary, for the programs that kill or fill it."""

import os
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


class Mount:
    """`directory` holds the vault, its mountpoint and the passfile."""

    def __init__(self, binary, directory, vault=None):
        self.binary, self.directory = binary, directory
        self.vault = vault or os.path.join(directory, "vault")
        self.mountpoint = os.path.join(directory, "mount")
        self.passfile = os.path.join(directory, "passfile")
        self.daemon = None

    def run(self, *arguments, timeout=60):
        # Output goes to files. A daemon that inherited a pipe would make us wait for its end.
        with tempfile.TemporaryFile() as output:
            code = subprocess.run(arguments, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=timeout).returncode
            output.seek(0)
            said = output.read().decode(errors="replace")
        if code:
            sys.exit(f"{' '.join(arguments)}: exit {code}\n{said}")
        return said

    def initialise(self, *arguments):
        os.makedirs(self.vault, exist_ok=True)
        os.makedirs(self.mountpoint, exist_ok=True)
        with open(self.passfile, "w") as file:
            file.write("correct horse")
        self.run(self.binary, "init", self.vault, "--passfile", self.passfile, "--scrypt-logn", "10", "--no-recovery-key",
                 *arguments)

    def mount(self, *arguments):
        self.run(self.binary, "mount", self.vault, self.mountpoint, "--passfile", self.passfile, *arguments)
        if not os.path.ismount(self.mountpoint):
            sys.exit("mount returned, and there is no mount")
        self.daemon = self.find_daemon()
        if "VAULTFS_TEST_MOUNT_COUNT" in os.environ:
            with open(os.environ["VAULTFS_TEST_MOUNT_COUNT"], "a") as count:
                count.write("m\n")

    def find_daemon(self):
        for pid in sorted((int(p) for p in os.listdir("/proc") if p.isdigit()), reverse=True):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read().split(b"\0")
            except OSError:
                continue
            if os.fsencode(self.mountpoint) in words and words[0].endswith(b"vaultfs"):
                return pid
        sys.exit("mounted, and no daemon to be found")

    def detach(self):
        """Unmounts the mount of a dead daemon."""
        self.run("fusermount3", "-uz", self.mountpoint)
        self.daemon = None

    def unmount(self):
        self.run(self.binary, "unmount", self.mountpoint)
        self.daemon = None

    def read(self, *arguments):
        """Runs the independent reader over the vault. Any damage ends the program. Returns its lines."""
        reader = os.path.join(HERE, "..", "..", "..", "..", "Reader", "vaultfs_reader.py")
        return self.run(sys.executable, reader, self.vault, "--digests", "--no-lock", "--passfile", self.passfile, *arguments,
                        timeout=300)

    def abandon(self):
        """Leaves no mount and no daemon, whatever happened."""
        if self.daemon:
            try:
                os.kill(self.daemon, signal.SIGKILL)
            except ProcessLookupError:
                pass
        subprocess.run(["fusermount3", "-uz", self.mountpoint], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
