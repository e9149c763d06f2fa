# SPDX-License-Identifier: MIT
"""The process that waits beside a run of pytest until a test is over time.

In: a memory that the run shares, which says since when its test runs. Out: the story that ``why
--children`` tells of the run, in a second memory, and a signal to the run; or, where the run does
not go on by it, the story on stderr and the end of the run.

It is a process of its own, since a process can't look at itself, and since code that never lets go
of the interpreter would stop a thread, too. It is nobody's child, so a test that waits for all its
children never waits for this one. It sleeps until the earliest time at which a test can be over
time. It runs by itself, without the package and without the site's modules, to start fast.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import struct
import sys
import time
from dataclasses import dataclass

_RUNNING = struct.Struct("=Qd")  # number of the run phase, and since when; 0: none runs
_NAME = 1000  # bytes of the test's name, at most, behind that
SIZE = _RUNNING.size + _NAME

_ASKING = 60  # s, for why
_LATE = 10.0  # s beyond that, after which why is ended
_GRACE = 3.0  # s, between one signal and the next
_SIGNALS = 3  # the first may be lost where Python ignores exceptions, or end in a wait for a child
_OLDEST = 1e-9  # of a phase that runs


class Clock:
    """Which phase of which test runs, and since when, as both processes see it."""

    def __init__(self, descriptor: int) -> None:
        import mmap  # noqa: PLC0415  # costs nothing where the option is off

        self._memory = mmap.mmap(descriptor, SIZE)

    def start(self, number: int, test: str) -> None:
        """A phase (``number``) of a test begins."""
        self._memory[_RUNNING.size :] = test.encode("utf-8", "backslashreplace")[:_NAME].ljust(
            _NAME, b"\0"
        )
        _RUNNING.pack_into(self._memory, 0, number, max(time.monotonic(), _OLDEST))

    def stop(self) -> None:
        """No phase runs."""
        _RUNNING.pack_into(self._memory, 0, 0, 0.0)

    def test(self) -> str:
        """The name of the test that ran last."""
        return self._memory[_RUNNING.size :].rstrip(b"\0").decode("utf-8", "replace")

    def read(self) -> tuple[int, float]:
        """The number of the phase, 0 for none, and its beginning. Both belong together."""
        while True:
            seen: tuple[int, float] = _RUNNING.unpack_from(self._memory)
            if seen == _RUNNING.unpack_from(self._memory):
                return seen


@dataclass(frozen=True)
class _Run:
    """The run of pytest: process, the descriptors that it handed on, and the signal that it hears,
    0 for none.
    """

    pid: int
    pidfd: int
    clock: Clock
    story: int
    signal: int

    def ends_within(self, seconds: float) -> bool:
        """Waits for its end, at most so long."""
        return bool(select.select([self.pidfd], [], [], max(0.0, seconds))[0])

    def leaves(self, number: int, seconds: float) -> bool:
        """Waits for the end of the phase, or of the run, at most so long."""
        end = time.monotonic() + seconds
        while self.clock.read()[0] == number:
            if time.monotonic() > end:
                return False
            if self.ends_within(0.02):
                return True
        return True


def _watch(run: _Run, after: float) -> None:
    told = 0
    while True:
        number, begin = run.clock.read()
        left = after if number in (0, told) else begin + after - time.monotonic()
        if left > 0:
            if run.ends_within(left):
                return
        elif not _tell(run, number):
            return
        else:
            told = number


def _tell(run: _Run, number: int) -> bool:
    """Why that phase hangs, to the run; whether the run goes on."""
    found = _ask(run.pid)
    if run.clock.read()[0] != number:
        return True  # the phase has ended meanwhile
    os.ftruncate(run.story, 0)
    os.pwrite(run.story, found, 0)
    for _ in range(_SIGNALS if run.signal else 0):
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(run.pidfd, run.signal)
        if run.leaves(number, _GRACE):
            return True
    _end(run, found)
    return False


def _ask(pid: int) -> bytes:
    """The JSON object of `why`, or that of its failure."""
    import subprocess  # noqa: PLC0415  # not needed until a test is over time

    command = _module("flagfinder", "why", "--children", "--json", str(pid))
    command += ["--timeout", str(_ASKING)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.communicate(timeout=_ASKING + _LATE)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)  # it lets go of what it steps
    try:
        return process.communicate(timeout=_LATE)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return b""  # one that the kernel holds is not waited for


def _end(run: _Run, found: bytes) -> None:
    """Prints the story, and ends the run with what it started: that would hold its output open."""
    import subprocess  # noqa: PLC0415

    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(run.pidfd, signal.SIGSTOP)  # it starts no more
    command = _module("flagfinder.live.over_time", str(run.pid), run.clock.test())
    subprocess.run(command, input=found, stdout=sys.stderr)
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(run.pidfd, signal.SIGKILL)


def _module(*words: str) -> list[str]:
    """The command that runs a module of the package with these words."""
    from pathlib import Path  # noqa: PLC0415

    sys.path.append(str(Path(__file__).resolve().parents[1]))
    from flagfinder.shared.start import python  # noqa: PLC0415

    return python("-m", *words)


def _main() -> None:
    pid, memory, story, number = (int(word) for word in sys.argv[1:5])
    pidfd = os.pidfd_open(pid)
    if child := os.fork():
        print(child)
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the run reads to its end
    _watch(_Run(pid, pidfd, Clock(memory), story, number), float(sys.argv[5]))


if __name__ == "__main__":
    _main()
