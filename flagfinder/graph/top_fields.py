# SPDX-License-Identifier: MIT
"""JSON objects of ``events top``. Times are in ns. Imported for its types only."""

from __future__ import annotations

from typing import Literal

from flagfinder.shared.typed import TypedDict

TopEnded = Literal["program-ended", "target-ended", "duration", "interrupted", "recorded"]


class TopThreadFields(TypedDict):
    """A thread; pid 0 and no name where it is not known."""

    tid: int
    pid: int
    thread: str


class TimesFields(TypedDict):
    """How often, and for how long in all and at most. ``unfinished`` of them went on when the
    counting ended.
    """

    count: int
    total: int
    longest: int
    unfinished: int


# "from" is no name in Python.
BarFields = TypedDict("BarFields", {"from": int, "to": int | None, "count": int})
BarFields.__doc__ = (
    "How many were at least ``from`` long and shorter than ``to``, which is null for no bound."
)


class TopWaitFields(TopThreadFields, TimesFields):
    """Waits of one thread in one call at one place. ``call`` is empty for what is no call, as a
    page fault. ``errno``: the error that the call returned, if that was asked for. ``code``: the
    innermost function of ``stack`` that is not the C library's; both are empty without stacks.
    """

    call: str
    errno: str | None
    code: str
    stack: list[str]


class TopCallFields(TopThreadFields, TimesFields):
    """Waits of one thread in one call."""

    call: str
    histogram: list[BarFields]


class TopInsteadFields(TopThreadFields):
    """Who had the processor, and for how long."""

    total: int


class TopDelayFields(TopThreadFields, TimesFields):
    """How long a thread was ready to run without a processor, from its wake or from when it was
    preempted. ``instead`` tells who had that processor then, as far back as is known.
    """

    histogram: list[BarFields]
    instead: list[TopInsteadFields]


class TopEarlierFields(TopThreadFields):
    """A wait that had begun before the counting; ``dur`` of it are in the counting. ``call`` is
    empty where it is not known. ``unfinished``: it went on when the counting ended.
    """

    call: str
    dur: int
    unfinished: bool


class TopFields(TypedDict):
    """What was counted, as the engine hands it over, the longest first. ``earlier`` are not among
    ``waits``.
    """

    span: int
    waits: list[TopWaitFields]
    calls: list[TopCallFields]
    delays: list[TopDelayFields]
    earlier: list[TopEarlierFields]
    lost: int
    stacks_dropped: int


class EventsTopFields(TopFields):
    """Waits and delays, summed up over ``span``. ``lost``: events that are missing (of a
    recording), or sums for which there was no room.
    """

    ended: TopEnded
    exit_status: int | None
