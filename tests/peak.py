# SPDX-License-Identifier: MIT
"""What a command needed of memory, with all processes that it started and waited for: the largest
one counts.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20


@dataclass(frozen=True)
class Ran:
    """How a command ended, and the most memory that it had at once."""

    returncode: int
    stdout: str
    stderr: str
    peak_bytes: int


def measured(
    command: Sequence[object],
    folder: Path,
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
) -> Ran:
    """Runs a command to its end. What it prints goes through files in the folder."""
    out, err = folder / "measured.out", folder / "measured.err"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
        over = threading.Timer(timeout, os.killpg, [process.pid, signal.SIGKILL])
        over.start()
        try:
            _, status, used = os.wait4(process.pid, 0)
        finally:
            over.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    stdout_text, stderr_text = (path.read_text(errors="replace") for path in (out, err))
    return Ran(process.returncode, stdout_text, stderr_text, used.ru_maxrss * 1024)
