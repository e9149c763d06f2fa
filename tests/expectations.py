# SPDX-License-Identifier: MIT
"""Which failures are known, which tests may fail now and then, and how often.

known_gaps.txt: what fails always. It is an error if such a test passes.
flaky.txt: what fails in a measured part of all runs. In `make test` such a test gets as many tries
as make it pass in 99 of 100 runs by that measure. It fails if no try passes. Where that would take
too many tries, it has one and may fail. In `make soak` each try counts. The run fails if so many
failures come by chance in less than one of a thousand runs.
All other tests of running programs have a second try, and a third. A test of `spin` has them only
if the machine was too busy to finish, never after a wrong answer.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

import pytest
from harness import ROOT
from sizes import REPEAT

# These tests run nothing that depends on how the machine's CPUs are shared.
REPRODUCIBLE = ("tests/unit/", "tests/cli/")
ANSWERS = "tests/live/test_spin_"
TOO_BUSY = ["MachineTooBusyError", "TimeoutExpired", "TimeoutError", "Failed: Timeout"]
MOST_TRIES = 5
# What a busy machine spoils it may spoil twice: the tests beside are still the same ones then.
AGAIN = {"reruns": 2, "reruns_delay": 3}
MOST_SECOND_TRIES = 6  # more is our fault, and fails the run


def rows(name: str) -> list[tuple[str, ...]]:
    """(pattern of test ids, second word, reason) of each line of a file."""
    lines = (ROOT / "tests" / name).read_text(encoding="utf-8").splitlines()
    return [tuple(line.split(maxsplit=2)) for line in lines if line and not line.startswith("#")]


def matches(item_id: str, pattern: str) -> bool:
    """Whether a test is meant, whichever repetition of it; brackets stand for themselves."""
    plain = re.sub(r"-\d+\]$", "]", item_id) if REPEAT > 1 else item_id
    return fnmatchcase(plain, pattern.replace("[", "[[]"))


@dataclass
class Flaky:
    """Tests that fail now and then."""

    pattern: str
    rate: float
    reason: str
    runs: int = 0
    failures: int = 0

    @classmethod
    def parse(cls, pattern: str, measured: str, reason: str) -> Flaky:
        """`measured` is FAILED/RUNS."""
        failed, runs = map(int, measured.split("/"))
        return cls(pattern, failed / runs, reason)

    @property
    def tries(self) -> float:
        """How many it takes for one to be right in 99 of 100 runs."""
        return math.ceil(math.log(0.01) / math.log(self.rate)) if self.rate < 1 else math.inf

    @property
    def is_worse(self) -> bool:
        """Whether so many failures or more come by chance in less than one of a thousand runs."""
        chances = (
            math.comb(self.runs, n) * self.rate**n * (1 - self.rate) ** (self.runs - n)
            for n in range(self.failures, self.runs + 1)
        )
        return sum(chances) < 0.001


KNOWN = rows("known_gaps.txt")
FLAKY = [Flaky.parse(*row) for row in rows("flaky.txt")]
# How the first try failed, by the test's id.
second_tries: dict[str, str] = {}


def flaky_of(item_id: str) -> Flaky | None:
    """The line of flaky.txt that a test belongs to."""
    return next((one for one in FLAKY if matches(item_id, one.pattern)), None)


def expect(item: pytest.Item) -> None:
    """Gives a test its second tries, or the mark of a failure that is known."""
    flaky = flaky_of(item.nodeid)
    if flaky is not None and REPEAT == 1 and flaky.tries <= MOST_TRIES:
        item.add_marker(pytest.mark.flaky(reruns=int(flaky.tries) - 1))
    elif flaky is not None:
        item.add_marker(pytest.mark.xfail(reason=flaky.reason, strict=False))
    elif REPEAT == 1 and item.nodeid.startswith(ANSWERS):
        item.add_marker(pytest.mark.flaky(**AGAIN, only_rerun=TOO_BUSY))
    elif REPEAT == 1 and not item.nodeid.startswith(REPRODUCIBLE):
        item.add_marker(pytest.mark.flaky(**AGAIN))
    for pattern, way, reason in KNOWN:
        if matches(item.nodeid, pattern):
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True, run=way == "run"))


def note(report: pytest.TestReport) -> None:
    """Counts the tries of flaky tests, and keeps why others had a second one."""
    flaky = flaky_of(report.nodeid)
    if flaky is None:
        if str(report.outcome) == "rerun":
            second_tries.setdefault(report.nodeid, report.longreprtext)
    elif report.when == "call" or report.outcome != "passed":
        flaky.runs += 1
        flaky.failures += report.outcome in ("rerun", "failed", "skipped")


def too_many() -> list[str]:
    """Why the run fails although each test ended in an expected way."""
    found = [
        f"{one.pattern} failed {one.failures} times of {one.runs}, at a measured rate of "
        f"{one.rate:.2f}"
        for one in FLAKY
        if one.runs and one.is_worse
    ]
    if len(second_tries) > MOST_SECOND_TRIES:
        found.append(f"{len(second_tries)} tests needed a second try; {MOST_SECOND_TRIES} may")
    return found
