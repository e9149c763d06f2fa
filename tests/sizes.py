# SPDX-License-Identifier: MIT
"""How much of a test is run: `make test` takes one round of the usual, `make soak` (FF_SOAK=1) the
bars in full.

`make check` sets FF_CHECK=1, which makes tests of Rust smaller that step real programs.
A test marked `soak` runs under FF_SOAK=1 only. FF_REPEAT and FF_ROUNDS set the numbers by hand.
A test marked `alone` measures, or asks for an answer within a budget of time: it has the machine to
itself. One marked `waits` has it with two others of that mark. Of the rest three files at a time
are run.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from harness import ROOT, run

SOAK = os.environ.get("FF_SOAK") == "1"
ALONE = (
    "tests/events/test_many_processes.py",
    "tests/events/test_overhead.py",
    "tests/events/test_scenes.py",
    "tests/live/test_ends.py::test_without_need_of_the_limit_nothing_is_left_out",
    "tests/live/test_memory.py",
    "tests/live/test_spin_safety.py",
    "tests/live/test_watch.py",
    "tests/live/test_watch_ends.py",
    "tests/live/test_watch_frida.py",
    "tests/live/test_watch_output.py",
    "tests/live/test_watch_places.py",
    "tests/live/test_watch_privileges.py",
)
# These wait for limits of time, and need little of a processor: they run beside each other.
WAITS = ("tests/live/test_ends.py",)
# Of those that run alone these wait for seconds and are answered from what the kernel recorded.
BESIDE = "tests/events/test_scenes.py::test_the_culprit_is_named_and_no_innocent[endless-"
# Samples whose recordings take longest: `make test` asks `spin` and `core` about them.
SLOW = ("compress_stream", "finite_compute", "go_gate", "longer_run")
REPEAT = int(os.environ.get("FF_REPEAT") or (5 if SOAK else 1))


def rounds(usual: int, bar: int) -> int:
    """Rounds of a test that repeats one thing on one process: a few in `make test`, the bar in
    `make soak`.
    """
    return int(os.environ.get("FF_ROUNDS") or (bar if SOAK else usual))


def param(*values: Any, name: str, usual: bool = True) -> list[Any]:
    """The parameters once for each repetition; those that are not usual are for `make soak`."""
    marks = () if usual else pytest.mark.soak
    return [
        pytest.param(*values, id=f"{name}{f'-{turn}' * (REPEAT > 1)}", marks=marks)
        for turn in range(REPEAT)
    ]


def in_turn(values: Iterable[Any], turn: int = 0, of: int = 2) -> list[Any]:
    """Parameters for `make soak`; every ``of``-th, from index ``turn`` on, is in `make test`."""
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)),
            marks=() if index % of == turn else pytest.mark.soak,
        )
        for index, value in enumerate(values)
    ]


@functools.cache
def sample_programs() -> tuple[str, ...]:
    """NAME or NAME@VARIANT of each sample program that can be built here."""
    return tuple(
        run(["make", "-s", "-C", str(ROOT / "samples"), "list"], timeout=60).stdout.split()
    )


def truth_of(program: str) -> dict[str, Any]:
    """The truth of a sample, whichever its variant."""
    truth: dict[str, Any] = json.loads((ROOT / "samples" / f"{base(program)}.json").read_text())
    return truth


def base(program: str) -> str:
    """The sample that a program is a variant of."""
    return program.partition("@")[0]


def is_positive(program: str) -> bool:
    """Whether the sample has a flag."""
    return "kind" in truth_of(program)


def is_usual(program: str, stripped: bool, turn: int, of: int = 1) -> bool:
    """One program of every ``of``-th pair of samples is in `make test`: the default with symbols or
    the last variant without them, in turn over the samples. Of slow ones it is always the latter.
    """
    programs = sample_programs()
    number = sorted({base(other) for other in programs}).index(base(program))
    if number // 2 % of:
        return False
    if base(program) not in SLOW and (number + turn) % 2 == 0:
        return not stripped and program == base(program)
    return stripped and program == [p for p in programs if base(p) == base(program)][-1]


def sample_cases(positive: bool, turn: int, of: int = 1, long: Sequence[str] = ()) -> list[Any]:
    """(program, stripped) of each sample with a flag, or of each without. Where one turn takes the
    usual program with symbols, the other takes that without. Those that take ``long`` are for
    `make soak`.
    """
    return [
        case
        for program in sample_programs()
        if is_positive(program) == positive
        for stripped in (False, True)
        for case in param(
            (program, stripped),
            name=f"{program}{'-stripped' * stripped}",
            usual=base(program) not in long and is_usual(program, stripped, turn, of),
        )
    ]
