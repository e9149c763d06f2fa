# SPDX-License-Identifier: MIT
"""What ``events top`` is asked: which waits and delays count, and how they are told apart."""

from __future__ import annotations

import errno
import json
from collections.abc import Sequence

from flagfinder import _core
from flagfinder.shared.errors import UsageError
from flagfinder.shared.record import dataclass


@dataclass(frozen=True)
class TopQuestion:
    """What is counted: waits and delays of at least ``least`` seconds, of threads whose names fit
    one of the patterns ``threads`` (``*`` any letters, ``?`` one), of thread ``tid``, in the system
    calls ``calls``, that failed with ``error`` (a name, as in ``EAGAIN``). What is not given does
    not restrict. ``results`` tells waits apart by the error that their call returns. ``stacks``
    takes the call sites of what blocks; with ``stack_copy`` so many bytes of each different stack
    are copied, in which callers are found by unwind tables (not of a file).
    """

    least: float = 0.0
    threads: tuple[str, ...] = ()
    tid: int | None = None
    calls: tuple[str, ...] = ()
    error: str | None = None
    results: bool = False
    stacks: bool = True
    stack_copy: int = 0


def as_request(
    question: TopQuestion, pids: Sequence[int], everything: bool, own: int | None = None
) -> str:
    """For the engine; ``own`` is a program that waits to be let go. Raises UsageError."""
    numbers = _core.EventFile.calls(list(question.calls))
    for name, number in zip(question.calls, numbers, strict=True):
        if number is None:
            raise UsageError("There is no such system call", name, "`man 2 syscalls` lists them.")
    error = None
    if question.error is not None:
        error = getattr(errno, question.error, None)
        if error is None or question.error not in errno.errorcode.values():
            raise UsageError(
                "There is no such error",
                question.error,
                "Give a name of errno(3), as in ETIMEDOUT.",
            )
    fields = {
        "least": int(question.least * 1e9),
        "pids": list(pids),
        "everything": everything,
        "threads": question.threads,
        "tid": question.tid,
        "calls": numbers,
        "results": question.results,
        "error": error,
        "stacks": question.stacks,
        "stack_copy": question.stack_copy,
        "held_back": own,
    }
    return json.dumps(fields)
