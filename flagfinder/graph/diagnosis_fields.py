# SPDX-License-Identifier: MIT
"""JSON objects about a hang and what caused it: what ``diagnose`` and ``report`` print. Times
are in ns, points in time those of CLOCK_MONOTONIC. Imported for its types only.
"""

from __future__ import annotations

from typing import Literal

from flagfinder.graph.call_fields import HotFields
from flagfinder.graph.fields import EdgeKind, InversionFields, PlaceFields, RanFields, StarvedFields
from flagfinder.shared.typed import NotRequired, TypedDict

HangClass = Literal["LongRunning", "RepeatedYield", "HotCalls", "LongWait", "Busy", "Unknown"]
Known = Literal["ended", "holds", "peer", "before", "asked", "deadlock", "flag", "itself"]
Why = Literal[
    "longer", "cluster", "polls", "alone", "always", "paced", "sleeps", "idle", "starts", "common"
]
Topic = Literal["baseline", "link"]


class StepFields(TypedDict):
    """A vertex on the way from a hang to its cause. ``edge``: how it caused the step before."""

    vertex: int
    tid: int
    thread: str
    start: int
    dur: int
    edge: EdgeKind | None
    stack: list[str]


# ``class`` is a word of Python's own, so its field can't stand in a class.
_Class = TypedDict("_Class", {"class": HangClass})
_NoClass = TypedDict("_NoClass", {"class": None})
_MaybeClass = TypedDict("_MaybeClass", {"class": HangClass | None})


class SetOffFields(TypedDict):
    """Who made a thread begin with something, and how."""

    tid: int
    thread: str
    edge: EdgeKind


class CountedFields(TypedDict):
    """Calls or waits of one kind (``blocked``), on one descriptor if that is known; ns in them."""

    call: str
    target: str | None
    count: int
    dur: int
    blocked: bool


class WorkFields(TypedDict):
    """What a thread did in a stretch of many short things: ns on a CPU, ns in which it could run
    and had none, and what it called and waited in, the longest first. ``only_waits``: calls that
    did not block were not recorded.
    """

    run: int
    ready: int
    only_waits: bool
    counted: list[CountedFields]


class CulpritFields(_Class):
    """A thread that did something unusual while others waited for it. ``depth`` is how far from the
    hang it is; ``places`` are those of ``stack``, ``places_before`` where it blocked before that;
    ``set_off`` who made it begin: sent the message that it works on, woke it, started it; ``hot``
    the call of HotCalls, ``starved`` that it mostly had no CPU, ``inversion`` that it had the lock
    that a more urgent thread waited for, ``ran`` what it spent its time on, if it ran; ``known``
    how it is known that the thread before waited for it, ``work`` what a Busy or polling
    one did, ``code`` the function, and the line if known, in which it worked or waited.
    """

    vertex: int
    tid: int
    pid: int
    thread: str
    host: str | None
    start: int
    dur: int
    doing: str
    depth: int
    stack: list[str]
    places: list[PlaceFields | None]
    places_before: list[PlaceFields | None]
    call: str | None
    set_off: SetOffFields | None
    hot: HotFields | None
    starved: StarvedFields | None
    inversion: InversionFields | None
    ran: RanFields | None
    known: Known
    work: WorkFields | None
    code: str | None


class ChoiceFields(TypedDict):
    """A possible answer; what does not apply is null."""

    vertex: int | None
    tid: int | None
    thread: str | None
    start: int | None
    dur: int | None
    edge: EdgeKind | None
    by_tid: int | None
    by_thread: str | None
    stack: list[str]


class QuestionFields(TypedDict):
    """Which wait went as it should, or which cause to follow. ``start``: of the wait that is
    compared, or of the vertex that is explained.
    """

    topic: Topic
    vertex: int
    tid: int
    thread: str
    start: int
    choices: list[ChoiceFields]


class AskedFields(QuestionFields):
    """A question with its answer: the number of a choice, from 1."""

    answer: int


class MemberFields(TypedDict):
    """A thread in a circle."""

    tid: int
    thread: str


class HangFields(_Class):
    """A stretch that may be the hang, and ``why``. ``beside``: how many shorter ones there are to
    compare it with; ``typical``: how long the one in the middle of these took.
    """

    tid: int
    thread: str
    start: int
    dur: int
    doing: str
    why: Why
    unusual: bool
    beside: int
    typical: int | None


class HangsFields(TypedDict):
    """The stretches that may be the hang, the likeliest first."""

    hangs: list[HangFields]


class DiagnosisFields(_Class):
    """What is known about a hang. ``baseline`` is the vertex of the wait that went well,
    ``compared`` that wait; ``path`` leads from the hang to its causes; ``culprits`` has the root
    first, and is empty if nobody is known to owe the hang's end; in ``circle`` each thread waits
    for the next, and the last for the first; ``hot`` is the call of HotCalls; ``hang``
    says why this stretch was taken, ``others`` are unusual ones that may have been meant, too.
    """

    thread: StepFields
    doing: str
    start: int
    dur: int
    hot: HotFields | None
    unfinished: bool
    baseline: StepFields | None
    compared: ChoiceFields | None
    path: list[StepFields]
    culprits: list[CulpritFields]
    circular: bool
    circle: list[MemberFields]
    hang: HangFields
    others: list[HangFields]
    advice: list[str]
    questions: int
    asked: list[AskedFields]
    lost: int


class NoDiagnosisFields(_NoClass):
    """No thread did anything for a millisecond."""

    culprits: list[CulpritFields]
    path: list[StepFields]
    questions: int


class OutcomeFields(TypedDict):
    """What the engine answers: either of the two."""

    diagnosis: NotRequired[DiagnosisFields]
    question: NotRequired[QuestionFields]


class ReportFields(_MaybeClass):
    """The page written; null where there is no hang."""

    file: str | None
