# SPDX-License-Identifier: MIT
"""Running programs that check themselves, for spin_safety.py.

In: a folder. Out: a process, how much work it has done, what it does with signals, whether all that
it should do was done.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workloads import PYTHON, compile_c

_QUIET: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
_WORDS = 2 + 64 * 4  # rounds, answers, and for each signal what the kernel has

# One thread polls a flag that nobody sets, the others compute the same thing again and again.
_PYTHON = """
import ctypes, hashlib, mmap, os, signal, struct, sys, threading, time
words = 2 + 64 * 4
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
os.ftruncate(file, words * 8)
told = mmap.mmap(file, words * 8)
state = {"done": False, "wrong": 0, "rounds": 0, "answers": 0}
libc = ctypes.CDLL(None)
def tell(*_):
    action = ctypes.create_string_buffer(32)
    for number in range(1, 65):
        if libc.syscall(13, number, None, action, 8) == 0:
            told[16 + (number - 1) * 32:16 + number * 32] = action.raw
    state["answers"] += 1
    told[8:16] = struct.pack("Q", state["answers"])
signal.signal(signal.SIGTERM, lambda *_: state.update(done=True))
signal.signal(signal.SIGTRAP, lambda *_: state.update(wrong=1000))
signal.signal(signal.SIGUSR2, tell)
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
        told[0:8] = struct.pack("Q", state["rounds"])
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
    """A process to look at. ``ends_well()`` ends it and tells whether all that it did was right;
    ``handlers()`` is what it does with each signal, as far as it can be asked.
    """

    pid: int
    work: Callable[[], float]
    ends_well: Callable[[], bool]
    handlers: Callable[[], bytes] = bytes


@contextlib.contextmanager
def _program(scratch: Path, *command: str | Path) -> Iterator[Patient]:
    told = scratch / "told"
    process = subprocess.Popen([*command, str(told)], **_QUIET)

    def words() -> tuple[int, ...]:
        return struct.unpack(f"{_WORDS}Q", told.read_bytes()[: _WORDS * 8])

    def handlers() -> bytes:
        answers, deadline = words()[1], time.monotonic() + 20
        process.send_signal(signal.SIGUSR2)
        while words()[1] == answers and time.monotonic() < deadline:
            time.sleep(0.01)
        return struct.pack(f"{_WORDS - 2}Q", *words()[2:])

    def ends_well() -> bool:
        process.terminate()
        return process.wait(timeout=60) == 0

    try:
        time.sleep(1)
        yield Patient(process.pid, lambda: words()[0], ends_well, handlers)
    finally:
        process.kill()
        process.wait()


def _spinner(scratch: Path) -> contextlib.AbstractContextManager[Patient]:
    return _program(scratch, compile_c("patient", scratch))


@contextlib.contextmanager
def _blocker(scratch: Path) -> Iterator[Patient]:
    script = scratch / "blocks"
    script.write_text(f'#!/bin/sh\nexec {compile_c("patient", scratch)} "$1" blocks\n')
    script.chmod(0o700)
    with _program(scratch, script) as patient:
        yield patient


def _python(scratch: Path) -> contextlib.AbstractContextManager[Patient]:
    return _program(scratch, PYTHON, "-c", _PYTHON)


@contextlib.contextmanager
def _redis(scratch: Path) -> Iterator[Patient]:
    """A redis under load, with one client that knows each answer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["redis-server", "--port", str(port), "--save", "", "--dir", str(scratch)]
    server = subprocess.Popen(words, **_QUIET)
    time.sleep(1)
    load = subprocess.Popen(
        ["redis-benchmark", "-p", str(port), "-l", "-q", "-t", "set,get", "-c", "8"], **_QUIET
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
        yield Patient(server.pid, lambda: right[0], ends_well)
    finally:
        over.set()
        for process in (load, server):
            process.kill()
            process.wait()


_RSYSLOG = """
module(load="imklog" PermitNonKernelFacility="on")
global(workDirectory="{folder}")
action(type="omfile" file="{folder}/messages")
"""


@contextlib.contextmanager
def _rsyslogd(scratch: Path) -> Iterator[Patient]:
    """One that takes the kernel's messages, of which it must lose none. No other may run."""
    settings, messages = scratch / "rsyslog.conf", scratch / "messages"
    settings.write_text(_RSYSLOG.format(folder=scratch))
    messages.write_text("")
    command = ["rsyslogd", "-n", "-f", str(settings), "-i", str(scratch / "rsyslog.pid")]
    server = subprocess.Popen(command, **_QUIET)
    mark = f"flagfinder-{os.getpid()}-{server.pid}"
    over, sent = threading.Event(), [0]

    def send() -> None:
        while not over.wait(0.01):
            # One opened file may send ten messages in five seconds only.
            with Path("/dev/kmsg").open("w") as kernel:
                kernel.write(f"{mark} {sent[0]}.\n")
            sent[0] += 1

    def arrived() -> set[int]:
        lines = messages.read_text(errors="replace").splitlines()
        return {int(line.rpartition(" ")[2].rstrip(".")) for line in lines if mark in line}

    def ends_well() -> bool:
        over.set()
        sender.join()
        deadline = time.monotonic() + 20
        while len(arrived()) < sent[0] and time.monotonic() < deadline:
            time.sleep(0.1)
        return sent[0] > 0 and arrived() == set(range(sent[0])) and server.poll() is None

    sender = threading.Thread(target=send)
    try:
        time.sleep(1)
        sender.start()
        time.sleep(1)
        yield Patient(server.pid, lambda: len(arrived()), ends_well)
    finally:
        over.set()
        server.kill()
        server.wait()


Start = Callable[[Path], contextlib.AbstractContextManager[Patient]]
PATIENTS: dict[str, Start] = {
    "C, signals, flags saved": _spinner,
    "C, all signals blocked": _blocker,
    "Python, 3 threads": _python,
    "redis under load": _redis,
    "rsyslogd, kernel messages": _rsyslogd,
}
ALONE = [_rsyslogd]  # two would take each other's messages
_NEEDS: dict[Start, str] = {_redis: "redis-server", _rsyslogd: "rsyslogd"}


def lacks(start: Start) -> str | None:
    """Why a patient can't be had here; None if it can."""
    program = _NEEDS.get(start, "true")
    if shutil.which(program) is None:
        return f"{program} is not installed"
    if start is _rsyslogd and os.geteuid() != 0:
        return "only root may write and read the kernel's messages"
    return None
