# SPDX-License-Identifier: MIT
"""What `flagfinder spin` costs its patients: spin_safety.py [--help].

Looks at running programs again and again, and at some it is killed in the middle. Each patient
checks itself: a server whose clients check its answers, and a program with threads that checks its
own results. Asserts nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import machine, median, table
from workloads import compile_c

SPIN = [sys.executable, "-P", "-m", "flagfinder", "spin"]

# One thread polls a flag that nobody sets, the others compute the same thing again and again.
_PYTHON = """
import hashlib, signal, sys, threading, time
state = {"done": False, "wrong": 0, "rounds": 0}
signal.signal(signal.SIGTERM, lambda *_: state.update(done=True))
def chain():
    text = b"x"
    for _ in range(2000):
        text = hashlib.sha256(text).digest()
    return text
right = chain()
def compute():
    while not state["done"]:
        state["wrong"] += chain() != right
        state["rounds"] += 1
def poll():
    while not state["done"]:
        time.sleep(0)
threads = [threading.Thread(target=target) for target in (poll, compute, compute)]
for thread in threads: thread.start()
while not state["done"]:
    time.sleep(0.01)
for thread in threads: thread.join()
sys.exit(0 if state["rounds"] and not state["wrong"] else 1)
"""


@dataclass
class Patient:
    """A process to look at; ``ends_well()`` ends it and tells whether all its results were
    right.
    """

    pid: int
    ends_well: Callable[[], bool]


@contextlib.contextmanager
def _program(command: list[str]) -> Iterator[Patient]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def ends_well() -> bool:
        process.terminate()
        return process.wait(timeout=60) == 0

    try:
        time.sleep(1)
        yield Patient(process.pid, ends_well)
    finally:
        process.kill()
        process.wait()


def _spinner(scratch: Path) -> contextlib.AbstractContextManager[Patient]:
    return _program([str(compile_c("patient", scratch))])


def _python(_scratch: Path) -> contextlib.AbstractContextManager[Patient]:
    return _program(["/usr/bin/python3", "-c", _PYTHON])


@contextlib.contextmanager
def _redis(scratch: Path) -> Iterator[Patient]:
    """A redis under load, with one client that knows each answer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    words = ["redis-server", "--port", str(port), "--save", "", "--dir", str(scratch)]
    server = subprocess.Popen(words, **quiet)
    time.sleep(1)
    load = subprocess.Popen(
        ["redis-benchmark", "-p", str(port), "-l", "-q", "-t", "set,get", "-c", "8"], **quiet
    )
    over, right = threading.Event(), [0]

    def client() -> None:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            answers = connection.makefile("rb")
            while not over.is_set():
                connection.sendall(b"INCR count\r\n")
                if answers.readline() != b":%d\r\n" % (right[0] + 1):
                    return
                right[0] += 1

    checker = threading.Thread(target=client)
    checker.start()

    def ends_well() -> bool:
        counted = right[0]
        time.sleep(0.5)
        goes_on = right[0] > counted and server.poll() is None
        over.set()
        checker.join(timeout=10)
        return goes_on

    try:
        yield Patient(server.pid, ends_well)
    finally:
        over.set()
        for process in (load, server):
            process.kill()
            process.wait()


Start = Callable[[Path], contextlib.AbstractContextManager[Patient]]
PATIENTS: dict[str, Start] = {
    "C, signals, flags saved": _spinner,
    "Python, 3 threads": _python,
    "redis under load": _redis,
}
NEEDS: dict[Start, str] = {_redis: "redis-server"}


def main() -> int:
    """Measures, prints Markdown on stdout and progress on stderr."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=200, help="looks at each patient (default 200)"
    )
    parser.add_argument(
        "--kills", type=int, default=50, help="looks that are killed midway (default 50)"
    )
    options = parser.parse_args()
    print(f"{machine()}\n")
    patients = {
        name: start for name, start in PATIENTS.items() if shutil.which(NEEDS.get(start, "true"))
    }
    for name in PATIENTS.keys() - patients.keys():
        print(f"{name}: left out, {NEEDS[PATIENTS[name]]} is not installed", file=sys.stderr)
    rows = []
    with tempfile.TemporaryDirectory(prefix="ff-bench-") as directory:
        for name, start in patients.items():
            with start(Path(directory)) as patient:
                seconds, pauses, flags = [], [], 0
                for _ in range(options.rounds):
                    begin = time.monotonic()
                    ran = subprocess.run(
                        [*SPIN, "--json", str(patient.pid)], capture_output=True, text=True
                    )
                    seconds.append(time.monotonic() - begin)
                    if ran.returncode not in (0, 1):
                        print(ran.stderr, file=sys.stderr)
                        break
                    threads = json.loads(ran.stdout)["threads"]
                    pauses += [thread["pause_ms"] for thread in threads if thread["steps"]]
                    flags += any(thread["flags"] for thread in threads)
                for _ in range(options.kills):
                    command = subprocess.Popen(
                        [*SPIN, str(patient.pid)],
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                    )
                    time.sleep(0.3 + random.random() * 0.6)
                    command.kill()
                    command.wait()
                time.sleep(3)  # until the helpers have let go
                traced = any(
                    "TracerPid:\t0" not in path.read_text() for path in _statuses(patient.pid)
                )
                well = patient.ends_well() and not traced
                times = (median(seconds), max(seconds), median(pauses), max(pauses))
                counts = (len(seconds), options.kills, flags, "yes" if well else "NO")
                rows.append([name, *map(str, counts), *(f"{value:.3g}" for value in times)])
                print(*rows[-1], sep=", ", file=sys.stderr)
    heads = [
        "patient",
        "looks",
        "killed",
        "flags",
        "all right",
        "seconds",
        "greatest",
        "ms paused",
        "greatest",
    ]
    print(table(heads, rows))
    return 0


def _statuses(pid: int) -> list[Path]:
    return list(Path(f"/proc/{pid}/task").glob("*/status"))


if __name__ == "__main__":
    sys.exit(main())
