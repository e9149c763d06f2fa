# SPDX-License-Identifier: MIT
"""Drives the real programs: feeds their standard input, holds it open, ends them. All under a
recorder or natively.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import FLAGFINDER, kill_session, recorded


def recorder(trace: Path, options: Sequence[str]) -> list[str]:
    """What stands before a command that is recorded; before one that is not stands nothing."""
    return [*FLAGFINDER, "record", "-o", str(trace), *options, "--"]


def start(command: Sequence[str], cwd: Path, **popen: Any) -> subprocess.Popen[bytes]:
    """Starts the program in a session of its own."""
    return subprocess.Popen(
        command,
        cwd=cwd,
        start_new_session=True,
        **{"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, **popen},
    )


def finish(process: subprocess.Popen[bytes], seconds: float, end: int | None) -> tuple[int, str]:
    """Waits for the recorder; after `seconds` the recorded program gets the signal `end`. Exit code
    and stderr.
    """
    try:
        try:
            _, error = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            if end is None:
                raise
            for child in recorded(process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, end)
            _, error = process.communicate(timeout=60)
    finally:
        kill_session(process)
    return process.returncode, error.decode(errors="replace")


@contextlib.contextmanager
def feeding(
    command: Sequence[str],
    plan: Mapping[str, Any],
    hold: bool,
    cwd: Path,
    env: Mapping[str, str],
    **popen: Any,
) -> Iterator[subprocess.Popen[bytes]]:
    """A program whose stdin was fed bytes, 50 ms apart.

    `end`: the last bytes before EOF; null, or `hold` without `close`, holds the pipe open.
    """
    reader, writer = os.pipe()
    if plan.get("eof_at_once"):
        os.close(writer)
        writer = -1
    try:
        process = start(command, cwd, stdin=reader, env={**os.environ, **env}, **popen)
        os.close(reader)
        if writer >= 0:
            time.sleep(1)  # start-up under the tracer
            for _ in range(plan["times"]):
                if plan["feed"]:
                    with contextlib.suppress(BrokenPipeError):
                        os.write(writer, plan["feed"].encode())
                time.sleep(0.05)
            if plan["end"]:
                os.write(writer, plan["end"].encode())
        if writer >= 0 and (not hold or plan.get("close")):
            os.close(writer)
            writer = -1
        yield process
    finally:
        if writer >= 0:
            os.close(writer)


def fed(
    trace: Path,
    command: Sequence[str],
    options: Sequence[str],
    cwd: Path,
    plan: Mapping[str, Any],
    env: Mapping[str, str],
) -> tuple[int, str]:
    """Records a program that is fed as `plan` says, to its end. Exit code and stderr."""
    hold = "--stop-when-spinning" in options or "kill_after" in plan
    with feeding([*recorder(trace, options), *command], plan, hold, cwd, env) as process:
        return finish(
            process, plan.get("kill_after", 20 if hold else 60), signal.SIGKILL if hold else None
        )


HAPROXY = """global
  nbthread 2
  stats socket {run}/cli.sock level admin thread 1
  lua-load-per-thread {src}/block.lua
defaults
  mode http
  timeout client 300s
  timeout server 300s
  timeout connect 5s
frontend f
  bind 127.0.0.1:{port} thread 2
  http-request lua.block
  http-request return status 200 content-type text/plain string "ok"
"""


def _wait_for(what: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            raise TimeoutError("the server did not come up")
        time.sleep(0.1)


@dataclass
class Server:
    """A haproxy that answers."""

    process: subprocess.Popen[bytes]
    url: str
    show: list[str]
    clients: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def client(self, *command: str) -> subprocess.Popen[bytes]:
        self.clients.append(
            subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )
        return self.clients[-1]

    def hang(self) -> None:
        """Thread 2 blocks in Lua's read of a FIFO; then thread 1 waits for it."""
        self.client("curl", "-s", f"{self.url}/slow")
        time.sleep(0.5)
        self.client(*self.show, "60")


@contextlib.contextmanager
def serving(before: Sequence[str], source: Path, where: Path, **popen: Any) -> Iterator[Server]:
    """Requests on thread 2, `show fd` on thread 1. `before` stands before the command."""
    where.mkdir()
    os.mkfifo(where / "slow")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (where / "cfg").write_text(HAPROXY.format(run=where, src=source, port=port))
    env = {**os.environ, "SLOW_FIFO": str(where / "slow")}
    command = [*before, "haproxy", "-db", "-f", str(where / "cfg")]
    process = start(command, where, stdin=subprocess.DEVNULL, env=env, **popen)
    show = ["python3", str(source / "cli.py"), str(where / "cli.sock"), "show fd"]
    server = Server(process, f"http://127.0.0.1:{port}", show)
    try:
        _wait_for(lambda: (where / "cli.sock").exists() or process.poll() is not None, 30)
        time.sleep(1)
        yield server
    finally:
        for running in server.clients:
            running.kill()
            running.wait(timeout=10)
        kill_session(process)


def haproxy(
    trace: Path, source: Path, where: Path, spin: bool, options: Sequence[str]
) -> tuple[int, str]:
    """Records one that hangs, or one that serves. Exit code and stderr."""
    with serving(recorder(trace, options), source, where) as server:
        if spin:
            server.hang()
            return finish(server.process, 20, signal.SIGKILL)
        for _ in range(20):
            server.client("curl", "-s", f"{server.url}/fast").wait(timeout=20)
            server.client(*server.show).wait(timeout=20)
        return finish(server.process, 0.5, signal.SIGTERM)
