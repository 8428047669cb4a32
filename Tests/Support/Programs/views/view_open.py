"""Opens files at the same time, each in a thread, and reads their first bytes.

view_open.py FILE... Prints `waiting` when all threads are about to open, and a line for each file that was opened or
not. Ends by a signal, or when all lines are printed."""

import os
import signal
import sys
import threading

# The parent process may have set other handlers.
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_SETMASK, [])


def use(path):
    try:
        fd = os.open(path, os.O_RDONLY)
        result = f"{len(os.pread(fd, 100, 0))} bytes"
    except OSError as error:
        result = error.strerror
    print(f"{os.path.basename(path)}: {result}", flush=True)


threads = [threading.Thread(target=use, args=(path,)) for path in sys.argv[1:]]
for thread in threads:
    thread.start()
print("waiting", flush=True)
for thread in threads:
    thread.join()
