# SPDX-License-Identifier: MIT
"""What this process starts from now on, and what that starts: to be found, and to be ended."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterator

from flagfinder import _core
from flagfinder.live import apart
from flagfinder.live.tree import (
    NOT_OURS,
    LeftProcess,
    Process,
    descended,
    stats,
)

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_MERCY = 2.0  # s between SIGTERM and SIGKILL
_ENDS = 10.0  # s that a process may take to end then
_STUCK = 1.5  # s in uninterruptible calls: no signal reaches it
_LAST = 1.0  # s that it gets then to end by SIGKILL
_LOOK = 0.25  # s between looks at whether it is
_UNINTERRUPTIBLE = "it is in a call of the kernel that does not return; see `ps -o pid,stat,wchan`"


class Family:
    """What this process starts from now on, and what that starts."""

    def __init__(self) -> None:
        # Processes whose parents end are ours then, and are found.
        self._was_reaper = ctypes.c_int()
        self._libc = ctypes.CDLL(None)
        self._libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(self._was_reaper), 0, 0, 0)
        self._libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._pid = os.getpid()
        self._ended_before = set(_ended_children())
        self._before = set(descended(self._pid))

    def living(self) -> list[int]:
        """The processes that live: parents before their children. Those that ask for us, or open
        files for us, are none of them.
        """
        return [one.pid for one in self._living()]

    def _living(self) -> list[Process]:
        asking = apart.asking() | set(_core.file_openers())
        own = (one for one in descended(self._pid) if one not in self._before)
        return [one for one in own if one.pid not in asking]

    def leave(self) -> None:
        """No more is to be found. What has ended leaves nothing behind in a process that goes on,
        and what ends from now on is not ours.
        """
        self._libc.prctl(_PR_SET_CHILD_SUBREAPER, self._was_reaper.value, 0, 0, 0)
        self.reap()

    def reap(self, but: int = 0) -> None:
        """Lets go what has ended and whose parent ended before it, as init would: whoever waits for
        the end of such a process looks whether it is still there. ``but``: a process that somebody
        waits for.
        """
        kept = {but, *self._ended_before, *apart.asking(), *_core.file_openers()}
        for pid in set(_ended_children()) - kept:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)

    def end(self, process: subprocess.Popen[bytes]) -> list[LeftProcess]:
        """Ends the process, all that it started, and what that starts meanwhile. Returns those that
        can't be ended: they belong to another user, or sit in a call of the kernel that does not
        return.
        """
        begin = time.monotonic()
        asked: set[Process] = set()
        refused: set[Process] = set()
        stuck = _Stuck()
        while left := [one for one in self._living() if one not in refused]:
            passed = time.monotonic() - begin
            stuck_for = stuck.look(left)
            is_late = passed > _MERCY or stuck_for > _STUCK
            if passed > _MERCY + _ENDS or stuck_for > _STUCK + _LAST:
                break
            for one in left:
                if is_late or one not in asked:
                    asked.add(one)
                    try:
                        one.send(signal.SIGKILL if is_late else signal.SIGTERM)
                        one.send(signal.SIGCONT)  # a stopped process does not handle SIGTERM
                    except ProcessLookupError:
                        continue
                    except PermissionError:
                        refused.add(one)
            time.sleep(0.02)
        # The command's own process may be one of those that are left.
        process.poll()
        return [
            LeftProcess.of(one.pid, NOT_OURS if one in refused else _UNINTERRUPTIBLE)
            for one in self._living()
            if one in refused or one in left
        ]


def _ended_children() -> Iterator[int]:
    """Children of this process that have ended, and that nobody has waited for."""
    for one in stats():
        if one.parent == os.getpid() and one.state == "Z":
            yield one.process.pid


class _Stuck:
    """For how long each process that is left has waited in the kernel without being interruptible,
    at all looks.
    """

    def __init__(self) -> None:
        self._since = self._looked = time.monotonic()

    def look(self, left: list[Process]) -> float:
        """In seconds, until the last look."""
        now = time.monotonic()
        if now - self._looked >= _LOOK:
            self._looked = now
            if not all(any(task.state == "D" for task in apart.tasks(one.pid)) for one in left):
                self._since = now
        return self._looked - self._since
