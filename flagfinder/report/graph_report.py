"""The event graph and diagnoses on a screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from flagfinder.diagnose import Diagnosis
from flagfinder.report.terminal import Terminal
from flagfinder.report.units import count, duration


def show_summary(terminal: Terminal, summary: Mapping[str, Any]) -> None:
    """``graph info``."""
    edges = ", ".join(f"{name} {number:,}" for name, number in summary["edges"].items())
    for label, value in (
        ("time", duration(summary["span"])),
        ("events", f"{summary['events']:,}"),
        ("threads", f"{summary['threads']:,}"),
        ("vertices", f"{summary['vertices']:,}"),
        ("edges", edges or "none"),
        ("flag events", f"{summary['flag_events']:,}"),
    ):
        terminal.result(Text(f"{label:<13}", "bold").append(value, "default"))
    if summary["lost"]:
        gaps = count(len(summary["gaps"]), "gap")
        terminal.warning(f"{summary['lost']:,} events were lost ({gaps}): edges there are missing")


def show_vertices(terminal: Terminal, vertices: Sequence[Mapping[str, Any]]) -> None:
    """``graph query``, a line for each."""
    for vertex in vertices:
        text = Text(f"{vertex['start']} ", "dim")
        text.append(f"thread {vertex['tid']} ({vertex['thread']})", "bold")
        text.append(f" for {duration(vertex['dur'])}")
        if vertex["ends_in"]:
            text.append(f", then waits in {vertex['ends_in']}")
        if vertex["target"]:
            text.append(f" on {vertex['target']}")
        for cause in vertex["causes"]:
            whom = "" if cause["tid"] is None else f" from thread {cause['tid']} ({cause['thread']})"
            text.append(f"; {cause['edge']}{whom}")
        terminal.result(text)


def show_diagnosis(terminal: Terminal, found: Diagnosis) -> None:
    """The hang, then its causes, root first."""
    text = Text(found.hang_class, "bold red").append(f": thread {found.tid} ({found.thread})", "bold")
    terminal.result(text.append(f", {found.doing}, for {duration(found.dur)}", "default"))
    for culprit in found.culprits:
        line = Text("  culprit: ", "bold").append(f"thread {culprit.tid} ({culprit.thread})", "bold cyan")
        line.append(f" of process {culprit.pid}, {culprit.doing}, for {duration(culprit.dur)} ({culprit.hang_class})")
        terminal.result(line)
    if found.circular:
        terminal.result("  They wait for each other.")
    for command in found.advice:
        terminal.result(Text("  to go on: ", "dim").append(command, "cyan"))
    if found.raw["lost"]:
        terminal.warning(f"{found.raw['lost']:,} events were lost: causes may be missing")
