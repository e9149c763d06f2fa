# SPDX-License-Identifier: MIT
"""`flagfinder spin` on programs that are busy because they have work: it must name no flag, and
they must go on.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import compiled, flagfinder, kill_session, started

ECHO = Path(__file__).parent / "programs" / "echo.c"


def get(port: int, stop: threading.Event) -> Iterator[None]:
    """Fetches a page again and again, each time over a connection of its own."""
    while not stop.is_set():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as answer:
            answer.read()
        yield


def talk(port: int, stop: threading.Event) -> Iterator[None]:
    """Sends and receives on one connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        while not stop.is_set():
            connection.sendall(b"x" * 200)
            got = 0
            while got < 200:
                data = connection.recv(200 - got)
                if not data:
                    return
                got += len(data)
            yield


class Load:
    """A client in a thread of its own, which counts what it was served."""

    def __init__(self, client: Callable[[int, threading.Event], Iterator[None]], port: int) -> None:
        self.served = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(client, port))
        self._thread.start()

    def _run(self, client: Callable[[int, threading.Event], Iterator[None]], port: int) -> None:
        with contextlib.suppress(
            OSError, http.client.HTTPException
        ):  # the server is killed in the end
            for _ in client(port, self._stop):
                self.served += 1

    def wait_for_more(self, count: int) -> None:
        target, end = self.served + count, time.monotonic() + 60
        while self.served < target:
            assert time.monotonic() < end and self._thread.is_alive(), (
                f"served {self.served}, not {target}"
            )
            time.sleep(0.01)

    def end(self) -> None:
        self._stop.set()
        self._thread.join(timeout=60)


def names_no_flag(pid: int) -> None:
    ran = flagfinder("spin", "--json", str(pid), timeout=60)
    threads = json.loads(ran.stdout)["threads"]
    found = [(f["name"], f["confidence"], t["reason"]) for t in threads for f in t["flags"]]
    assert ran.returncode == 1 and not found, (found, ran.stderr)


@pytest.mark.live
@pytest.mark.parametrize("name", ["http.server", "epoll"])
def test_server_under_load_has_no_flag(name: str, tmp_path: Path) -> None:
    if name == "epoll":
        command, client = [str(compiled(tmp_path / "echo", ECHO, "-O2"))], talk
    else:
        (tmp_path / "index.html").write_text("hello\n")
        command, client = (
            [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1"],
            get,
        )
    server = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=tmp_path,
        start_new_session=True,
    )
    load = None
    try:
        assert server.stdout is not None
        port = re.search(r"port (\d+)", server.stdout.readline())
        assert port is not None
        load = Load(client, int(port[1]))
        load.wait_for_more(20)
        names_no_flag(server.pid)
        load.wait_for_more(20)
    finally:
        kill_session(server)
        if load is not None:
            load.end()


@pytest.mark.live
def test_filter_has_no_flag() -> None:
    with (
        Path("/dev/zero").open("rb") as source,
        started(["gzip", "-c"], stdin=source, stdout=subprocess.DEVNULL) as gzip,
    ):
        time.sleep(0.3)
        names_no_flag(gzip.pid)
        assert gzip.poll() is None, "the program did not survive"
