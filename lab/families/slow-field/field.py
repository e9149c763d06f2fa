# SPDX-License-Identifier: MIT
"""Services in which one request is slow among fast ones, as operators meet them."""

import http.server
import logging
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from lab_truth import ready, role, truth
from scene import clock, free_port, listens, wait_until


def helper(*words: str, **popen) -> subprocess.Popen:
    """A process that runs another function of this file."""
    return subprocess.Popen([sys.executable, __file__, *words], **popen)


class Answers(http.server.BaseHTTPRequestHandler):
    """Asks the server behind, if there is one; else one of the answers is computed for long."""

    behind = ""

    def do_GET(self) -> None:
        """Of each request."""
        if self.behind:
            urllib.request.urlopen(f"http://127.0.0.1:{self.behind}{self.path}").read()
        else:
            sum(range(30000000 if self.path == "/25" else 3000))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"answer")

    def log_message(self, *_words: object) -> None:
        """Says nothing."""


def server(name: str, port: str, behind: str = "") -> None:
    """A server that asks another, or computes."""
    role(name)
    Answers.behind = behind
    http.server.HTTPServer(("127.0.0.1", int(port)), Answers).serve_forever()


def three() -> None:
    """A request goes over two servers, of which the last computes."""
    front, behind = free_port(), free_port()
    servers = [
        helper("server", "backend", str(behind)),
        helper("server", "gateway", str(front), str(behind)),
    ]
    wait_until(lambda: listens(front) and listens(behind))
    for i in range(60):
        urllib.request.urlopen(f"http://127.0.0.1:{front}/{i}").read()
        time.sleep(0.01)
    for one in servers:
        one.terminate()


def gzip() -> None:
    """Each request packs a file by a child process; one file is large."""
    with tempfile.TemporaryDirectory() as folder:
        for name, size in (("small", 4000), ("large", 40_000_000)):
            Path(folder, name).write_bytes(os.urandom(size))
        for i in range(60):
            path = Path(folder, "large" if i == 35 else "small")
            packing = subprocess.Popen(["gzip", "-c", path], stdout=subprocess.DEVNULL)
            if i == 35:
                truth(f"role gzip {packing.pid} {packing.pid}")
            packing.wait()
            time.sleep(0.01)


def log() -> None:
    """The process that reads the log sleeps; who writes to the full pipe has the handler's lock."""
    shipping = helper("shipper", stdin=subprocess.PIPE, text=True)
    own = logging.getLogger("service")
    own.addHandler(logging.StreamHandler(shipping.stdin))
    time.sleep(1)

    def importer() -> None:
        role("importer")
        for _ in range(400):
            own.warning("row " * 2000)
            time.sleep(0.01)

    threading.Thread(target=importer, daemon=True).start()
    for _ in range(150):
        own.warning("answered")
        time.sleep(0.012)
    shipping.terminate()


def shipper() -> None:
    """Hands lines on, and looks up for a while where to."""
    role("shipper")
    for i in range(10**6):
        if not os.read(0, 4096):
            return
        if i == 120:
            time.sleep(1)


def bounded() -> None:
    """A queue of four is full, as the thread that empties it waits for a command."""
    jobs: queue.Queue = queue.Queue(maxsize=4)

    def encoder() -> None:
        role("encoder")
        while True:
            if jobs.get() == 50:
                probe = subprocess.Popen(["sleep", "0.9"])
                truth(f"role probe {probe.pid} {probe.pid}")
                probe.wait()

    threading.Thread(target=encoder, daemon=True).start()
    for i in range(100):
        jobs.put(i)
        time.sleep(0.012)


if __name__ == "__main__":
    if sys.argv[1] in ("three", "gzip", "log", "bounded"):
        role("service")
        threading.Thread(target=clock, daemon=True).start()
        globals()[sys.argv[1]]()
        ready()
    else:
        globals()[sys.argv[1]](*sys.argv[2:])
