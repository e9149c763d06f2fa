# SPDX-License-Identifier: MIT
"""Whether a command still does something: it reads, writes or computes, or what it started does."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from flagfinder.live.tree import descendants
from flagfinder.shared.record import dataclass

_LOOKS = 10  # within the time of --idle
_REAPED = 0.5  # s: what has ended is let go so often
_LITTLE = 0.01  # of a processor: less is none


def wait(
    process: subprocess.Popen[bytes],
    after: float | None,
    idle: float | None,
    reap: Callable[[int], None],
) -> str | None:
    """Waits until the command ends: None; or until it hangs: why that is said. ``reap`` is called
    again and again with the process that is waited for.
    """
    descriptor = os.pidfd_open(process.pid)
    begin = time.monotonic()
    end = begin + after if after is not None else None
    step = idle / _LOOKS if idle is not None else None
    last, since = _work(process.pid), begin
    looks = begin
    try:
        while True:
            now = time.monotonic()
            times = [
                time for time in (end - now if end is not None else None, step) if time is not None
            ]
            ready, _, _ = select.select([descriptor], [], [], max(0.0, min((*times, _REAPED))))
            if ready:
                return None
            reap(process.pid)
            now = time.monotonic()
            if end is not None and now >= end:
                return f"it ran for {after:g} s"
            if idle is None or step is None or now < looks:
                continue
            looks = now + step
            work = _work(process.pid)
            if work.differs(last, now - since):
                last, since = work, now
            elif now - since >= idle:
                return f"it read and wrote nothing and used no processor for {idle:g} s"
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Work:
    """What the processes did so far."""

    processes: frozenset[int]
    bytes: int
    ran: float  # s
    wanted: float  # s: with the time that they waited for a processor

    def differs(self, before: Work, seconds: float) -> bool:
        """Whether there was work since."""
        ran = self.ran - before.ran
        return (
            self.processes != before.processes
            or self.bytes != before.bytes
            or ran > _LITTLE * max(seconds, 1.0)
        )


def _work(pid: int) -> Work:
    return work_of([pid, *descendants(pid)])


def work_of(pids: list[int]) -> Work:
    """What these processes did so far, as far as they live and may be looked at."""
    living: list[int] = []
    done, ran, waited = 0, 0.0, 0.0
    for one in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            text = Path(f"/proc/{one}/io").read_text(encoding="ascii")
            living.append(one)
            done += sum(
                int(line.split()[1])
                for line in text.splitlines()
                if line.startswith(("rchar", "wchar"))
            )
        for task in Path(f"/proc/{one}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                times = task.read_text(encoding="ascii").split()
                ran += int(times[0]) / 1e9
                waited += int(times[1]) / 1e9
    return Work(frozenset(living), done, ran, ran + waited)
