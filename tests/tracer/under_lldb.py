# SPDX-License-Identifier: MIT
"""Programs that are busy by themselves, for lldb to attach to."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from harness import live_or_skip, run, started

from flagfinder.shared.lldb_helper import find_lldb

PATIENCE = 60


def need_lldb() -> None:
    """Skips, or fails where live tests are required."""
    if find_lldb() is None:
        live_or_skip("there is no lldb")


def batch(program: Path, lines: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """What lldb prints to these commands about a program."""
    debugger = find_lldb()
    assert debugger is not None
    words = [word for line in lines for word in ("-o", line)]
    command = [debugger, "--no-lldbinit", "--batch", *words, program]
    return run(command, timeout=PATIENCE * 3)


def until(true: Callable[[], bool]) -> None:
    """Waits until it holds."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def ticks(process: subprocess.Popen[bytes]) -> int:
    """The processor time that it has used outside the kernel."""
    return int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11])


@contextmanager
def running(
    *command: str | Path, log: Path = Path(os.devnull)
) -> Iterator[subprocess.Popen[bytes]]:
    """The program, its thread in the loop: nothing but that takes so long. ``log`` gets what it
    writes to stderr.
    """
    with log.open("wb") as out, started(command, stderr=out, stdin=subprocess.DEVNULL) as process:
        until(lambda: ticks(process) >= os.sysconf("SC_CLK_TCK") // 5)
        yield process
