# SPDX-License-Identifier: MIT
"""The chain of waits as one self-contained page: the story, threads and processes as a drawing, and
the evidence of a link on a click.
"""

from __future__ import annotations

from collections.abc import Sequence

from flagfinder.live.why_chain import WhyReport
from flagfinder.live.why_html import html_line, html_text
from flagfinder.live.why_links import WhyLink, WhyNode
from flagfinder.live.why_story import Line, legend
from flagfinder.report.page import fill_page
from flagfinder.report.why_drawing import Drawing
from flagfinder.shared.spot import Spot

# What stands left and right of the drawing.
_AROUND = 81


def why_page(report: WhyReport, others: Sequence[WhyReport] = ()) -> str:
    """The page, as HTML without references to anything outside. ``others`` are reports of processes
    beside this one.
    """
    reports = [report, *others]
    drawing = Drawing(report)
    return fill_page(
        "why_page.html",
        {
            "TITLE": html_text(report.story[0]),
            "SUBTITLE": html_text(f"process {report.pid}: {report.program}"),
            "KIND": _role(report.lines[0]),
            "ANSWER": html_line(report.lines[0]),
            "STORY": "".join(f"<li>{html_line(line)}</li>" for line in report.lines[1:]),
            "MARKS": html_text(legend([(one.links, one.root) for one in reports])),
            "OTHERS": "".join(map(_other, others)),
            "FITS": f"{drawing.width + _AROUND}px",
            "DRAWING": f'<div class="wide">{drawing.svg()}</div>'
            f'<div class="narrow">{Drawing(report, in_one_column=True).svg()}</div>',
            "EVIDENCE": "".join(
                _evidence(number, link) for number, link in enumerate(report.links)
            ),
            "NOTES": "".join(f"<p>{html_text(note)}</p>" for note in report.notes),
            "NEXT": "".join(f"<p><code>{html_text(command)}</code></p>" for command in report.next),
        },
    )


def _other(report: WhyReport) -> str:
    story = "".join(f"<li>{html_line(line)}</li>" for line in report.lines)
    return (
        f'<h3>process {report.pid} <span class="dim">{html_text(report.program)}</span></h3>'
        f'<ol class="story of-{_role(report.lines[0])}">{story}</ol>'
    )


def _role(line: Line) -> str:
    """What the first piece of the story says of the hang."""
    return line[0][1] or "waits"


def _who(node: WhyNode) -> str:
    return html_text(f"{node.called} ({node.name}) of process {node.pid}")


def _whole(spot: Spot) -> str:
    """With the path of the file."""
    path = f" ({spot.file})" if spot.file is not None and "/" in spot.file else ""
    callers = "".join(f", called at {caller}" for caller in spot.callers)
    return f"{spot}{path}{callers}"


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
