# SPDX-License-Identifier: MIT
"""What this process starts from now on, and what that starts: to be found, and to be ended."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time

from flagfinder.live.tree import descendants
from flagfinder.shared.errors import UnavailableError

_PR_SET_CHILD_SUBREAPER = 36
_MERCY = 2.0  # between SIGTERM and SIGKILL


class Family:
    """What this process starts from now on, and what that starts."""

    def __init__(self) -> None:
        # Processes whose parents end are ours then, and are found.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._pid = os.getpid()
        self._before = set(descendants(self._pid))

    def living(self) -> list[int]:
        """The processes that live: parents before their children."""
        return [pid for pid in descendants(self._pid) if pid not in self._before]

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """Ends the process, all that it started, and what that starts meanwhile. Raises
        UnavailableError where some can't be ended.
        """
        deadline = time.monotonic() + _MERCY
        asked: set[int] = set()
        while left := self.living():
            late = time.monotonic() > deadline
            if time.monotonic() > deadline + 10:
                raise UnavailableError(
                    "Processes of the command don't end",
                    ", ".join(map(str, left)),
                    "They are in uninterruptible calls; look at `ps -o pid,stat,wchan`.",
                    "All others have ended.",
                )
            for pid in left:
                if late or pid not in asked:
                    asked.add(pid)
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
                        os.kill(pid, signal.SIGCONT)  # a stopped process does not handle SIGTERM
            time.sleep(0.02)
        process.wait()
        for pid in asked - {process.pid}:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)  # one whose parent ended before it
