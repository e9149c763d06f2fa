# SPDX-License-Identifier: MIT
"""Watches a running program from outside: the program, the command, and what they print.

The program `programs/writers.c` makes known accesses once it gets a line on its stdin.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from harness import FLAGFINDER, run

STARTED = 20.0
SET_UP = 60.0


class Target:
    """The running program: what it printed, and the lines that make it go on."""

    def __init__(self, program: Path, *words: str) -> None:
        self.process = subprocess.Popen(
            [program, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.printed: dict[str, int] = {}
        self.until("ready")

    @property
    def pid(self) -> int:
        return self.process.pid

    def until(self, name: str) -> None:
        """Reads what it prints up to the line of this name."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            word, number = line.split()
            self.printed[word] = int(number, 0)
            if word == name:
                return
        pytest.fail(f"the program ended before it printed {name}")

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def close(self) -> None:
        self.process.kill()
        self.process.wait(timeout=30)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


@contextlib.contextmanager
def target(program: Path, *words: str) -> Iterator[Target]:
    with closing(Target(program, *words)) as started:
        yield started


class Watcher:
    """A running `flagfinder watch --json-lines`, from its header on."""

    def __init__(self, pid: int, *words: str | Path, under: Sequence[str] = ()) -> None:
        self.process = subprocess.Popen(
            [*under, *FLAGFINDER, "watch", str(pid), *map(str, words), "--json-lines"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        first = self.process.stdout.readline()
        if not first:
            _, err = self.process.communicate(timeout=SET_UP)
            pytest.fail(f"watch did not start: {err}")
        self.header: dict[str, Any] = json.loads(first)
        self.exit_code = 0

    def stop(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def rest(self, timeout: float = 60) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """The events and the totals, once it ends."""
        out, err = self.process.communicate(timeout=timeout)
        self.exit_code = self.process.returncode
        lines = [json.loads(line) for line in out.splitlines()]
        assert lines, err
        assert lines[-1]["event"] == "end", err
        return lines[:-1], lines[-1]

    def close(self) -> None:
        self.process.kill()
        self.process.wait(timeout=30)


@contextlib.contextmanager
def watching(pid: int, *words: str | Path, under: Sequence[str] = ()) -> Iterator[Watcher]:
    """`under`: the beginning of a command that runs the rest as another user or elsewhere."""
    with closing(Watcher(pid, *words, under=under)) as started:
        yield started


def run_watched(
    program: Path, what: list[str], *words: str
) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    """Watches while the program does `what` and ends; header, events, totals."""
    if "frida" in words:
        return run_started(program, what, *words)
    with target(program, *what) as running, watching(running.pid, *words) as watcher:
        running.go()
        running.until("done")
        running.go()
        events, end = watcher.rest()
    assert end["reason"] == "target-ended"
    assert watcher.exit_code == 0
    return watcher.header, events, end


def run_started(
    program: Path, what: list[str], *words: str
) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    """As `run_watched`, by a watch that starts the program: that prints to stderr."""
    watch = subprocess.Popen(
        [*FLAGFINDER, "watch", *words, "--json-lines", "--", program, *what],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        # The program takes a line when it wants one; more than it takes do no harm.
        out, err = watch.communicate("go\n" * 3, timeout=60)
    finally:
        watch.kill()
    assert out, err
    header, *events, end = (json.loads(line) for line in out.splitlines())
    assert (end["event"], end["reason"]) == ("end", "target-ended"), err
    assert "done 1" in err
    assert watch.returncode == 0
    return header, events, end


def values(events: list[dict[str, Any]]) -> list[tuple[str, str | None, str | None]]:
    """(w or r, previous, value) of each."""
    return [(e["event"].removeprefix("data_flag_")[0], e["previous"], e["value"]) for e in events]


def in_function(event: dict[str, Any]) -> str:
    return str(event["code"]["symbol"]).split("+", maxsplit=1)[0]


def callers(event: dict[str, Any]) -> list[str]:
    """Names of the functions on the stack; of libraries without symbols, ``None``."""
    return [str(frame["symbol"]).split("+", maxsplit=1)[0] for frame in event["stack"]]


def debug_registers(pid: int) -> list[int]:
    """dr0..dr3 and dr7 of a thread, by ptrace. Breakpoints of perf events don't show here; those of
    ptrace would.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    attach, peek_user, detach = 16, 3, 17
    assert libc.ptrace(attach, pid, None, None) == 0, os.strerror(ctypes.get_errno())
    os.waitpid(pid, 0x40000000)
    offset = 848  # offsetof(struct user, u_debugreg)
    found = [libc.ptrace(peek_user, pid, offset + 8 * number, None) for number in (0, 1, 2, 3, 7)]
    libc.ptrace(detach, pid, None, None)
    return found


def storing_instruction(writers: Path) -> str:
    """Offset of the one in request_display that writes the object's field."""
    listing = run(["objdump", "-d", "--no-show-raw-insn", writers], timeout=60).stdout
    body = listing[listing.index("<request_display>:") :]
    stored = re.search(r"^\s*([0-9a-f]+):\s+mov\s+%\w+,0x18\(%rdi\)", body, re.MULTILINE)
    assert stored
    return f"0x{stored[1]}"
