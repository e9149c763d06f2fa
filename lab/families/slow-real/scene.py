# SPDX-License-Identifier: MIT
"""Programs as people write them, in which one request is slow among fast ones, each for another
reason.
"""

import asyncio
import concurrent.futures
import http.server
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from lab_truth import ready, role, truth


def clock() -> None:
    """An innocent: it counts by the clock."""
    role("clock")
    while True:
        sum(range(9000))
        time.sleep(0.03)


def wait_until(is_so) -> None:
    """Waits for a server that begins."""
    while not is_so():
        time.sleep(0.05)


def listens(port: int) -> bool:
    """Whether a server does."""
    with socket.socket() as end:
        return end.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    """A port that nobody has."""
    with socket.create_server(("127.0.0.1", 0)) as end:
        return end.getsockname()[1]


def regex() -> None:
    """A thread matches a pattern that goes back and forth, and does not let the interpreter go."""

    def matcher() -> None:
        role("matcher")
        time.sleep(0.5)
        re.match(r"(\w+\s?)+$", "a word and another one he")
        re.match(r"(a+)+$", "a" * 22 + "b")

    threading.Thread(target=matcher, daemon=True).start()
    ends = socket.socketpair()

    def echo() -> None:
        role("echo")
        while data := ends[1].recv(99):
            ends[1].sendall(data)

    threading.Thread(target=echo, daemon=True).start()
    for _ in range(100):
        ends[0].sendall(b"request")
        ends[0].recv(99)
        time.sleep(0.01)


def loop() -> None:
    """A coroutine of the server calls something that blocks: a child process."""
    port = free_port()

    async def answer(reader, writer) -> None:
        while line := await reader.readline():
            if line == b"20\n":
                child = subprocess.Popen(["sleep", "0.9"])
                truth(f"role child {child.pid} {child.pid}")
                child.wait()
            writer.write(line)
            await writer.drain()

    async def serve() -> None:
        role("server")
        async with await asyncio.start_server(answer, "127.0.0.1", port) as server:
            await server.serve_forever()

    threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()
    wait_until(lambda: listens(port))
    with socket.create_connection(("127.0.0.1", port)) as end, end.makefile("rb") as lines:
        for i in range(40):
            end.sendall(b"%d\n" % i)
            lines.readline()
            time.sleep(0.01)


def redis() -> None:
    """A script of another client keeps redis busy."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/redis"
        server = subprocess.Popen(
            ["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--dir", folder],
            stdout=subprocess.DEVNULL,
        )
        truth(f"role redis {server.pid} {server.pid}")
        wait_until(lambda: Path(path).exists())
        with socket.socket(socket.AF_UNIX) as end:
            end.connect(path)
            for i in range(60):
                if i == 30:
                    script = "local n = 0 for i = 1, 8e6 do n = n + i end return n"
                    storm = subprocess.Popen(
                        ["redis-cli", "-s", path, "eval", script, "0"], stdout=subprocess.DEVNULL
                    )
                    truth(f"role storm {storm.pid} {storm.pid}")
                end.sendall(b"INCR a\r\n")
                end.recv(99)
                time.sleep(0.015)
        server.terminate()
        server.wait()


def nginx() -> None:
    """nginx hands a request on to a server, which waits for the lock of a file."""
    port, behind = free_port(), free_port()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "nginx.conf").write_text(
            "daemon off; worker_processes 1; pid p; error_log e; events {} http { access_log off;"
            f"server {{ listen 127.0.0.1:{port};"
            f"location / {{ proxy_pass http://127.0.0.1:{behind}; }} }} }}",
            encoding="utf-8",
        )
        lock = str(Path(folder, "lock"))
        upstream = subprocess.Popen([sys.executable, __file__, "upstream", str(behind), lock])
        server = subprocess.Popen(["nginx", "-p", folder, "-c", "nginx.conf", "-e", "e"])
        time.sleep(1.5)
        for i in range(40):
            if i == 20:
                backup = subprocess.Popen(["flock", lock, sys.executable, __file__, "sleeper"])
                truth(f"role backup {backup.pid} {backup.pid}")
                time.sleep(0.3)
            urllib.request.urlopen(f"http://127.0.0.1:{port}/").read()
            time.sleep(0.01)
        server.terminate()
        upstream.terminate()
        server.wait()


class Quiet(http.server.BaseHTTPRequestHandler):
    """Answers, and takes a lock for it where there is one."""

    lock = ""

    def do_GET(self) -> None:
        """Of each request."""
        if self.lock:
            subprocess.run(["flock", self.lock, "true"], check=True)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"answer")

    def log_message(self, *_words: object) -> None:
        """Says nothing."""


def sleeper() -> None:
    """It has the lock."""
    role("sleeper")
    time.sleep(1)


def upstream(port: str, lock: str) -> None:
    """The server behind nginx."""
    role("upstream")
    Quiet.lock = lock
    http.server.HTTPServer(("127.0.0.1", int(port)), Quiet).serve_forever()


def executor() -> None:
    """The only worker of a pool computes a report when a short job comes."""

    def report() -> None:
        role("pool")
        while time.thread_time() < 0.4:
            bytes(200000).count(b"x")

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        for i in range(40):
            if i == 25:
                pool.submit(report)
            pool.submit(sum, range(100)).result()
            time.sleep(0.01)


def fast() -> None:
    """Nothing is unusual: a server answers, and its client asks."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for _ in range(150):
        urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/").read()
        time.sleep(0.005)


if __name__ == "__main__":
    if sys.argv[1] == "upstream":
        upstream(*sys.argv[2:])
    elif sys.argv[1] == "sleeper":
        sleeper()
    else:
        role("service")
        threading.Thread(target=clock, daemon=True).start()
        globals()[sys.argv[1]]()
        ready()
