# SPDX-License-Identifier: MIT
"""The drawing of a chain of waits, as SVG: processes, their threads, and arrows to who owes."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from flagfinder.live.why_chain import WhyReport
from flagfinder.live.why_links import WhyLink, WhyNode
from flagfinder.shared.visible import visible

_BOX, _ROW, _GAP = 112, 140, 150  # heights of a thread's box and row; between two columns
_ALL, _LEAST = 1190, 320  # width that a page has for it, and of a column
NARROW, _BROAD = 330, 700  # of the only column where a page is narrow, and where it is not
_EDGE = 44  # right of the last column, for arrows
_COLORS = {
    "seen": "var(--known)",
    "proved": "var(--known)",
    "by-code": "var(--code)",
    "by-reference": "var(--code)",
    "assumed": "var(--assumed)",
}


def html_text(text: str) -> str:
    """The text as HTML; control characters are shown."""
    return escape(visible(text))


class Drawing:
    """Processes are columns from left to right as the chain comes to them, threads are boxes. Where
    there are too many, or ``column`` is the width of the only column, they stand below each other.
    """

    def __init__(self, report: WhyReport, column: int | None = None) -> None:
        self._report = report
        self._threads: dict[int, list[WhyNode]] = {}
        for link in report.links:
            for node in (link.waiter, link.owed_by):
                if node is not None and node not in self._threads.setdefault(node.pid, []):
                    self._threads[node.pid].append(node)
        root = report.root
        if not self._threads and root.pid is not None:
            self._threads[root.pid] = [
                WhyNode(root.pid, root.tid or root.pid, root.name, root.task)
            ]
        count = max(1, len(self._threads))
        share = (_ALL - 10 - (count - 1) * _GAP - _EDGE) // count
        column = _BROAD if column is None and share < _LEAST else column
        self._wide = column or share
        rows = max((len(nodes) for nodes in self._threads.values()), default=0)
        self._frames: dict[int, tuple[int, int, int]] = {}  # left, top and height by process
        left, top = 10, 4
        for pid, nodes in self._threads.items():
            height = (len(nodes) if column else rows) * _ROW + 24
            self._frames[pid] = (left, top, height)
            if column:
                top += height + 20
            else:
                left += self._wide + _GAP

    @property
    def width(self) -> int:
        lefts = (left for left, _, _ in self._frames.values())
        return max(lefts, default=0) + self._wide + _EDGE

    def svg(self) -> str:
        _, tops, heights = zip(*self._frames.values(), strict=True) if self._frames else 3 * [()]
        width = self.width
        height = max(map(int.__add__, tops, heights), default=0) + 4
        name = f"tip-{self._wide}"
        arrows = (self._arrow(number, link, name) for number, link in enumerate(self._report.links))
        parts = [
            f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
            f'<defs><marker class="tip" id="{name}" viewBox="0 0 10 10" refX="9" refY="5" '
            'markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L10 5L0 10z"/></marker>'
            "</defs>",
            *self._boxes(),
            *arrows,
            "</svg>",
        ]
        return "".join(parts)

    def _boxes(self) -> Iterable[str]:
        root = self._report.root
        for pid, (left, top, height) in self._frames.items():
            nodes = self._threads[pid]
            name = next((node.name for node in nodes if node.tid == pid), nodes[0].name)
            yield (
                f'<rect class="process" x="{left}" y="{top}" width="{self._wide}" '
                f'height="{height}" rx="8"/>'
            )
            title = [("line dim", f"process {pid} ({name})")]
            yield _label(left + 12, top + 4, self._wide - 24, 24, "process", title)
            for node in nodes:
                x, y = self._place(node)
                is_root = root.kind != "deadlock" and node == root.node
                kind = "thread root" if is_root else "thread"
                yield (
                    f'<rect class="{kind}" x="{x}" y="{y}" width="{self._wide - 40}" '
                    f'height="{_BOX}" rx="5"/>'
                )
                words = [
                    ("line", f"{node.called} ({node.name})"),
                    ("at", self._where(node)),
                    ("lines dim", self._does(node)),
                ]
                yield _label(x + 12, y + 6, self._wide - 64, _BOX - 12, kind, words)

    def _does(self, node: WhyNode) -> str:
        root = self._report.root
        of_node = (link for link in self._report.links if link.waiter == node)
        waits = next((link.statement or link.name for link in of_node), None)
        return waits or (root.kind if node == root.node else "")

    def _where(self, node: WhyNode) -> str:
        root = self._report.root
        places = [link.at for link in self._report.links if link.waiter == node]
        places += [root.at] if root.node == node else []
        return next((f"at {spot}" for spot in places if spot is not None), "")

    def _place(self, node: WhyNode) -> tuple[int, int]:
        left, top, _ = self._frames[node.pid]
        return left + 20, top + 34 + self._threads[node.pid].index(node) * _ROW

    def _arrow(self, number: int, link: WhyLink, tip: str) -> str:
        if link.owed_by is None:
            return ""
        (x1, y1), (x2, y2) = self._place(link.waiter), self._place(link.owed_by)
        wide = self._wide - 40
        y1, y2 = y1 + _BOX // 2, y2 + _BOX // 2
        if x1 == x2:  # along the right side
            start, end, bend = x1 + wide, x2 + wide, x1 + wide + 46 + min(8 * number, 24)
            path = f"M{start} {y1 - 6}C{bend} {y1},{bend} {y2},{end} {y2 + 6}"
        elif x1 < x2:
            path = f"M{x1 + wide} {y1}C{x1 + wide + 80} {y1},{x2 - 80} {y2},{x2} {y2}"
        else:
            path = (
                f"M{x1} {y1 + 10}C{x1 - 80} {y1 + 40},{x2 + wide + 80} {y2 + 40},{x2 + wide} "
                f"{y2 + 10}"
            )
        dash = ' stroke-dasharray="6 5"' if link.known == "assumed" else ""
        return (
            f'<g class="arrow" data-link="{number}" tabindex="0"><path class="wide" d="{path}"/>'
            f'<path d="{path}" style="stroke:{_COLORS[link.known]}"{dash} '
            f'marker-end="url(#{tip})"/></g>'
        )


def _label(
    x: int, y: int, width: int, height: int, kind: str, lines: Iterable[tuple[str, str]]
) -> str:
    """Words that the browser cuts with an ellipsis where they do not fit, and shows whole on hover.
    ``lines``: class and text.
    """
    shown = [(name, html_text(text)) for name, text in lines if text]
    whole = "&#10;".join(text for _, text in shown)
    words = "".join(f'<div class="{name}">{text}</div>' for name, text in shown)
    return (
        f'<foreignObject x="{x}" y="{y}" width="{width}" height="{height}">'
        f'<div class="label {kind}-label" title="{whole}">{words}</div></foreignObject>'
    )
