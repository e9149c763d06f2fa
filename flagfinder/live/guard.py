# SPDX-License-Identifier: MIT
"""A command that may hang: started, and asked why once it does.

In: a command. Out: its exit status, or what ``why`` found in its tree of processes, which is ended
then. Until the command hangs nothing is done but waiting.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from flagfinder.live.tree import ask, descendants
from flagfinder.live.why import WhyReport
from flagfinder.shared.errors import UnavailableError, UsageError

EXIT_HUNG = 124  # as of timeout(1)
EXIT_CANNOT_START = 126
EXIT_NOT_FOUND = 127

_PR_SET_CHILD_SUBREAPER = 36
_MERCY = 2.0  # between SIGTERM and SIGKILL
_LOOKS = 10  # within the time of --idle
_LITTLE = 0.01  # of a processor: less is none


@dataclass(frozen=True)
class Hang:
    """What was found while the processes were still there: the most telling report first.

    ``because`` says how the hang was noticed. ``pids`` are the processes, the command's own first.
    """

    pids: tuple[int, ...]
    because: str
    reports: tuple[WhyReport, ...]
    notes: tuple[str, ...]


def guard(
    command: Sequence[str],
    *,
    after: float | None = None,
    idle: float | None = None,
    hung: Callable[[Hang], object],
) -> int:
    """Runs ``command``; returns its exit status as a shell would, or EXIT_HUNG.

    It hangs when it runs for ``after`` seconds, or when for ``idle`` seconds its processes read and
    wrote nothing and used less than 1 % of a processor. ``hung`` hears why; then the tree of
    processes is ended, by SIGTERM and after 2 s by SIGKILL. Raises UsageError when it can't be
    started.
    """
    family = _Family()
    # Processes whose parents end are ours then, and are found.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        process = subprocess.Popen(command)
    except OSError as error:
        failure = UsageError(
            "The command can't be started",
            f"{error.filename}: {error.strerror}",
            "Write a program, not a line of a shell: sh -c '..' runs one.",
        )
        failure.exit_code = EXIT_NOT_FOUND if isinstance(error, FileNotFoundError) else EXIT_CANNOT_START
        raise failure from None
    try:
        because = _wait(process, after, idle)
        if because is None:
            status = process.wait()
            return 128 - status if status < 0 else status
        # The command's own process is asked first, and also if it is one that waits to be reaped.
        pids = tuple(dict.fromkeys((process.pid, *family.living())))
        asked = ask(pids)
        hung(Hang(pids, because, asked.reports, asked.notes))
    finally:
        if process.returncode is None:
            _end(process, family)
    return EXIT_HUNG


def _wait(process: subprocess.Popen[bytes], after: float | None, idle: float | None) -> str | None:
    """Until the command ends: None. Else why it is said to hang."""
    descriptor = os.pidfd_open(process.pid)
    begin = time.monotonic()
    end = begin + after if after is not None else None
    step = idle / _LOOKS if idle is not None else None
    last, since = _work(process.pid), begin
    try:
        while True:
            now = time.monotonic()
            times = [time for time in (end - now if end is not None else None, step) if time is not None]
            ready, _, _ = select.select([descriptor], [], [], max(0.0, min(times)) if times else None)
            if ready:
                return None
            now = time.monotonic()
            if end is not None and now >= end:
                return f"it ran for {after:g} s"
            if idle is None:
                continue
            work = _work(process.pid)
            if work.differs(last, now - since):
                last, since = work, now
            elif now - since >= idle:
                return f"it read and wrote nothing and used no processor for {idle:g} s"
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class _Work:
    """What the processes did so far."""

    processes: frozenset[int]
    bytes: int
    ran: float  # s

    def differs(self, before: _Work, seconds: float) -> bool:
        """Whether there was work since."""
        ran = self.ran - before.ran
        return self.processes != before.processes or self.bytes != before.bytes or ran > _LITTLE * max(seconds, 1.0)


def _work(pid: int) -> _Work:
    pids = [pid, *descendants(pid)]
    done, ran = 0, 0.0
    for one in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            text = Path(f"/proc/{one}/io").read_text(encoding="ascii")
            done += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith(("rchar", "wchar")))
        for task in Path(f"/proc/{one}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                ran += int(task.read_text(encoding="ascii").split()[0]) / 1e9
    return _Work(frozenset(pids), done, ran)


class _Family:
    """What this process starts from now on, and what that starts."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._before = set(descendants(self._pid))

    def living(self) -> list[int]:
        """In the order of generations."""
        return [pid for pid in descendants(self._pid) if pid not in self._before]


def _end(process: subprocess.Popen[bytes], family: _Family) -> None:
    """All that the command started, and what that starts meanwhile."""
    deadline = time.monotonic() + _MERCY
    asked: set[int] = set()
    while left := family.living():
        late = time.monotonic() > deadline
        if time.monotonic() > deadline + 10:
            raise UnavailableError(
                "Processes of the command don't end",
                ", ".join(map(str, left)),
                "They are in uninterruptible calls; look at `ps -o pid,stat,wchan`.",
            )
        for pid in left:
            if late or pid not in asked:
                asked.add(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
                    os.kill(pid, signal.SIGCONT)  # who is stopped hears no SIGTERM
        time.sleep(0.02)
    process.wait()
    for pid in asked - {process.pid}:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)  # one whose parent ended before it
