# SPDX-License-Identifier: MIT
"""System calls by user code, in a good recording and in a bad one (Uscope, figure 7)."""

from __future__ import annotations

import errno
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from flagfinder import _core
from flagfinder.graph.events import EventFile
from flagfinder.shared.record import dataclass

if TYPE_CHECKING:
    from flagfinder.graph.call_fields import CallsFields, ProfileFields


_FEW_CALLS = 10
_SHORT = 1_000_000  # ns


@dataclass(frozen=True)
class Calls:
    """How often, and for how many ns in all and at most; blocked time only, unless all calls were
    recorded. ``errors``: how often it failed, by name (``ENOENT``); only where all were.
    """

    count: int
    total: int
    longest: int
    errors: Mapping[str, int]


@dataclass(frozen=True)
class CallDifference:
    """Calls of one sort by one function. ``code`` is "" where no stack was taken: the calls did not
    block, and the clock found none of them.
    """

    call: str
    code: str
    good: Calls
    bad: Calls

    @property
    def more(self) -> int:
        """ns that the bad run spent more in them."""
        return self.bad.total - self.good.total

    @property
    def ratio(self) -> float | None:
        """How many the bad run made for each of the good one's; None where that made none."""
        return self.bad.count / self.good.count if self.good.count else None

    @property
    def unlike(self) -> float:
        """How far the two runs are apart, in calls, failures or time: the logarithm of the ratio.

        What two runs of one program differ by at any time counts little: a few calls, a
        millisecond.
        """
        failed = [sum(calls.errors.values()) for calls in (self.good, self.bad)]
        pairs = (
            (self.good.count, self.bad.count, _FEW_CALLS),
            (failed[0], failed[1], _FEW_CALLS),
            (self.good.total, self.bad.total, _SHORT),
        )
        return max(abs(math.log((bad + least) / (good + least))) for good, bad, least in pairs)


@dataclass(frozen=True)
class Comparison:
    """``rows``: what differs most comes first, by ratio (``CallDifference.unlike``). Spans in ns;
    ``lost``: events missing in either.
    """

    good_span: int
    bad_span: int
    rows: tuple[CallDifference, ...]
    lost: int
    notes: tuple[str, ...]


_NONE: CallsFields = {"count": 0, "total": 0, "longest": 0, "errors": {}}


def compare_events(good: Path | str, bad: Path | str) -> Comparison:
    """Compares two recordings. Raises BadTraceError for a file that is no recording of events."""
    profiles: list[ProfileFields] = [
        json.loads(_core.profile(EventFile(path).core)) for path in (good, bad)
    ]
    by_key = [{(row["call"], row["code"]): row for row in profile["rows"]} for profile in profiles]
    rows = [
        CallDifference(*key, *(_calls(found.get(key, _NONE)) for found in by_key))
        for key in by_key[0] | by_key[1]
    ]
    rows.sort(key=lambda row: (-row.unlike, -abs(row.more), row.call, row.code))
    notes = []
    if profiles[0]["syscalls"] != profiles[1]["syscalls"]:
        modes = " and ".join(profile["syscalls"] for profile in profiles)
        notes.append(f"recorded with --syscalls {modes}: numbers of calls can't be compared")
    if any(row["sampled"] for profile in profiles for row in profile["rows"]):
        notes.append(
            "the user code of calls that did not block is that of samples, their numbers are in "
            "proportion"
        )
    lost = sum(profile["lost"] for profile in profiles)
    return Comparison(profiles[0]["span"], profiles[1]["span"], tuple(rows), lost, tuple(notes))


def _calls(row: CallsFields) -> Calls:
    errors = {
        errno.errorcode.get(int(number), f"errno {number}"): count
        for number, count in row["errors"].items()
    }
    return Calls(row["count"], row["total"], row["longest"], errors)


def code_name(row: CallDifference) -> str:
    """The user code of a row, for people."""
    return row.code or "(not known: the calls did not block)"
