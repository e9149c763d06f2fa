# SPDX-License-Identifier: MIT
"""The report of ``why``: the chain of waits and its end, as the engine has it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from flagfinder.live.why_links import WhyLink, WhyRoot, link_from_raw, root_from_raw
from flagfinder.live.why_story import Line, circle, legend, plain, story
from flagfinder.shared.build import build, check_schema
from flagfinder.shared.record import dataclass, field, replace
from flagfinder.shared.spot import Spot
from flagfinder.shared.visible import visible

if TYPE_CHECKING:
    from flagfinder.live.fields import ThreadStackFields, WhyFields


@dataclass(frozen=True)
class OpenCall:
    """An open call. ``own``: its code is the program's author's; ``sure``: it is no old one.
    ``locals``: of a Python function, each variable's value as text, if they were asked for.
    """

    spot: Spot
    own: bool
    sure: bool
    locals: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ThreadStack:
    """All that a thread has open, innermost first; ``call`` is the system call that it is in."""

    tid: int
    name: str
    call: str | None
    frames: tuple[OpenCall, ...]

    @property
    def is_idle(self) -> bool:
        """Whether it is blocked and has no code of the program's author open."""
        return self.call is not None and not any(frame.own for frame in self.frames)


@dataclass(frozen=True)
class WhyReport:
    """What ``flagfinder why`` found. ``tests``: what processes of the chain are in, of a test
    runner; a text is the command that it runs. ``not_asked`` lists what the time limit left no time
    for. ``raw`` is the JSON object it was made from.
    """

    pid: int
    source: Literal["live", "core", "recordings"]
    program: str
    story: tuple[str, ...]
    links: tuple[WhyLink, ...]
    root: WhyRoot
    next: tuple[str, ...]
    notes: tuple[str, ...]
    not_asked: tuple[str, ...]
    stacks: tuple[ThreadStack, ...]
    tests: tuple[Spot | str, ...]
    raw: WhyFields = field(repr=False, compare=False)

    @classmethod
    def from_json(cls, text: str) -> WhyReport:
        """Reads the object that ``flagfinder why --json`` prints. Raises ValueError on another
        schema.
        """
        return cls.from_raw(json.loads(text))

    @classmethod
    def from_raw(cls, raw: WhyFields) -> WhyReport:
        """The same of the object itself."""
        check_schema(raw, "flagfinder.why/1")
        report = build(
            cls,
            raw,
            source=raw.get("source", "live"),  # older reports have none
            links=tuple(link_from_raw(item) for item in raw["links"]),
            root=root_from_raw(raw["root"]),
            story=(),
            not_asked=tuple(raw.get("not_asked", ())),
            tests=tuple(
                item.get("command") or Spot.from_raw(item) for item in raw.get("tests", ())
            ),
            stacks=tuple(_stack(item) for item in raw.get("stacks", ())),
            raw=raw,
        )
        raw["story"] = plain(report.lines)
        return replace(report, story=tuple(raw["story"]))

    @property
    def lines(self) -> list[Line]:
        """The story, each piece with its role."""
        return story(self.pid, self.links, self.root, self.tests)

    @property
    def found(self) -> bool:
        """Whether the end of the chain is known, and not assumed."""
        return self.root.kind != "unknown" and not self.root.assumed

    @property
    def place(self) -> Spot | None:
        """Where to look in the source first: at the end of the chain, or in the circle."""
        ring = circle(self.links) if self.root.kind == "deadlock" else ()
        before = (link.at for link in reversed(self.links))
        spots = [link.at for link in ring] or [self.root.at, *before]
        return next((spot for spot in spots if spot is not None and spot.file is not None), None)

    def __str__(self) -> str:
        """The story, notes and what to do next."""
        return why_text(self)

    def _repr_html_(self) -> str:
        """The same as a notebook shows it."""
        from flagfinder.live.why_html import notebook  # noqa: PLC0415  # few need it

        further = (*self.notes, *(f"next: {command}" for command in self.next))
        return notebook(self.lines, further)

    def of_the_dead(self) -> WhyReport:
        """The same once its processes have ended: there is no command left to run."""
        self.raw["next"] = []
        return replace(self, next=())


def why_texts(reports: Sequence[WhyReport]) -> list[str]:
    """The reports as plain text, and what the marks in them mean."""
    meaning = legend([(report.links, report.root) for report in reports])
    return [*map(why_text, reports), *([meaning] if meaning else [])]


def why_text(report: WhyReport) -> str:
    """The report as plain text."""
    lines = [*report.story, *report.notes, *(f"next: {command}" for command in report.next)]
    return "\n".join(visible(line) for line in [f"process {report.pid} ({report.program})", *lines])


def _stack(raw: ThreadStackFields) -> ThreadStack:
    calls = (
        OpenCall(Spot.from_raw(one), one["own"], one["sure"], one.get("locals", {}))
        for one in raw["frames"]
    )
    return build(ThreadStack, raw, frames=tuple(calls))
