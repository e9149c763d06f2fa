# SPDX-License-Identifier: MIT
"""A diagnosis as one self-contained page: the story, a timeline of the threads on the path, the
evidence.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from flagfinder.graph.critical_path import BlockedWait, CriticalPath, critical_path
from flagfinder.graph.diagnose import Culprit, Diagnosis
from flagfinder.graph.graph import EventGraph
from flagfinder.report.graph_report import answer, did, hot_lines, what_kept
from flagfinder.report.page import fill_page
from flagfinder.report.units import count, duration
from flagfinder.shared.record import dataclass
from flagfinder.shared.typed import TypedDict

if TYPE_CHECKING:
    from flagfinder.graph.diagnosis_fields import StepFields
    from flagfinder.graph.fields import GraphInfoFields

_LINES = 5  # of the story at most
_ROWS = 12  # threads shown at most
_SEGMENTS = 2000  # of what made up the hang
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
    path = critical_path(graph, found.tid, found.start, found.start + found.dur, _SEGMENTS)
    data = _Timeline(graph, found, path).data()
    told = did(found.hang_class, found.doing, found.dur)
    parts = {
        "TITLE": escape(f"Why thread {found.tid} ({found.thread}) {told}"),
        "SUBTITLE": escape(_subtitle(graph.summary())),
        "STORY": "".join(f"<li>{escape(line)}</li>" for line in story(found, path)),
        "LEGEND": "".join(
            _key(kind) for kind in _COLORS if kind in {data["kinds"][a[3]] for a in data["arrows"]}
        ),
        "EVIDENCE": "".join(_evidence(graph.summary(), found, path)),
        # In a script element, only "<" could end it.
        "DATA": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
    }
    return fill_page("hang_page.html", parts)


def story(found: Diagnosis, path: CriticalPath | None) -> list[str]:
    """What happened, in at most five lines, of which the first is the answer."""
    lines = [answer(found)]
    root = found.culprits[0] if found.culprits else None
    still = ", and still did when the recording ended" if found.raw["unfinished"] else ""
    if root is not None and (root.tid != found.tid or found.circular):
        hung = f"Thread {found.tid} ({found.thread})"
        lines.append(f"{hung} {did(found.hang_class, found.doing, found.dur)}{still}.")
    kept = what_kept(root) if root and not found.circular else []
    lines += [f"{text[0].upper()}{text[1:]}." for text in kept]
    why = (
        next((one.why for one in root.hot.descriptors if one.why), "") if root and root.hot else ""
    )
    if why:
        lines.append(f"That call comes back at once: {why}.")
    between = [culprit for culprit in found.culprits[1:] if culprit.tid != found.tid]
    if between and not found.circular:
        lines.append(f"Because of it, {_named(between[0])} was late too.")
    others = [share for share in path.threads if share.tid != found.tid] if path else []
    if path and others:
        parts = [
            f"thread {s.tid} ({s.thread}) {100 * s.dur / max(1, found.dur):.0f}%"
            for s in others[:3]
        ]
        lines.append(
            f"Meanwhile others kept it waiting, by their part of the time: {', '.join(parts)}."
        )
    if found.advice:
        lines.append(f"Which flag is polled is not known yet: {found.advice[0]} will tell.")
    return lines[:_LINES]


def _named(culprit: Culprit) -> str:
    told = did(culprit.hang_class, culprit.doing, culprit.dur)
    return f"thread {culprit.tid} ({culprit.thread}) of process {culprit.pid}, which {told},"


def _subtitle(summary: GraphInfoFields) -> str:
    command = " ".join(summary["command"])
    parts = [
        command,
        duration(summary["span"]),
        count(summary["events"], "event"),
        count(summary["threads"], "thread"),
    ]
    return " · ".join(part for part in parts if part)


def _key(kind: str) -> str:
    return f'<span class="key"><i style="background:{_COLORS[kind]};height:3px"></i>{kind}</span>'


def _stack(stack: Sequence[str], is_open: bool = False) -> str:
    if not stack:
        return ""
    sites = "<br>".join(escape(site) for site in stack)
    shown = " open" if is_open else ""
    return (
        f'<details{shown}><summary>call sites</summary><span class="stack">{sites}</span></details>'
    )


def _table(heads: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]]) -> str:
    """``rows``: class and cells, which are HTML. Heads that end in # are those of numbers."""
    classes = [' class="number"' if head.endswith("#") else "" for head in heads]
    head = "".join(
        f"<th{c}>{name.rstrip('#')}</th>" for name, c in zip(heads, classes, strict=True)
    )
    body = "".join(
        f'<tr class="{kind}">'
        + "".join(f"<td{c}>{cell}</td>" for cell, c in zip(cells, classes, strict=True))
        + "</tr>"
        for kind, cells in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _thread(tid: int, name: str) -> str:
    return escape(f"{tid} ({name})")


def _evidence(
    summary: GraphInfoFields, found: Diagnosis, path: CriticalPath | None
) -> Iterable[str]:
    culprits = (
        ("culprit", [_thread(c.tid, c.thread), c.hang_class, _did_what(c), duration(c.dur)])
        for c in found.culprits
    )
    yield "<h3>Culprits, the root first</h3>"
    yield _table(["thread", "class", "did", "for#"], culprits)
    if path and path.waits:
        yield "<h3>Waits that made up the hang</h3>"
        rows = (
            ("", _wait_cells(wait)) for wait in sorted(path.waits, key=lambda wait: -wait.dur)[:8]
        )
        yield _table(["thread", "waited for", "how", "for#"], rows)
    for command in found.advice:
        yield f"<p>To go on: <code>{escape(command)}</code></p>"
    if summary["lost"]:
        yield (
            f"<p><strong>{count(summary['lost'], 'event')} were lost: causes may be "
            "missing.</strong></p>"
        )
    else:
        yield '<p class="dim">No event was lost.</p>'


def _did_what(culprit: Culprit) -> str:
    """What a culprit did, with its call sites; of calls that bring nothing, what they are about."""
    lines = [*(hot_lines(culprit.hot) if culprit.hot else []), *what_kept(culprit)]
    about = "".join(f"<br>{escape(line)}" for line in lines)
    return escape(culprit.doing) + about + _stack(culprit.stack, True)


def _wait_cells(wait: BlockedWait) -> list[str]:
    how = {"lock": "lock contention", "condition": "condition", None: wait.call or "blocked"}[
        wait.kind
    ]
    how += f" on {wait.target}" if wait.target else ""
    if wait.inversion:
        how += "; priority inversion"
        if wait.inversion.instead_tid is not None:
            how += f": thread {wait.inversion.instead_tid} ({wait.inversion.instead}) had the CPU"
    by = f"{_thread(wait.by_tid, wait.by_thread)}, {wait.edge}"
    return [
        _thread(wait.tid, wait.thread),
        by,
        escape(how) + _stack(wait.stack),
        duration(wait.dur),
    ]


class _Row(TypedDict):
    label: str
    culprit: bool
    slices: list[list[int]]


class _Data(TypedDict):
    """What ``hang_page.html`` reads: times are ns from the view's begin on; the rest is described
    in ``timeline_fields``. Each of ``path`` is a row, a start and ns.
    """

    view: list[int]
    hang: list[int]
    hangView: list[int]
    colors: dict[str, str]
    threads: list[_Row]
    arrows: list[list[int]]
    leftOut: int
    kinds: list[str]
    names: list[str]
    stacks: list[list[int]]
    sites: list[str]
    path: list[list[int]]


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
        drawn = self.graph.timeline_json(self._threads(steps), start, end)
        culprits = {culprit.tid for culprit in found.culprits}
        rows = {row["tid"]: place for place, row in enumerate(drawn["rows"])}
        return {
            "view": [0, end - start],
            "hang": [found.start - start, found.start + found.dur - start],
            "hangView": [max(start, found.start - margin) - start, end - start],
            "colors": _COLORS,
            "threads": [
                {
                    "label": f"{r['tid']} {r['thread']}",
                    "culprit": r["tid"] in culprits,
                    "slices": r["slices"],
                }
                for r in drawn["rows"]
            ],
            "arrows": [arrow for arrow in drawn["arrows"] if drawn["kinds"][arrow[3]] in _COLORS],
            "leftOut": drawn["left_out"],
            "kinds": drawn["kinds"],
            "names": drawn["names"],
            "stacks": drawn["stacks"],
            "sites": drawn["sites"],
            "path": self._path(rows, start),
        }

    def _threads(self, steps: Sequence[StepFields]) -> list[int]:
        """The hung one first, then those on its path, then those whose time it was."""
        shares = [share.tid for share in self.path.threads] if self.path else []
        culprits = [culprit.tid for culprit in self.found.culprits]
        return list(
            dict.fromkeys([self.found.tid, *culprits, *(step["tid"] for step in steps), *shares])
        )[:_ROWS]

    def _path(self, rows: dict[int, int], start: int) -> list[list[int]]:
        segments = self.path.raw["segments"] if self.path else []
        return [
            [rows[s["tid"]], s["start"] - start, s["dur"]] for s in segments if s["tid"] in rows
        ]
