# SPDX-License-Identifier: MIT
"""What ends a command that runs until it is told to."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
"""Signals that end a command."""


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP (the terminal is closed) raise KeyboardInterrupt meanwhile.

    SIGINT also where it was ignored: so shells start what a script runs in the background, and the
    script's ``kill -INT`` would do nothing. SIGHUP not where it was ignored, as nohup does.
    Programs are to be started outside, as exec resets what is handled, but keeps what is ignored.
    Without effect on other threads than the first: Python delivers signals to that one only.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {}
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        previous[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    ending = [signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        ending.append(signal.SIGHUP)
    for number in ending:
        previous[number] = signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def held_back() -> Iterator[Callable[[], None]]:
    """The signals that end a command wait until what this yields is called, or the block is left.

    So what takes long to begin is there as a whole, or not at all.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)

    def let_in() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    try:
        yield let_in
    finally:
        let_in()


def forget_waiting() -> None:
    """Takes back the signals that wait within ``held_back``: what they ask for is done."""
    while signal.sigtimedwait(ENDING, 0) is not None:
        pass
