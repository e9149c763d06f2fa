# SPDX-License-Identifier: MIT
"""What the interpreters of a recorded program run, asked just before the recording ends.

A trace shows machine code. Of a Python program that is the interpreter's, in which the program's
own loop can't be told; so the trace keeps that loop too (the field ``code`` of its end).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from flagfinder.interpreters.fields import PythonFields
from flagfinder.interpreters.python import read_python
from flagfinder.interpreters.which import UnreadableError, runs_python

_PROCESSES = 2  # each takes about a second
_LOOKS = 6  # what the reader wants, to tell what all of them have in common
_LONGEST = 10.0  # seconds, where the machine is busy


def running_code(processes: Sequence[int], spinning: Sequence[int]) -> dict[int, PythonFields]:
    """The Python code of threads, by thread id: of those that ``spinning`` names, or of all
    ``processes`` where that is empty.
    """
    found: dict[int, PythonFields] = {}
    threads = {pid: _threads(pid) for pid in processes}
    asked = [pid for pid in processes if not spinning or threads[pid] & set(spinning)]
    for pid in [pid for pid in asked if runs_python(pid)][:_PROCESSES]:
        repeating = threads[pid] & set(spinning) if spinning else _running(pid, threads[pid])
        try:
            codes = read_python(pid, repeating, most=_LOOKS, longest=_LONGEST)
        except UnreadableError as error:
            found |= {tid: _unread(str(error)) for tid in repeating}
            continue
        found |= {tid: code.to_raw() for tid, code in codes.items()}
    return found


def _threads(pid: int) -> set[int]:
    try:
        return {int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()}
    except OSError:
        return set()


def _running(pid: int, tids: set[int]) -> set[int]:
    """Those that are not blocked at this moment."""
    running = set()
    for tid in tids:
        with contextlib.suppress(OSError):
            stat = Path(f"/proc/{pid}/task/{tid}/stat").read_bytes()
            if stat.rpartition(b")")[2].split()[0] == b"R":
                running.add(tid)
    return running


def _unread(why: str) -> PythonFields:
    return {"looks": 0, "seen": 0, "gil": 0, "frames": [], "loop": None, "note": why}
