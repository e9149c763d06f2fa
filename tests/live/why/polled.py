# SPDX-License-Identifier: MIT
"""Threads that poll in Python: ``polled.py attribute | global | list | event | lambda | nobody``.
The thread that is to blame says so: ``BLAMED tid``.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

ready = False
never_ready = False
jobs: list[object] = []


class Job:
    """The object that the threads poll."""

    def __init__(self) -> None:
        self.done = False


def blamed() -> None:
    """Prints the id of the thread to blame."""
    print(f"BLAMED {threading.get_native_id()}", flush=True)


def work(job: Job) -> None:
    """Sleeps, then says that it is done."""
    blamed()
    time.sleep(100000)
    job.done = True


def prepare() -> None:
    """Sleeps, then is ready."""
    global ready  # noqa: PLW0603 - so do programs
    blamed()
    time.sleep(100000)
    ready = True


def answer(event: threading.Event) -> None:
    """Sleeps, then sets the event."""
    blamed()
    time.sleep(100000)
    event.set()


def fill(jobs: list[object]) -> None:
    """Sleeps, then adds one."""
    blamed()
    time.sleep(100000)
    jobs.append(Job())


def idle(job: Job) -> None:
    """It set the polled object long ago, to the value that it still has."""
    job.done = False
    while True:
        time.sleep(1000)


def until(asks: Callable[[], bool]) -> None:
    """Polls what its caller hands over."""
    while not asks():
        time.sleep(0.01)


def main() -> None:
    job, event = Job(), threading.Event()
    start = {
        "attribute": (work, (job,)),
        "global": (prepare, ()),
        "list": (fill, (jobs,)),
        "event": (answer, (event,)),
        "lambda": (work, (job,)),
    }
    threading.Thread(target=idle, args=(job,), daemon=True).start()
    if sys.argv[1] in start:
        run, arguments = start[sys.argv[1]]
        threading.Thread(target=run, args=arguments, daemon=True).start()
    print("STARTED", flush=True)
    if sys.argv[1] == "attribute":
        while not job.done:
            time.sleep(0.01)
    elif sys.argv[1] == "global":
        while not ready:
            time.sleep(0.01)
    elif sys.argv[1] == "list":
        while not jobs:
            time.sleep(0.01)
    elif sys.argv[1] == "event":
        while not event.is_set():
            time.sleep(0.01)
    elif sys.argv[1] == "lambda":
        until(lambda: job.done)
    else:
        while not never_ready:
            time.sleep(0.01)


main()
