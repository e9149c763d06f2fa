# SPDX-License-Identifier: MIT
"""The progress of ``diff``: how far a step is, and how long it still takes."""

from __future__ import annotations

from itertools import repeat

from flagfinder.cli.diff import Steps


def told(*calls: tuple[float, str, int, int]) -> list[str]:
    """What is told of steps shown at these times (seconds)."""
    lines: list[str] = []
    now = repeat(0.0)
    steps = Steps(lines.append, lambda: next(now))
    for time, stage, done, total in calls:
        now = repeat(time)
        steps.show(stage, done, total)
    return lines


def test_time_left_follows_from_the_speed_of_the_step() -> None:
    first = (5.0, "following calls", 0, 200)
    assert (
        told(first, (15.0, "following calls", 50, 200))[-1] == "following calls, 25 %, 30.0 s left"
    )
    second = (100.0, "comparing calls", 0, 10)
    assert (
        told(first, second, (102.0, "comparing calls", 5, 10))[-1]
        == "comparing calls, 50 %, 2.0 s left"
    )


def test_nothing_is_promised_too_early() -> None:
    assert told((0.0, "a", 0, 100), (0.5, "a", 50, 100))[-1] == "a, 50 %"
    assert told((0.0, "a", 0, 100), (9.0, "a", 1, 100))[-1] == "a, 1 %"
    assert told((0.0, "a", 0, 0), (9.0, "a", 7000, 0))[-1] == "a, 7,000 blocks"


def test_more_blocks_than_estimated_are_not_more_than_all() -> None:
    assert told((0.0, "a", 0, 100), (9.0, "a", 120, 100))[-1].startswith("a, 99 %")
