# SPDX-License-Identifier: MIT
"""A diagnosis as one self-contained page: the story, a timeline of the threads on the path, the
evidence.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Literal, TypedDict

from flagfinder.graph.critical_path import BlockedWait, CriticalPath, critical_path
from flagfinder.graph.diagnose import Culprit, Diagnosis
from flagfinder.graph.graph import EventGraph
from flagfinder.report.page import fill_page
from flagfinder.report.units import count, duration

if TYPE_CHECKING:
    from flagfinder.graph.fields import EdgeKind, GraphInfoFields, HangClass, StepFields, VertexFields

_ROWS = 12  # threads shown at most
_SLICES = 4000  # of one thread; the longest are kept
_MARGIN = 4  # the view around the hang is wider by a part of it: 1 / n on each side
_BEFORE = 4  # what led to the hang is shown if it is not further back than so many times its length
_COLORS = {
    "wake": "#1f6feb",
    "ipc": "#8250df",
    "signal": "#bf3989",
    "fork": "#6e7781",
    "exit": "#6e7781",
    "timer": "#9a6700",
    "io_uring": "#9a6700",
    "flag": "#d1242f",
    "unknown": "#6e7781",
}


def hang_page(graph: EventGraph, found: Diagnosis) -> str:
    """The page, as HTML without references to anything outside."""
    path = critical_path(graph, found.tid, found.start, found.start + found.dur)
    data = _Timeline(graph, found, path).data()
    parts = {
        "TITLE": escape(f"{found.hang_class}: thread {found.tid} ({found.thread})"),
        "SUBTITLE": escape(_subtitle(graph.summary())),
        "STORY": "".join(f"<li>{escape(line)}</li>" for line in story(found, path)),
        "LEGEND": "".join(_key(kind) for kind in _COLORS if any(arrow["kind"] == kind for arrow in data["arrows"])),
        "EVIDENCE": "".join(_evidence(graph.summary(), found, path)),
        # In a script element, only "<" could end it.
        "DATA": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
    }
    return fill_page("hang_page.html", parts)


def story(found: Diagnosis, path: CriticalPath | None) -> list[str]:
    """What happened, in at most five sentences."""
    still = ", and still did when the recording ended" if found.raw["unfinished"] else ""
    did = _did(found.hang_class, found.doing, found.dur)
    lines = [f"Thread {found.tid} ({found.thread}) {did}{still}."]
    if found.raw["baseline"] is not None:
        lines.append("It had waited in the same place before, and was woken in much less time.")
    others = [share for share in path.threads if share.tid != found.tid] if path else []
    if path and others:
        parts = [f"thread {s.tid} ({s.thread}) {100 * s.dur / max(1, found.dur):.0f}%" for s in others[:3]]
        lines.append(f"Meanwhile it was up to others, by their part of the time: {', '.join(parts)}.")
    own = [culprit for culprit in found.culprits if culprit.tid != found.tid]
    before = found.raw["path"][1:2]
    if not own and before and before[0]["edge"] != "weak":
        step = before[0]
        lines.append(f"It was set off by thread {step['tid']} ({step['thread']}), by {step['edge']}.")
    if not own:
        lines.append("No other thread is known to be to blame.")
    else:
        lines.append(f"The culprit is {_named(own[0])}.")
    if found.circular:
        lines.append(f"They wait for each other: {found.circle}.")
    elif len(own) > 1:
        lines.append(f"Because of it, {_named(own[1])} was late too.")
    elif found.advice:
        lines.append(f"Which flag is polled is not known yet: {found.advice[0]} will tell.")
    return lines[:5]


def _did(hang_class: HangClass, doing: str, dur: int) -> str:
    if hang_class == "Unknown":
        return f"was {doing}"
    return f"{'waited in' if hang_class == 'LongWait' else 'was'} {doing} for {duration(dur)}"


def _named(culprit: Culprit) -> str:
    did = _did(culprit.hang_class, culprit.doing, culprit.dur)
    return f"thread {culprit.tid} ({culprit.thread}) of process {culprit.pid}, which {did}"


def _subtitle(summary: GraphInfoFields) -> str:
    command = " ".join(summary["command"])
    parts = [command, duration(summary["span"]), count(summary["events"], "event"), count(summary["threads"], "thread")]
    return " · ".join(part for part in parts if part)


def _key(kind: str) -> str:
    return f'<span class="key"><i style="background:{_COLORS[kind]};height:3px"></i>{kind}</span>'


def _stack(stack: Sequence[str], is_open: bool = False) -> str:
    if not stack:
        return ""
    sites = "<br>".join(escape(site) for site in stack)
    shown = " open" if is_open else ""
    return f'<details{shown}><summary>call sites</summary><span class="stack">{sites}</span></details>'


def _table(heads: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]]) -> str:
    """``rows``: class and cells, which are HTML. Heads that end in # are those of numbers."""
    classes = [' class="number"' if head.endswith("#") else "" for head in heads]
    head = "".join(f"<th{c}>{name.rstrip('#')}</th>" for name, c in zip(heads, classes, strict=True))
    body = "".join(
        f'<tr class="{kind}">'
        + "".join(f"<td{c}>{cell}</td>" for cell, c in zip(cells, classes, strict=True))
        + "</tr>"
        for kind, cells in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _thread(tid: int, name: str) -> str:
    return escape(f"{tid} ({name})")


def _evidence(summary: GraphInfoFields, found: Diagnosis, path: CriticalPath | None) -> Iterable[str]:
    culprits = (
        ("culprit", [_thread(c.tid, c.thread), c.hang_class, escape(c.doing) + _stack(c.stack, True), duration(c.dur)])
        for c in found.culprits
    )
    yield "<h3>Culprits, the root first</h3>"
    yield _table(["thread", "class", "did", "for#"], culprits)
    if path and path.waits:
        yield "<h3>Waits that made up the hang</h3>"
        rows = (("", _wait_cells(wait)) for wait in sorted(path.waits, key=lambda wait: -wait.dur)[:8])
        yield _table(["thread", "waited for", "how", "for#"], rows)
    for command in found.advice:
        yield f"<p>To go on: <code>{escape(command)}</code></p>"
    if summary["lost"]:
        yield f"<p><strong>{count(summary['lost'], 'event')} were lost: causes may be missing.</strong></p>"
    else:
        yield '<p class="dim">No event was lost.</p>'


def _wait_cells(wait: BlockedWait) -> list[str]:
    how = {"lock": "lock contention", "condition": "condition", None: wait.call or "blocked"}[wait.kind]
    how += f" on {wait.target}" if wait.target else ""
    if wait.inversion:
        how += "; priority inversion"
        if wait.inversion.instead_tid is not None:
            how += f": thread {wait.inversion.instead_tid} ({wait.inversion.instead}) had the CPU"
    by = f"{_thread(wait.by_tid, wait.by_thread)}, {wait.edge}"
    return [_thread(wait.tid, wait.thread), by, escape(how) + _stack(wait.stack), duration(wait.dur)]


class _Row(TypedDict):
    label: str
    culprit: bool


class _Slice(TypedDict):
    kind: Literal["run", "wait"]
    name: str
    start: int
    dur: int
    run: int | None
    row: int
    stack: list[str]


# ``from`` is a word of Python's own, so its field can't stand in a class.
_From = TypedDict("_From", {"from": int})


class _Arrow(_From):
    to: int
    ts: int
    kind: EdgeKind
    stack: list[str]


class _Part(TypedDict):
    row: int
    start: int
    dur: int


class _Data(TypedDict):
    """What ``hang_page.html`` reads; rows by their numbers in ``threads``."""

    origin: int
    view: list[int]
    hang: list[int]
    hangView: list[int]
    colors: dict[str, str]
    threads: list[_Row]
    slices: list[_Slice]
    arrows: list[_Arrow]
    path: list[_Part]


@dataclass(frozen=True)
class _Timeline:
    """What the page's script draws; times in ns."""

    graph: EventGraph
    found: Diagnosis
    path: CriticalPath | None

    def data(self) -> _Data:
        raw, found = self.found.raw, self.found
        margin = max(1_000_000, found.dur // _MARGIN)
        steps = [*raw["path"], *([raw["baseline"]] if raw["baseline"] else [])]
        first = min([found.start, *(step["start"] for step in steps)])
        begun, ended = self.graph.span()
        start = max(begun, max(first, found.start - _BEFORE * found.dur) - margin)
        end = min(ended, found.start + found.dur + margin)
        tids = self._threads(steps)
        rows = {tid: row for row, tid in enumerate(tids)}
        vertices = {tid: self.graph.query(tid, start, end, _SLICES * 4) for tid in tids}
        slices = [part for tid in tids for part in self._slices(vertices[tid], rows[tid], end)]
        culprits = {culprit.tid for culprit in found.culprits}
        names = {tid: vertices[tid][0]["thread"] if vertices[tid] else "" for tid in tids}
        return {
            "origin": start,
            "view": [start, end],
            "hang": [found.start, found.start + found.dur],
            "hangView": [max(start, found.start - margin), end],
            "colors": _COLORS,
            "threads": [{"label": f"{tid} {names[tid]}", "culprit": tid in culprits} for tid in tids],
            "slices": slices,
            "arrows": list(self._arrows(vertices, rows, start, end)),
            "path": self._path(rows),
        }

    def _threads(self, steps: Sequence[StepFields]) -> list[int]:
        """The hung one first, then those on its path, then those whose time it was."""
        shares = [share.tid for share in self.path.threads] if self.path else []
        culprits = [culprit.tid for culprit in self.found.culprits]
        return list(dict.fromkeys([self.found.tid, *culprits, *(step["tid"] for step in steps), *shares]))[:_ROWS]

    def _slices(self, vertices: Sequence[VertexFields], row: int, end: int) -> list[_Slice]:
        parts: list[_Slice] = []
        for number, vertex in enumerate(vertices):
            start, stop = vertex["start"], vertex["start"] + vertex["dur"]
            stack = vertex["stack"]
            what: _Slice = {
                "kind": "run",
                "name": "runs",
                "start": start,
                "dur": vertex["dur"],
                "run": vertex["run"],
                "row": row,
                "stack": stack,
            }
            parts.append(what)
            last = number + 1 == len(vertices)
            until = end if last else vertices[number + 1]["start"]
            if vertex["ends_in"] and until > stop and not (last and vertex["ends_in"].startswith("exit")):
                name = " ".join(filter(None, [vertex["ends_in"], vertex["target"]]))
                parts.append({**what, "kind": "wait", "name": name, "start": stop, "dur": until - stop, "run": None})
        kept = sorted(parts, key=lambda part: -part["dur"])[:_SLICES]
        return sorted(kept, key=lambda part: part["start"])

    def _arrows(
        self, vertices: dict[int, list[VertexFields]], rows: dict[int, int], start: int, end: int
    ) -> Iterable[_Arrow]:
        for tid, row in rows.items():
            for vertex in vertices[tid]:
                for cause in vertex["causes"]:
                    source = rows.get(cause["tid"]) if cause["tid"] else None
                    known = cause["edge"] in _COLORS and start <= cause["ts"] <= end
                    if source is not None and source != row and known:
                        yield {
                            "from": source,
                            "to": row,
                            "ts": cause["ts"],
                            "kind": cause["edge"],
                            "stack": cause["stack"],
                        }

    def _path(self, rows: dict[int, int]) -> list[_Part]:
        segments = self.path.raw["segments"] if self.path else []
        return [{"row": rows[s["tid"]], "start": s["start"], "dur": s["dur"]} for s in segments if s["tid"] in rows]
