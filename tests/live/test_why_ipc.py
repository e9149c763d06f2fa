# SPDX-License-Identifier: MIT
"""``flagfinder why`` of a program that waits for a semaphore or a message of System V."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from harness import started
from planted import why

HEAD = """
import ctypes, os, signal, time
class Operation(ctypes.Structure):
    _fields_ = [("number", ctypes.c_ushort), ("by", ctypes.c_short), ("flags", ctypes.c_short)]
libc = ctypes.CDLL(None)
REMOVE, SET = 0, 16
def take():
    libc.semop(semaphores, ctypes.byref(Operation(0, -1, 0)), 1)
def receive(message):
    libc.msgrcv(messages, ctypes.byref(message), 8, 0, 0)
class Message(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_long), ("text", ctypes.c_char * 8)]
semaphores, messages = libc.semget(0, 1, 0o600), libc.msgget(0, 0o600)
libc.semctl(semaphores, 0, SET, 1)
parent = os.getpid()
def in_child(does):
    child = os.fork()
    if child == 0:
        does()
        os._exit(0)
    os.waitpid(child, 0)
    return child
def remove(*_):
    libc.semctl(semaphores, 0, REMOVE)
    libc.msgctl(messages, REMOVE, None)
    os._exit(0)
signal.signal(signal.SIGTERM, remove)
"""
LEFT = """
print(in_child(take), flush=True)
take()
"""
SENT = """
message = Message(1, b"text")
child = in_child(lambda: libc.msgsnd(messages, ctypes.byref(message), 8, 0))
receive(message)
print(child, flush=True)
receive(message)
"""


@contextmanager
def told(code: str) -> Iterator[tuple[dict[str, Any], str]]:
    """The report, and the process that used last what is waited for."""
    command = ["/usr/bin/python3", "-c", HEAD + code]
    with started(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        last = process.stdout.readline().decode().strip()
        time.sleep(0.5)
        try:
            yield why(process.pid), last
        finally:
            process.terminate()  # what it made outlives it otherwise
            process.wait(timeout=10)


@pytest.mark.live
def test_a_semaphore_whose_taker_has_ended() -> None:
    with told(LEFT) as (report, taker):
        assert report["links"][0]["waits_for"]["name"].startswith("semaphore 0 of set")
        assert report["root"]["kind"] == "ended", report["story"]
        assert f"process {taker}, which changed it last" in report["root"]["what"]


@pytest.mark.live
def test_an_empty_queue_whose_sender_has_ended() -> None:
    with told(SENT) as (report, sender):
        assert report["root"]["kind"] == "ended", report["story"]
        assert "the queue is empty" in report["root"]["what"]
        assert f"process {sender}, which sent the last message" in report["root"]["what"]
