# SPDX-License-Identifier: MIT
"""Python programs whose main thread waits, and what `flagfinder spin` says of them."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import flagfinder, started

PYTHON = "/usr/bin/python3"
POLLS = "while not job.done:\n    time.sleep(0)"

# The main thread waits in `wait`; a line with `awaited` or `pauses` is where.
HEAD = """\
import itertools, queue, sys, threading, time
from concurrent.futures import ThreadPoolExecutor

class Job:
    def __init__(self):
        self.done = False

"""
TAIL = """
print("READY", flush=True)
wait(Job())
"""


def program(body: str) -> str:
    return HEAD + "def wait(job):\n" + "".join(f"    {line}\n" for line in body.splitlines()) + TAIL


@contextlib.contextmanager
def running(command: list[str | Path], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """The program, once it has said that it is about to wait."""
    with started(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        text=True,
        **options,
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "READY\n"
        yield process
        assert process.poll() is None, "the program did not survive"


def spin(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """The threads. The exit code says whether one of them has an answer: a flag, or a loop with a
    confidence.
    """
    # Beside other tests the usual limit of time may come before the answer about Python.
    ran = flagfinder("spin", "--json", str(process.pid), "--timeout", "80", timeout=90)
    threads: list[dict[str, Any]] = json.loads(ran.stdout)["threads"]
    loops = [
        thread["python"]["loop"]
        for thread in threads
        if thread["python"] and thread["python"]["loop"]
    ]
    answered = any(thread["flags"] for thread in threads) or any(
        loop["confidence"] for loop in loops
    )
    assert ran.returncode == (0 if answered else 1), ran.stderr + ran.stdout
    return threads


def of(process: subprocess.Popen[str], threads: list[dict[str, Any]]) -> dict[str, Any]:
    """The Python code of the main thread."""
    code: dict[str, Any] = next(thread for thread in threads if thread["tid"] == process.pid)[
        "python"
    ]
    return code


def whens(code: dict[str, Any]) -> list[str]:
    assert code["loop"] is not None, code
    return [way["when"] for way in code["loop"]["exits"]]
