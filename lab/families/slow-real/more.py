# SPDX-License-Identifier: MIT
"""More programs as people write them, in which one request is slow among fast ones."""

import fcntl
import hashlib
import os
import socket
import sqlite3
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


def computes(seconds: float) -> None:
    """For so long, in pieces that keep the interpreter."""
    while time.thread_time() < seconds:
        sum(range(2000))


def ledger() -> None:
    """Another process makes a report inside of a transaction; SQLite tries again and again."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/ledger.db"
        rows = sqlite3.connect(path, timeout=20, isolation_level=None)
        rows.execute("create table entry (n)")
        report = helper("report", path, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        time.sleep(2)
        for i in range(60):
            if i == 30:
                report.stdin.write(b"go\n")
                report.stdin.flush()
                report.stdout.readline()
            rows.execute("insert into entry values (?)", [i])
            time.sleep(0.01)
        report.wait()


def report(path: str) -> None:
    """Counts all pairs of numbers, with the file's lock."""
    role("report")
    rows = sqlite3.connect(path, isolation_level=None)
    sys.stdin.readline()
    rows.execute("begin immediate")
    print("begun", flush=True)
    numbers = "with recursive n(x) as (select 1 union all select x + 1 from n where x < 2500)"
    rows.execute(f"{numbers} select sum(a.x * b.x) from n a, n b").fetchall()
    rows.execute("commit")


class Redis:
    """A connection to a redis-server."""

    def __init__(self, path: str) -> None:
        self._end = socket.socket(socket.AF_UNIX)
        self._end.connect(path)
        self._lines = self._end.makefile("rb")

    def ask(self, *words: str) -> bytes:
        """The last line of the answer."""
        self._end.sendall(f"*{len(words)}\r\n".encode())
        self._end.sendall("".join(f"${len(one)}\r\n{one}\r\n" for one in words).encode())
        line = self._lines.readline().strip()
        for _ in range(2 * int(line[1:]) if line[:1] == b"*" else 0):
            line = self._lines.readline().strip()
        return line


def broker() -> None:
    """A worker takes jobs from redis, and gives its results there; one job is long."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/redis"
        words = ["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--dir", folder]
        server = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        truth(f"role redis {server.pid} {server.pid}")
        time.sleep(1)
        wait_until(lambda: Path(path).exists())
        worker = helper("worker", path)
        own = Redis(path)
        for i in range(60):
            own.ask("LPUSH", "jobs", str(i))
            own.ask("BLPOP", "results", "0")
            time.sleep(0.01)
        worker.terminate()
        server.terminate()
        worker.wait()


def worker(path: str) -> None:
    """It computes a checksum of each job."""
    role("worker")
    own = Redis(path)
    while True:
        job = int(own.ask("BLPOP", "jobs", "0"))
        for _ in range(300 if job == 35 else 1):
            hashlib.sha512(bytes(1 << 20)).digest()
        own.ask("LPUSH", "results", str(job))


def limit() -> None:
    """nginx keeps requests back, as another client has sent many."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "nginx.conf").write_text(
            "daemon off; user root; worker_processes 1; pid p; error_log e; events {}"
            "http { access_log off; limit_req_zone $server_port zone=all:1m rate=40r/s;"
            f"server {{ listen 127.0.0.1:{port}; root {folder};"
            " limit_req zone=all burst=200; } }",
            encoding="utf-8",
        )
        Path(folder, "index.html").write_text("answer", encoding="utf-8")
        server = subprocess.Popen(["nginx", "-p", folder, "-c", "nginx.conf", "-e", "e"])
        time.sleep(1.5)
        wait_until(lambda: listens(port))
        for child in Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split():
            truth(f"role nginx {child} {child}")
        for i in range(40):
            if i == 20:
                helper("flood", str(port))
                time.sleep(1.5)
            urllib.request.urlopen(f"http://127.0.0.1:{port}/").read()
            time.sleep(0.04)
        server.terminate()
        server.wait()


def flood(port: str) -> None:
    """It sends a hundred requests at once."""
    role("flood")
    ends = [socket.create_connection(("127.0.0.1", int(port))) for _ in range(100)]
    for end in ends:
        end.sendall(b"GET / HTTP/1.0\r\n\r\n")
    for end in ends:
        end.recv(999)


def cruncher() -> None:
    """A thread computes in Python for a while, and each call of the other waits for its turn."""

    def crunch() -> None:
        role("cruncher")
        time.sleep(0.7)
        computes(1)

    threading.Thread(target=crunch, daemon=True).start()
    with open("/dev/zero", "rb", buffering=0) as zero:
        for _ in range(120):
            for _ in range(12):
                zero.read(8)
            time.sleep(0.01)


def archive() -> None:
    """A reader of a pipe waits for a file that another process has locked; the pipe is full."""
    with tempfile.TemporaryDirectory() as folder:
        lock = f"{folder}/log.lock"
        Path(lock).touch()
        rotate = helper("rotate", lock, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        reader = helper("reader", lock, stdin=subprocess.PIPE)
        time.sleep(2)
        for i in range(150):
            if i == 90:
                rotate.stdin.write(b"go\n")
                rotate.stdin.flush()
                rotate.stdout.readline()
            os.write(reader.stdin.fileno(), b"line " * 3000)
            time.sleep(0.008)
        reader.stdin.close()
        reader.wait()


def rotate(path: str) -> None:
    """Keeps the lock of a file for a while."""
    role("rotate")
    sys.stdin.readline()
    with Path(path).open("rb+") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        print("locked", flush=True)
        for _ in range(4):
            os.fsync(lock.fileno())
            time.sleep(0.15)


def reader(path: str) -> None:
    """Writes lines to a log, each under the lock."""
    role("reader")
    while lines := os.read(0, 15000):
        with Path(path).open("rb+") as lock:
            fcntl.lockf(lock, fcntl.LOCK_EX)
            lock.write(lines)


def counted() -> None:
    """The last command of a row that a shell's substitution waits for."""
    role("counted")
    computes(0.6)
    print(1)


if __name__ == "__main__":
    if sys.argv[1] in ("ledger", "broker", "limit", "cruncher", "archive"):
        role("service")
        threading.Thread(target=clock, daemon=True).start()
        globals()[sys.argv[1]]()
        ready()
    else:
        globals()[sys.argv[1]](*sys.argv[2:])
