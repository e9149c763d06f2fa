# SPDX-License-Identifier: MIT
"""A plugin of pytest: a test that runs for too long fails, and its report says why it hangs.

Every run of pytest where flagfinder is installed imports this module, so it lies beside the
package ``flagfinder`` and imports that once a test is over time, not before. A test costs two
writes to memory until then. ``watchdog.py``, a process beside this one, asks ``why`` and sends a
signal, whose handler raises in the test.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from types import FrameType

import pytest

from flagfinder_pytest import watchdog

# Probably no library uses this real-time signal: they take them from the lower end.
_SIGNAL = signal.SIGRTMAX - 2
_PR_SET_PTRACER = 0x59616D61


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("flagfinder").addoption(
        "--flagfinder-after",
        type=_seconds,
        metavar="SECONDS",
        help="a test whose set-up, call or tear-down runs for longer fails, and its report says "
        "why it hangs",
    )


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 86400 * 365:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return value


def _let_trace(pid: int) -> None:
    """Lets this process trace us besides its ancestors; 0: nobody."""
    import ctypes  # noqa: PLC0415  # not without the option

    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, pid, 0, 0, 0)


def _stacks() -> Generator[str]:
    """Where the other threads are in Python code, by the ids that the story names them by."""
    import traceback  # noqa: PLC0415  # once a test is over time

    from flagfinder.shared.visible import visible  # noqa: PLC0415

    frames = sys._current_frames()
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread.ident in frames:
            lines = traceback.format_stack(frames[thread.ident])
            yield visible(f"thread {thread.native_id} is in:\n{''.join(lines)}".rstrip(), keep="\n")


def pytest_configure(config: pytest.Config) -> None:
    """Nothing is done without the option."""
    after = config.getoption("--flagfinder-after")
    if after is not None:
        config.pluginmanager.register(_OverTime(after), "flagfinder-over-time")


class _OverTime:
    """Tells the watchdog which phase of a test runs, and fails the one that it has told of."""

    def __init__(self, after: float) -> None:
        self._after = after
        self._pid = os.getpid()
        self._number = 0  # of the phase that ran last
        self._running = False
        self._telling = False  # the handler runs: another signal is too early
        self._stories: dict[str, str] = {}  # of tests whose report is not made yet
        self._test = ""
        self._clock: watchdog.Clock | None = None
        self._before: signal.Handlers | Callable[[int, FrameType | None], object] | int | None = (
            None
        )
        self._watchdog = -1
        # The real one: pytest replaces it while a test runs.
        self._stderr = os.dup(2)

    def _start(self) -> None:
        """Starts the watchdog, before the first test: where xdist spreads tests, this process runs
        none.
        """
        import subprocess  # noqa: PLC0415  # not without the option

        memory = os.memfd_create("flagfinder-clock")
        os.ftruncate(memory, watchdog.SIZE)
        self._story = os.memfd_create("flagfinder-story")
        number = 0
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(_SIGNAL, self._raise)
            number = int(_SIGNAL)
        words = [str(self._pid), str(memory), str(self._story), str(number), str(self._after)]
        started = subprocess.run(
            [sys.executable, "-I", "-S", watchdog.__file__, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            pass_fds=(memory, self._story),
            start_new_session=True,
            check=True,
        )
        pid = int(started.stdout)
        self._watchdog = os.pidfd_open(pid)
        # Yama lets nobody but its ancestors look at a process, unless it allows one more.
        _let_trace(pid)
        self._clock = watchdog.Clock(memory)
        os.close(memory)

    def pytest_unconfigure(self) -> None:
        """Ends the watchdog: no signal comes after that."""
        os.close(self._stderr)
        if self._clock is None or os.getpid() != self._pid:
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._watchdog, signal.SIGKILL)
        _let_trace(0)
        if self._before is not None:
            signal.signal(_SIGNAL, self._before)
        os.close(self._watchdog)
        os.close(self._story)

    @contextlib.contextmanager
    def _phase(self, item: pytest.Item) -> Generator[None]:
        if os.getpid() != self._pid:  # a test that forked
            yield
            return
        if self._clock is None:
            self._start()
        assert self._clock is not None
        self._test = item.nodeid
        self._number += 1
        self._running = True
        self._clock.start(self._number, item.nodeid)
        try:
            yield
        finally:
            self._running = False
            self._clock.stop()

    def _raise(self, _signal: int, _frame: FrameType | None) -> None:
        """The handler: it runs in the main thread, wherever that is."""
        __tracebackhide__ = True
        if not self._running or os.getpid() != self._pid or self._clock is None:
            return  # the test ended just now
        if self._clock.read()[0] != self._number or self._telling:
            return
        self._telling = True
        from flagfinder.live.over_time import story  # noqa: PLC0415  # once a test is over time

        root, text = story(os.pread(self._story, os.fstat(self._story).st_size, 0))
        self._stories[self._test] = "\n\n".join((text, *_stacks()))
        self._telling = False
        pytest.fail(f"it runs for longer than {self._after:g} s: {root}")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        """The clock of a set-up."""
        with self._phase(item):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """The clock of a test's own function."""
        with self._phase(item):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        """The clock of a tear-down."""
        with self._phase(item):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Adds the story to the report of a test that hung."""
        report = yield
        text = self._stories.pop(item.nodeid, None)
        if text is not None:
            report.sections.append(("flagfinder why", text))
            # The test may have swallowed the exception.
            if report.outcome == "passed":
                report.outcome = "failed"
                report.longrepr = f"it ran for longer than {self._after:g} s"
        return report

    def pytest_enter_pdb(self) -> None:
        """While a debugger is open, no time counts."""
        if self._clock is not None:
            self._clock.stop()
