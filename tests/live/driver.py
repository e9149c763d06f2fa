"""Drives the real programs: feeds their standard input, holds it open, ends them. All under a recorder or natively."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import FLAGFINDER, children, kill_session


def start(
    trace: Path, command: Sequence[str], options: Sequence[str], cwd: Path, **popen: Any
) -> subprocess.Popen[bytes]:
    """Starts the program under the recorder, in a session of its own."""
    return subprocess.Popen(
        [*FLAGFINDER, "record", "-o", str(trace), *options, "--", *command],
        cwd=cwd,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        **popen,
    )


def finish(process: subprocess.Popen[bytes], seconds: float, end: int | None) -> tuple[int, str]:
    """Waits for the recorder; after `seconds` the recorded program gets the signal `end`. Exit code and stderr."""
    try:
        try:
            _, error = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            if end is None:
                raise
            for child in children(process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, end)
            _, error = process.communicate(timeout=60)
    finally:
        kill_session(process)
    return process.returncode, error.decode(errors="replace")


def fed(
    trace: Path,
    command: Sequence[str],
    options: Sequence[str],
    cwd: Path,
    plan: Mapping[str, Any],
    env: Mapping[str, str],
) -> tuple[int, str]:
    """Feeds bytes to stdin, 50 ms apart.

    `end`: the last bytes before EOF; null, or spinning without `close`, holds the pipe open.
    """
    reader, writer = os.pipe()
    if plan.get("eof_at_once"):
        os.close(writer)
        writer = -1
    try:
        process = start(trace, command, options, cwd, stdin=reader, env={**os.environ, **env})
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
        hold = "--stop-when-spinning" in options or "kill_after" in plan
        if writer >= 0 and (not hold or plan.get("close")):
            os.close(writer)
            writer = -1
        return finish(process, plan.get("kill_after", 20 if hold else 60), signal.SIGKILL if hold else None)
    finally:
        if writer >= 0:
            os.close(writer)


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


def haproxy(trace: Path, source: Path, where: Path, spin: bool, options: Sequence[str]) -> tuple[int, str]:
    """Requests on thread 2, `show fd` on thread 1. To spin, thread 2 first blocks in Lua's read of a FIFO."""
    where.mkdir()
    os.mkfifo(where / "slow")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (where / "cfg").write_text(HAPROXY.format(run=where, src=source, port=port))
    env = {**os.environ, "SLOW_FIFO": str(where / "slow")}
    process = start(
        trace, ["haproxy", "-db", "-f", str(where / "cfg")], options, where, stdin=subprocess.DEVNULL, env=env
    )
    clients: list[subprocess.Popen[bytes]] = []

    def client(*command: str) -> subprocess.Popen[bytes]:
        clients.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        return clients[-1]

    url = f"http://127.0.0.1:{port}"
    show = ["python3", str(source / "cli.py"), str(where / "cli.sock"), "show fd"]
    try:
        _wait_for(lambda: (where / "cli.sock").exists() or process.poll() is not None, 30)
        time.sleep(1)
        if spin:
            client("curl", "-s", f"{url}/slow")
            time.sleep(0.5)
            client(*show, "60")
            return finish(process, 20, signal.SIGKILL)
        for _ in range(20):
            client("curl", "-s", f"{url}/fast").wait(timeout=20)
            client(*show).wait(timeout=20)
        return finish(process, 0.5, signal.SIGTERM)
    finally:
        for running in clients:
            running.kill()
            running.wait(timeout=10)
        kill_session(process)
