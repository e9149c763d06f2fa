# SPDX-License-Identifier: MIT
"""The probe effect: what recording events costs a program."""

from __future__ import annotations

import math
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from flagfinder.graph.events import EventOptions, record_events
from flagfinder.shared.errors import TargetError, UsageError
from flagfinder.shared.gated import gated
from flagfinder.shared.record import dataclass, replace
from flagfinder.shared.target import find_program

# Student's t, two-sided 95%, by degrees of freedom; beyond, that of the last is on the safe side.
_T95 = (
    *(
        12.706,
        4.303,
        3.182,
        2.776,
        2.571,
        2.447,
        2.365,
        2.306,
        2.262,
        2.228,
        2.201,
        2.179,
        2.160,
        2.145,
        2.131,
    ),
    *(
        2.120,
        2.110,
        2.101,
        2.093,
        2.086,
        2.080,
        2.074,
        2.069,
        2.064,
        2.060,
        2.056,
        2.052,
        2.048,
        2.045,
        2.042,
    ),
)
FEWEST = 3


@dataclass(frozen=True)
class Overhead:
    """Seconds of each run, and how much longer a recorded one takes, as a part of the plain one's
    time.

    The true overhead lies between ``low`` and ``high`` with 95% confidence. ``events`` and ``lost``
    are of all recorded runs.
    """

    plain: tuple[float, ...]
    recorded: tuple[float, ...]
    overhead: float
    low: float
    high: float
    events: int
    lost: int

    @property
    def proven(self) -> bool:
        """Whether there is a difference at all."""
        return self.low > 0 or self.high < 0


def interval(plain: Sequence[float], recorded: Sequence[float]) -> tuple[float, float, float]:
    """The overhead and its 95% interval, from runs in pairs: the mean of their ratios' logarithms,
    by Student's t.
    """
    logs = [math.log(b / a) for a, b in zip(plain, recorded, strict=True)]
    mean = statistics.fmean(logs)
    spread = _T95[min(len(logs) - 1, len(_T95)) - 1] * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.expm1(mean), math.expm1(mean - spread), math.expm1(mean + spread)


def measure_overhead(
    command: Sequence[str],
    options: EventOptions | None = None,
    rounds: int = 10,
    progress: Callable[[int], None] | None = None,
    environment: Sequence[str] = (),
) -> Overhead:
    """Runs the program with and without recording in turn, ``rounds`` times each after one round to
    warm up.

    What it prints is dropped; ``environment`` are settings, NAME=VALUE each, for it alone. Raises
    UsageError for too few rounds, TargetError when the program fails or ends at once.
    """
    if rounds < FEWEST:
        raise UsageError(
            "The overhead can't be measured", f"{rounds} rounds", f"Give at least {FEWEST}."
        )
    find_program(
        command, traced=False
    )  # a clear error now; the shell finds it as the user wrote it
    words = list(command)
    options = replace(options or EventOptions(), outlive=False)
    plain, recorded, events, lost = [], [], 0, 0
    with tempfile.TemporaryDirectory(prefix="flagfinder-") as folder:
        for number in range(rounds + 1):
            if progress:
                progress(number)
            # In turn, so that neither always runs after the other.
            first = _run(words, environment) if number % 2 else 0.0
            file = Path(folder) / "run.events"
            recording = record_events(
                file, words, options=options, stdout=subprocess.DEVNULL, environment=environment
            )
            _must_succeed(recording.exit_status)
            alone = first or _run(words, environment)
            if number > 0:
                plain.append(alone)
                recorded.append(recording.seconds or 0.0)
                events, lost = events + recording.events, lost + recording.lost
    return Overhead(tuple(plain), tuple(recorded), *interval(plain, recorded), events, lost)


def _run(words: Sequence[str], environment: Sequence[str]) -> float:
    with gated(words, subprocess.DEVNULL, environment) as program:
        assert program is not None
        program.release()
        status = program.process.wait()
        seconds = time.monotonic() - program.released
    _must_succeed(status)
    return seconds


def _must_succeed(status: int | None) -> None:
    if status != 0:
        raise TargetError(
            "The overhead can't be measured",
            f"the program ended with status {status}",
            "Give a command that succeeds, alike each time.",
            "`flagfinder events record` records programs that fail, too.",
        )
