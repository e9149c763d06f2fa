# SPDX-License-Identifier: MIT
"""What is recorded by events_speed.py: a redis server, a PostgreSQL server and a pipe, each with
its client.

In: a scratch folder. Out: commands that load them. Needs redis-server, postgresql and perf; what is
not there is left out.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Load:
    """A server that runs, and the client that loads it. ``pid``: the server's, None when there is
    none.
    """

    name: str
    command: list[str]
    pid: int | None


def _until(ready: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not ready():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} did not start within a minute")
        time.sleep(0.1)


@contextlib.contextmanager
def redis(scratch: Path, requests: int) -> Iterator[Load]:
    """redis-benchmark's GET and SET over a Unix socket, 50 clients."""
    socket = scratch / "redis.sock"
    options = ["--port", "0", "--unixsocket", str(socket), "--save", "", "--daemonize", "no"]
    server = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL, cwd=scratch)
    try:
        _until(socket.exists, "redis-server")
        client = ["redis-benchmark", "-s", str(socket), "-q", "-t", "get,set", "-n", str(requests)]
        yield Load("redis", client, server.pid)
    finally:
        server.terminate()
        server.wait(timeout=60)


def _postgres(program: str) -> str | None:
    newest = max(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"), default=None)
    return shutil.which(program) or (str(newest) if newest else None)


@contextlib.contextmanager
def pgbench(scratch: Path, transactions: int) -> Iterator[Load]:
    """pgbench -S over a Unix socket, 4 clients. The server does not run as root."""
    folder = scratch / "postgres"
    folder.mkdir()
    user: list[str] = []
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
        user = ["runuser", "-u", "postgres", "--"]
    data = str(folder / "data")
    initdb, control, bench = (_postgres(name) for name in ("initdb", "pg_ctl", "pgbench"))
    assert initdb and control and bench
    quiet: dict[str, Any] = {
        "check": True,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
        "cwd": "/",
    }
    subprocess.run([*user, initdb, "-D", data, "-A", "trust", "--no-sync"], **quiet)
    settings = f"-k {folder} -h '' -c fsync=off"
    subprocess.run(
        [*user, control, "-D", data, "-w", "-o", settings, "-l", f"{folder}/log", "start"], **quiet
    )
    try:
        connection = ["-h", str(folder)]
        subprocess.run([*user, bench, *connection, "-i", "-s", "5", "postgres"], **quiet)
        client = [*user, bench, *connection, "-S", "-c", "4", "-t", str(transactions), "postgres"]
        pid = int(Path(data, "postmaster.pid").read_text().splitlines()[0])
        yield Load("pgbench", client, pid)
    finally:
        subprocess.run([*user, control, "-D", data, "-m", "immediate", "stop"], **quiet)


@contextlib.contextmanager
def pipe(scratch: Path, rounds: int) -> Iterator[Load]:  # noqa: ARG001 (all loads are made alike)
    """Two processes that hand each other the turn through pipes, as fast as they can: nothing but
    wakes.
    """
    yield Load("pipe", ["perf", "bench", "sched", "pipe", "-l", str(rounds)], None)


def available() -> list[str]:
    """Names of the loads whose programs are installed."""
    found = {
        "redis": shutil.which("redis-server") and shutil.which("redis-benchmark"),
        "pgbench": _postgres("initdb") and _postgres("pgbench"),
        "pipe": shutil.which("perf"),
    }
    return [name for name, there in found.items() if there]
