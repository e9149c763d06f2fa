# SPDX-License-Identifier: MIT
"""From a hang to the thread that is to blame for it, by the event graph (Argus, Algorithm 1).

A wait is compared with a similar one that went well; the threads that woke that one, and did
something else this time, are the culprits, and theirs in turn. What the graph can't decide is
decided by rule, or asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from flagfinder.flags.flags import AskedDescriptor
from flagfinder.graph.critical_path import Inversion
from flagfinder.graph.graph import EventGraph
from flagfinder.shared.build import build
from flagfinder.shared.record import dataclass

if TYPE_CHECKING:
    from flagfinder.graph.call_fields import HotFields
    from flagfinder.graph.diagnosis_fields import (
        ChoiceFields,
        CulpritFields,
        DiagnosisFields,
        HangClass,
        HangFields,
        Known,
        MemberFields,
        QuestionFields,
        SetOffFields,
        Topic,
        Why,
        WorkFields,
    )
    from flagfinder.graph.fields import PlaceFields, RanFields, StarvedFields


@dataclass(frozen=True)
class Place:
    """A place in code: ``offset`` is the address as linked."""

    module: str
    offset: int


@dataclass(frozen=True)
class HotCall:
    """A call that a thread made over and over although it brought nothing: ``calls`` times at
    least, so often in a second on a CPU. ``code``: the function that makes it, "" where that is not
    known. ``descriptors`` keep it coming back. ``opened_by``: who
    made the first of them, in words; None where it was there before or that was not recorded.
    """

    call: str
    calls: int
    per_second: int
    result: int
    code: str
    descriptors: tuple[AskedDescriptor, ...]
    opened_by: str | None

    @classmethod
    def from_raw(cls, raw: HotFields | None) -> HotCall | None:
        """Reads the engine's JSON; None stays None."""
        if raw is None:
            return None
        by = raw["opened_by"]
        return cls(
            raw["call"],
            raw["calls"],
            raw["per_second"],
            raw["result"],
            raw["code"],
            tuple(map(AskedDescriptor.from_raw, raw["descriptors"])),
            None if by is None else f"thread {by['tid']} ({by['thread']}), by {by['call']}",
        )


@dataclass(frozen=True)
class Culprit:
    """A thread that did something unusual while others waited for it.

    ``start`` and ``dur`` in ns (CLOCK_MONOTONIC); ``doing`` in words; ``depth`` is how far from the
    hang it is, 0 the hang itself; ``stack``: call sites where it blocked, innermost first (of one
    that computed, where it did in the end); empty without ``--stacks``. ``places``: where these
    are, ``places_before``: where it blocked before that; ``call``: the call that it blocked in.
    ``set_off``: who made it begin, in words: the client that asked, who woke or started it.
    ``hot``: the call of HotCalls. ``host``: where it ran, in a graph of several hosts.
    ``ran``: the functions and calls that it spent its time on, if it ran. ``starved``: for how long
    it could run and had no CPU, and who had it, if that was most of the time. ``inversion``: it had
    the lock that a more urgent thread waited for. ``known``: how it is known that the thread before
    waited for it. ``work``: what a Busy or polling one did. ``code``: the function, and the line if
    known, in which it worked or waited.
    """

    vertex: int
    tid: int
    pid: int
    thread: str
    hang_class: HangClass
    start: int
    dur: int
    doing: str
    depth: int
    stack: tuple[str, ...]
    places: tuple[Place | None, ...]
    places_before: tuple[Place | None, ...]
    call: str | None
    set_off: str | None
    hot: HotCall | None
    known: Known
    host: str | None = None
    ran: RanFields | None = None
    starved: StarvedFields | None = None
    inversion: Inversion | None = None
    work: WorkFields | None = None
    code: str | None = None

    @property
    def is_likely(self) -> bool:
        """Whether it is likely only, not known, that the thread before waited for it."""
        return self.known in ("before", "asked", "deadlock")


@dataclass(frozen=True)
class Hang:
    """A stretch that may be the hang. ``why`` says what is unusual: it is "longer" than others, or
    "polls", or is one of a "cluster" of long ones; "alone" is a wait that nothing can be compared
    with, "always" a thread that only polls; "paced", "sleeps", "idle", "starts" and "common"
    stretches are usual. ``beside``: how many shorter ones there are, ``typical``: how long the one
    in the middle of these took. Times in ns, ``start`` is of CLOCK_MONOTONIC.
    """

    tid: int
    thread: str
    hang_class: HangClass
    start: int
    dur: int
    doing: str
    why: Why
    unusual: bool
    beside: int
    typical: int | None

    @property
    def is_usual(self) -> bool:
        """Whether the thread does that all the time: nobody is to blame for it."""
        return self.why in ("paced", "starts", "common")


@dataclass(frozen=True)
class Diagnosis:
    """What is known about a hang. ``culprits``: the root cause first; empty if nobody is known to
    owe the hang's end. ``circular``: they wait for each other, ``circle`` tells in which order.
    ``compared``: the wait that went well, if any. ``hang`` says why this stretch, ``others`` are
    unusual ones that may have been meant, too.

    ``raw`` is what ``--json`` prints: path, baseline, advice and losses too.
    """

    hang_class: HangClass
    tid: int
    thread: str
    doing: str
    start: int
    dur: int
    culprits: tuple[Culprit, ...]
    circular: bool
    circle: str
    compared: Choice | None
    hang: Hang
    others: tuple[Hang, ...]
    advice: tuple[str, ...]
    raw: DiagnosisFields


@dataclass(frozen=True)
class Choice:
    """A possible answer. Fields that do not apply are None; the way to stop has no ``vertex``.

    ``start`` and ``dur`` in ns, of a baseline those of the wait. ``edge``: how it caused what is
    asked about; of a baseline, how the wait ended, and ``by_tid`` and ``by_thread`` say who ended
    it.
    """

    vertex: int | None
    tid: int | None
    thread: str | None
    start: int | None
    dur: int | None
    edge: str | None
    by_tid: int | None
    by_thread: str | None
    stack: tuple[str, ...]


@dataclass(frozen=True)
class Question:
    """Which wait went as it should (``baseline``), or which cause to follow (``link``), for the
    vertex of a thread. ``start``: when the wait began that is compared, or the vertex; ns.

    The first choice is the one that the rule would take.
    """

    topic: Topic
    vertex: int
    tid: int
    thread: str
    start: int
    choices: tuple[Choice, ...]


def diagnose(
    graph: EventGraph,
    thread: int | None = None,
    at: int | None = None,
    preceding: int = 0,
    ask: Callable[[Question], int] | None = None,
    host: str | None = None,
) -> Diagnosis | None:
    """Explains the hang of ``thread`` at the time ``at`` (ns, CLOCK_MONOTONIC).

    Without ``thread``, of the main thread of what was recorded; without ``at``, the last mark, else
    the most unusual stretch. ``preceding``: how many stretches before a wait are compared, too, in
    the search for one that went well. ``ask`` answers questions by the number of a choice, from 1;
    without it all is decided by rule. ``host``: in a graph of several hosts, the one that is meant
    (None: the first). None when no thread did anything for a millisecond, or there is no such
    thread.
    """
    answers: list[int] = []
    while True:
        given = None if ask is None else answers
        outcome = graph.diagnose_json(thread, at, preceding, given, host)
        if outcome is None:
            return None
        if ask is None or "diagnosis" in outcome:
            break
        question = _question(outcome["question"])
        answer = ask(question)
        if not 1 <= answer <= len(question.choices):
            raise ValueError(f"{answer} is not one of {len(question.choices)} choices")
        answers.append(answer)
    raw = outcome["diagnosis"]
    culprits = tuple(_culprit(fields) for fields in raw["culprits"])
    return Diagnosis(
        raw["class"],
        raw["thread"]["tid"],
        raw["thread"]["thread"],
        raw["doing"],
        raw["start"],
        raw["dur"],
        culprits,
        raw["circular"],
        _circle(raw["circle"]),
        None if raw["compared"] is None else _choice(raw["compared"]),
        _hang(raw["hang"]),
        tuple(map(_hang, raw["others"])),
        tuple(raw["advice"]),
        raw,
    )


def find_hangs(
    graph: EventGraph,
    thread: int | None = None,
    at: int | None = None,
    host: str | None = None,
) -> tuple[Hang, ...]:
    """The stretches that may be the hang, the likeliest first, which ``diagnose`` takes without
    ``at``. ``thread``, ``at`` and ``host`` as there.
    """
    return tuple(map(_hang, graph.hangs_json(thread, at, host)))


def _hang(raw: HangFields) -> Hang:
    return build(Hang, raw, hang_class=raw["class"])


def _circle(members: Sequence[MemberFields]) -> str:
    """Who waits for whom, in words; "" without a circle."""
    named = [f"thread {member['tid']} ({member['thread']})" for member in members]
    if not named:
        return ""
    if len(named) == 1:
        return f"{named[0]} waits for itself"
    return f"{named[0]} waits for {', which waits for '.join([*named[1:], named[0]])}"


def _question(raw: QuestionFields) -> Question:
    return build(Question, raw, choices=tuple(map(_choice, raw["choices"])))


def _choice(raw: ChoiceFields) -> Choice:
    return build(Choice, raw)


def _culprit(raw: CulpritFields) -> Culprit:
    return build(
        Culprit,
        raw,
        hang_class=raw["class"],
        places=_places(raw["places"]),
        places_before=_places(raw["places_before"]),
        set_off=_set_off(raw["set_off"]),
        hot=HotCall.from_raw(raw["hot"]),
        inversion=None if raw["inversion"] is None else Inversion(**raw["inversion"]),
    )


def _set_off(raw: SetOffFields | None) -> str | None:
    return None if raw is None else f"thread {raw['tid']} ({raw['thread']}), by {raw['edge']}"


def _places(raw: Sequence[PlaceFields | None]) -> tuple[Place | None, ...]:
    return tuple(Place(**place) if place else None for place in raw)
