"""A web server on a view: its response to a Range is the same part of the file before encryption.

view_web.py MOUNT ORIGINALS"""

import http.client
import os
import random
import sys
import threading

from range_server import serve

mountpoint, originals = sys.argv[1:]
CLIENTS, REQUESTS = 4, 30


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


port = serve(mountpoint)
problems, clients = [], []
for name in os.listdir(originals):
    with open(os.path.join(originals, name), "rb") as file:
        expected = file.read()
    for seed in range(CLIENTS):
        clients.append(threading.Thread(target=client, args=(port, name, expected, seed, problems)))
for thread in clients:
    thread.start()
for thread in clients:
    thread.join()
print(len(clients), "clients")
sys.exit("FAILED: " + "; ".join(problems) if problems or not clients else 0)
