# SPDX-License-Identifier: MIT
"""The chain of waits as one self-contained page: the story, threads and processes as a drawing, and
the evidence of a link on a click.
"""

from __future__ import annotations

from flagfinder.live.why_chain import WhyReport
from flagfinder.live.why_links import WhyLink, WhyNode
from flagfinder.live.why_story import Line
from flagfinder.report.page import fill_page
from flagfinder.report.why_drawing import Drawing, html_text
from flagfinder.shared.spot import Spot


def why_page(report: WhyReport) -> str:
    """The page, as HTML without references to anything outside."""
    drawing = Drawing(report)
    return fill_page(
        "why_page.html",
        {
            "TITLE": html_text(f"Why process {report.pid} does not go on"),
            "SUBTITLE": html_text(report.program),
            "KIND": _role(report.lines[0]),
            "STORY": "".join(f"<li>{_line(line)}</li>" for line in report.lines),
            "DRAWING": drawing.svg(),
            "EVIDENCE": "".join(
                _evidence(number, link) for number, link in enumerate(report.links)
            ),
            "NEXT": "".join(f"<p><code>{html_text(command)}</code></p>" for command in report.next),
        },
    )


def _role(line: Line) -> str:
    """What the first piece of the story says of the hang."""
    return line[0][1] or "waits"


def _line(line: Line) -> str:
    return "".join(
        f'<span class="{role}">{html_text(text)}</span>' if role else html_text(text)
        for text, role in line
    )


def _who(node: WhyNode) -> str:
    return html_text(f"thread {node.tid} ({node.name}) of process {node.pid}")


def _whole(spot: Spot) -> str:
    """With the path of the file."""
    path = f" ({spot.file})" if spot.file is not None and "/" in spot.file else ""
    return f"{spot}{path}"


def _evidence(number: int, link: WhyLink) -> str:
    owed = f"<dt>owed by</dt><dd>{_who(link.owed_by)}</dd>" if link.owed_by else ""
    code = f"<dt>which is at</dt><dd>{html_text(str(link.code))}</dd>" if link.code else ""
    address = f" at {link.address:#x}" if link.address is not None else ""
    at = f"<dt>waits at</dt><dd>{html_text(_whole(link.at))}</dd>" if link.at else ""
    stack = "<br>".join(html_text(str(code)) for code in link.stack)
    calls = f'<dt>its calls</dt><dd class="stack">{stack}</dd>' if stack else ""
    return (
        f'<details id="link-{number}"><summary>{number + 1}. {_who(link.waiter)} waits for '
        f"{html_text(link.name)} "
        f"[{html_text(link.known)}]</summary><dl><dt>waits for</dt><dd>{html_text(link.kind)}: "
        f"{html_text(link.name + address)}</dd>{at}{owed}{code}<dt>known "
        f"by</dt><dd>{html_text(link.reason)}</dd>{calls}</dl></details>"
    )
