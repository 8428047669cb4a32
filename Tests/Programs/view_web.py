"""A web server on a view: what it gives for a Range is what the file was before it was encrypted.

view_web.py MOUNT ORIGINALS. Python's own server knows no ranges; this one has what RFC 9110 section 14 calls a
single one, served by several threads."""

import http.client
import http.server
import os
import random
import re
import sys
import threading

mountpoint, originals = sys.argv[1:]
CLIENTS, REQUESTS = 4, 30


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        with open(os.path.join(mountpoint, self.path[1:]), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            match = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", "bytes=0-"))
            first, last = match.groups()
            if first:
                start, end = int(first), min(int(last or size), size - 1)
            else:
                start, end = max(0, size - int(last)), size - 1
            self.send_response(206 if "Range" in self.headers else 200)
            self.send_header("Content-Range", f"bytes {start}-{end}/{size}")
            self.send_header("Content-Length", str(end - start + 1))
            self.end_headers()
            # As servers do it: from the page cache to the socket, sendfile(2).
            self.connection.sendfile(file, start, end - start + 1)

    def log_message(self, *arguments):
        pass


def client(port, name, expected, seed, problems):
    rng, size = random.Random(seed), len(expected)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    for _ in range(REQUESTS):
        start = rng.randrange(size)
        end = min(size - 1, start + rng.choice((0, 15, 4096, 100_000, 2_000_000)))
        tail = rng.randrange(1, min(size, 2_000_000))
        wanted, header = rng.choice((
            (expected[start : end + 1], f"bytes={start}-{end}"), (expected[size - tail :], f"bytes={size - tail}-"),
            (expected[size - tail :], f"bytes=-{tail}")))
        connection.request("GET", "/" + name, headers={"Range": header})
        response = connection.getresponse()
        if response.status != 206 or response.read() != wanted:
            problems.append(f"{name}: {header}: status {response.status}")
            return
    connection.request("GET", "/" + name)
    if connection.getresponse().read() != expected:
        problems.append(f"{name}: all of it")


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
problems, clients = [], []
for name in os.listdir(originals):
    with open(os.path.join(originals, name), "rb") as file:
        expected = file.read()
    for seed in range(CLIENTS):
        clients.append(threading.Thread(target=client, args=(server.server_port, name, expected, seed, problems)))
for thread in clients:
    thread.start()
for thread in clients:
    thread.join()
print(len(clients), "clients")
sys.exit("FAILED: " + "; ".join(problems) if problems or not clients else 0)
