# SPDX-License-Identifier: MIT
"""Workers of a pool of Python's multiprocessing that ended and were replaced.

In: the Python code of a process's threads. Out: a note for each replaced worker. A pool starts a
thread right after its workers, which replaces those that end; a child that began later than that
thread took another's place. Nobody does again what a worker was doing when it was killed, so the
call that waits for it never comes back.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from flagfinder.interpreters.python import PythonCode

_POOL = re.compile(r"/multiprocessing/pool\.py$")
_KEEPS, _WAITS = "_handle_workers", ("wait", "next")
_WITHIN = 0.03  # s: clock ticks are coarse
_PARENT, _BEGAN = 1, 19  # fields of /proc/PID/stat behind the name
_MOST = 2


def replaced_workers(pid: int, codes: Mapping[int, PythonCode]) -> list[str]:
    """In words; none where no thread waits for a pool, or all workers are its first ones."""
    if not any(_is_in(code, *_WAITS) for code in codes.values()):
        return []
    keepers = [tid for tid, code in codes.items() if _is_in(code, _KEEPS)]
    began = [time for _, time in map(_stat, (f"{pid}/task/{tid}" for tid in keepers)) if time]
    if not began:
        return []
    later = {child: time - min(began) for child, time in _children(pid)}
    notes = [
        f"process {child} took the place of a worker of the pool that ended, {seconds:.1f} s after "
        "the pool began; a task in which a worker is killed is lost, and its call does not return"
        for child, seconds in sorted(later.items(), key=lambda one: one[1])
        if seconds > _WITHIN
    ]
    more = len(notes) - _MOST
    return notes[:_MOST] + ([f"so did {more} more processes"] if more > 0 else [])


def _is_in(code: PythonCode, *functions: str) -> bool:
    return any(
        _POOL.search(frame.file) and frame.function.rpartition(".")[2] in functions
        for frame in code.frames
    )


def _children(pid: int) -> Iterator[tuple[int, float]]:
    """The child processes that run this program, and when each began (s since the start of the
    machine).
    """
    program = _program(pid)
    for other in Path("/proc").iterdir():
        if other.name.isdigit():
            parent, began = _stat(other.name)
            if parent == pid and began and _program(int(other.name)) == program:
                yield int(other.name), began


def _program(pid: int) -> str | None:
    try:
        return str(Path(f"/proc/{pid}/exe").readlink())
    except OSError:
        return None


def _stat(of: str) -> tuple[int, float]:
    """The parent of a process and when it began; zeroes where it is gone."""
    try:
        text = Path(f"/proc/{of}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0, 0.0
    fields = text.rpartition(")")[2].split()
    return int(fields[_PARENT]), int(fields[_BEGAN]) / os.sysconf("SC_CLK_TCK")
