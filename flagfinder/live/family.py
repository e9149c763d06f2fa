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
from flagfinder.live.tree import NOT_OURS, LeftProcess, descendants, stats

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_MERCY = 2.0  # s between SIGTERM and SIGKILL
_ENDS = 10.0  # s that a process may take to end then
_STUCK = 1.5  # s of that for one which is in an uninterruptible call
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
        self._before = set(descendants(self._pid))

    def living(self) -> list[int]:
        """The processes that live: parents before their children. Those that ask for us, or open
        files for us, are none of them.
        """
        others = self._before | apart.asking() | set(_core.file_openers())
        return [pid for pid in descendants(self._pid) if pid not in others]

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
        asked: set[int] = set()
        refused: set[int] = set()
        while left := [pid for pid in self.living() if pid not in refused]:
            passed = time.monotonic() - begin
            is_late = passed > _MERCY
            if passed > _MERCY + _ENDS or (passed > _MERCY + _STUCK and _stuck(left)):
                break
            for pid in left:
                if is_late or pid not in asked:
                    asked.add(pid)
                    try:
                        os.kill(pid, signal.SIGKILL if is_late else signal.SIGTERM)
                        os.kill(pid, signal.SIGCONT)  # a stopped process does not handle SIGTERM
                    except ProcessLookupError:
                        continue
                    except PermissionError:
                        refused.add(pid)
            time.sleep(0.02)
        # The command's own process may be one of those that are left.
        process.poll()
        living = self.living()
        return [
            LeftProcess.of(pid, NOT_OURS if pid in refused else _UNINTERRUPTIBLE)
            for pid in living
            if pid in refused or pid in left
        ]


def _ended_children() -> Iterator[int]:
    """Children of this process that have ended, and that nobody has waited for."""
    for pid, parent, state in stats():
        if parent == os.getpid() and state == "Z":
            yield pid


def _stuck(pids: list[int]) -> bool:
    """Whether each of them waits in the kernel without being interruptible."""
    return all(any(task.state == "D" for task in apart.tasks(pid)) for pid in pids)
