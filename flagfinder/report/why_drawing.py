# SPDX-License-Identifier: MIT
"""The drawing of a chain of waits, as SVG: processes, their threads, and arrows to who owes."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from flagfinder.live.why_chain import WhyReport
from flagfinder.live.why_links import WhyLink, WhyNode
from flagfinder.shared.visible import visible

_WIDTH, _BOX, _ROW, _GAP = 320, 92, 120, 150
_COLORS = {
    "seen": "var(--known)",
    "proved": "var(--known)",
    "by-code": "var(--code)",
    "assumed": "var(--assumed)",
}


def html_text(text: str) -> str:
    """The text as HTML; control characters are shown."""
    return escape(visible(text))


class Drawing:
    """Processes are columns from left to right as the chain comes to them, threads are boxes."""

    def __init__(self, report: WhyReport) -> None:
        self._report = report
        self._columns: dict[int, list[WhyNode]] = {}
        for link in report.links:
            for node in (link.waiter, link.owed_by):
                if node is not None and node not in self._columns.setdefault(node.pid, []):
                    self._columns[node.pid].append(node)
        root = report.root
        if not self._columns and root.pid is not None:
            self._columns[root.pid] = [WhyNode(root.pid, root.tid or root.pid, root.name)]

    def svg(self) -> str:
        rows = max((len(nodes) for nodes in self._columns.values()), default=0)
        width = max(1, len(self._columns)) * (_WIDTH + _GAP) - _GAP + 80
        height = rows * _ROW + 60
        parts = [
            f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
            '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" '
            'markerHeight="8" orient="auto"><path d="M0 0L10 5L0 10z"/></marker></defs>',
            *self._boxes(height),
            *(self._arrow(number, link) for number, link in enumerate(self._report.links)),
            "</svg>",
        ]
        return "".join(parts)

    def _boxes(self, height: int) -> Iterable[str]:
        root = self._report.root
        for column, (pid, nodes) in enumerate(self._columns.items()):
            left = 10 + column * (_WIDTH + _GAP)
            name = next((node.name for node in nodes if node.tid == pid), nodes[0].name)
            yield (
                f'<rect class="process" x="{left}" y="4" width="{_WIDTH}" height="{height - 8}" '
                'rx="8"/>'
            )
            yield _label(
                left + 12, 8, _WIDTH - 24, 24, "process", [("line dim", f"process {pid} ({name})")]
            )
            for node in nodes:
                x, y = self._place(node)
                is_root = root.kind != "deadlock" and (node.pid, node.tid) == (root.pid, root.tid)
                kind = "thread root" if is_root else "thread"
                yield (
                    f'<rect class="{kind}" x="{x}" y="{y}" width="{_WIDTH - 40}" '
                    f'height="{_BOX}" rx="5"/>'
                )
                words = [
                    ("line", f"thread {node.tid} ({node.name})"),
                    ("line at", self._where(node)),
                    ("lines dim", self._does(node)),
                ]
                yield _label(x + 12, y + 6, _WIDTH - 64, _BOX - 12, kind, words)

    def _does(self, node: WhyNode) -> str:
        root = self._report.root
        of_node = (link for link in self._report.links if link.waiter == node)
        waits = next((link.statement or link.name for link in of_node), None)
        return waits or (root.kind if (node.pid, node.tid) == (root.pid, root.tid) else "")

    def _where(self, node: WhyNode) -> str:
        root = self._report.root
        places = [link.at for link in self._report.links if link.waiter == node]
        places += [root.at] if root.node == node else []
        return next((f"at {spot}" for spot in places if spot is not None), "")

    def _place(self, node: WhyNode) -> tuple[int, int]:
        column = list(self._columns).index(node.pid)
        row = self._columns[node.pid].index(node)
        return 30 + column * (_WIDTH + _GAP), 38 + row * _ROW

    def _arrow(self, number: int, link: WhyLink) -> str:
        if link.owed_by is None:
            return ""
        (x1, y1), (x2, y2) = self._place(link.waiter), self._place(link.owed_by)
        wide = _WIDTH - 40
        y1, y2 = y1 + _BOX // 2, y2 + _BOX // 2
        if x1 == x2:  # within a process, along its right side
            start, end, bend = x1 + wide, x2 + wide, x1 + wide + 46 + 8 * number
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
            'marker-end="url(#tip)"/></g>'
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
