# SPDX-License-Identifier: MIT
"""The event graph and diagnoses on a screen."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from flagfinder.graph.critical_path import BlockedWait, CriticalPath, Inversion
from flagfinder.graph.diagnose import Choice, Culprit, Diagnosis, Hang, HotCall
from flagfinder.report.diff_report import descriptor_text, holders_text
from flagfinder.report.terminal import Terminal
from flagfinder.report.units import count, duration, relative, short_time

if TYPE_CHECKING:
    from flagfinder.graph.diagnosis_fields import CountedFields, HangClass, Why, WorkFields
    from flagfinder.graph.fields import (
        GraphInfoFields,
        HostFields,
        RanFields,
        StarvedFields,
        VertexFields,
    )

_RAN = 4  # functions and calls shown of what a thread ran
_WHY: dict[Why, str] = {
    "longer": "hardly any of its runs took as long",
    "cluster": "one of several as long in a short time, and there are none at other times",
    "polls": "it polls, which it does not always do",
    "alone": "there is nothing to compare it with",
    "always": "it hardly does anything else, so nothing tells whether it waits for something",
    "paced": "usual, as its rounds follow a clock",
    "sleeps": "usual, as it asked to sleep for that time",
    "idle": "usual, as no thread of the recorded programs ended it",
    "starts": "usual, as the program starts",
    "common": "usual, as others took as long",
}
_LIKELY = {
    "before": "not seen to owe it this time: it ended such a wait before",
    "asked": "not seen to owe it: it was asked for something just before",
    "deadlock": "not seen to owe it: it is in a deadlock of the same process",
}


def show_summary(terminal: Terminal, summary: GraphInfoFields) -> None:
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
    for host in summary["hosts"]:
        terminal.result(Text(f"{'host':<13}", "bold").append(host_text(host), "default"))
    if summary["lost"]:
        gaps = count(len(summary["gaps"]), "gap")
        terminal.warning(f"{summary['lost']:,} events were lost ({gaps}): edges there are missing")


def host_text(host: HostFields) -> str:
    """A host's name, what it received, and how well its clock is known."""
    best, worst = map(short_time, host["widths"])
    known = f"is known to {best}, at worst to {worst}"
    clock = "is the first one's" if host["by"] is None or not any(host["widths"]) else known
    return f"{host['name']}: {count(host['received'], 'message')} from others; its clock {clock}"


def show_vertices(terminal: Terminal, vertices: Sequence[VertexFields], begun: int) -> None:
    """``graph query``, a line for each: when, from the recording's begin on and as ``--at`` takes
    it.
    """
    for vertex in vertices:
        text = Text(f"+{(vertex['start'] - begun) / 1e9:.6f} s ", "default").append(
            f"({vertex['start']}) ", "dim"
        )
        text.append(f"thread {vertex['tid']} ({vertex['thread']})", "bold")
        text.append(f" for {duration(vertex['dur'])}")
        if vertex["ends_in"]:
            text.append(f", then waits in {vertex['ends_in']}")
        if vertex["target"]:
            text.append(f" on {vertex['target']}")
        if vertex["futex"]:
            text.append(f" on the word {vertex['futex']}")
        if vertex["wait"] is not None:
            text.append(f" for {duration(vertex['wait'])}")
        if vertex["woke"]:
            text.append(f"; woke {vertex['woke']}")
        for cause in vertex["causes"]:
            whom = (
                "" if cause["tid"] is None else f" from thread {cause['tid']} ({cause['thread']})"
            )
            text.append(f"; {cause['edge']}{whom}")
        terminal.result(text)
        _sites(terminal, "blocks", vertex["stack"])
        for cause in vertex["causes"]:
            _sites(terminal, "woken", cause["stack"])


def show_hangs(terminal: Terminal, found: Sequence[Hang], begun: int) -> None:
    """What may be meant, the likeliest first: what is unusual, or that nothing is."""
    unusual = [hang for hang in found if hang.unusual]
    if not unusual:
        terminal.result("Nothing is unusual. The longest:")
    for hang in unusual or found:
        terminal.paragraph(Text("  ").append_text(_hang_text(hang, begun)), 4)


def _hang_text(hang: Hang, begun: int) -> Text:
    """When, as the recording has it and as ``--at`` takes it, who, what, and why."""
    text = Text(f"+{(hang.start - begun) / 1e9:.3f} s ", "default")
    text.append(f"(--thread {hang.tid} --at {hang.start + hang.dur // 2}) ", "dim")
    text.append(f"thread {hang.tid} ({hang.thread})", "bold")
    text.append(f", {hang.doing}, for {duration(hang.dur)}: {why_text(hang)}")
    return text


def why_text(hang: Hang) -> str:
    """Why a stretch may be the hang, or is not likely to be."""
    is_wait = hang.hang_class == "LongWait"
    one, many = ("wait", "waits in the same place") if is_wait else ("run", "runs")
    what = count(hang.beside, f"shorter {one}", f"shorter {many}")
    if hang.typical is None:
        return _WHY[hang.why]
    about = f"{what} took about {short_time(hang.typical)}"
    return about if hang.why == "longer" else f"{_WHY[hang.why]}; {about}"


def show_diagnosis(terminal: Terminal, found: Diagnosis, begun: int) -> None:
    """Who is to blame, and for what; then the hang, and what is known of each culprit, root first.
    ``begun``: the recording's first event.
    """
    terminal.paragraph(Text(answer(found), "bold"), 2)
    text = Text("  the hang: ", "bold")
    terminal.paragraph(text.append_text(_hang_text(found.hang, begun)), 4)
    for culprit in found.culprits:
        _culprit(terminal, culprit)
    if found.compared is not None:
        terminal.paragraph(_compared_line(found.compared, found.start), 4)
    if found.others:
        terminal.result(Text("  others that may be meant:", "bold"))
    for other in found.others:
        terminal.paragraph(Text("    ").append_text(_hang_text(other, begun)), 6)
    for command in found.advice:
        terminal.result(Text("  to go on: ", "dim").append(command, "cyan"))
    if found.raw["lost"]:
        terminal.warning(f"{found.raw['lost']:,} events were lost: causes may be missing")


def answer(found: Diagnosis) -> str:
    """Who is to blame, what he did, where and for how long."""
    hung = f"hread {found.tid} ({found.thread})"
    if not found.culprits:
        known = (
            "Nobody is to blame, as nothing is unusual"
            if found.hang.is_usual
            else "Nobody is known to owe the end of it"
        )
        return f"T{hung} {did(found.hang_class, found.doing, found.dur)}. {known}."
    if found.circular:
        alone = len(found.raw["circle"]) == 1
        kind = "A deadlock" if alone else "They wait for each other"
        return f"{kind}: {found.circle}, for {duration(found.dur)}."
    root = found.culprits[0]
    told = f"Thread {root.tid} ({root.thread}) of process {root.pid} "
    told += did(root.hang_class, root.doing, root.dur)
    if root.code:
        told += f", {'at' if root.hang_class == 'LongWait' else 'mostly in'} {root.code}"
    if root.tid == found.tid:
        is_open = root.hang_class == "RepeatedYield" and root.known == "itself"
        return f"{told}{'; for what is not known' if is_open else ''}."
    likely = "likely, not surely, " if any(one.is_likely for one in found.culprits) else ""
    return f"{told}; t{hung} {likely}waited for that."


def did(hang_class: HangClass, doing: str, dur: int) -> str:
    """What a thread did, and for how long."""
    if hang_class == "Unknown":
        return f"was {doing}"
    is_call = hang_class == "LongWait" and not doing.startswith(("waiting", "stopped", "blocked"))
    comma = "," if "," in doing else ""
    return f"{'waited in' if is_call else 'was'} {doing}{comma} for {duration(dur)}"


def _culprit(terminal: Terminal, culprit: Culprit) -> None:
    """What a culprit did, and what is known of it."""
    likely = "likely " if culprit.is_likely else ""
    line = Text(f"  {likely}culprit: ", "bold").append(
        f"thread {culprit.tid} ({culprit.thread})", "bold cyan"
    )
    line.append(
        f" of process {culprit.pid}, {culprit.doing}, for {duration(culprit.dur)} "
        f"({culprit.hang_class})"
    )
    terminal.paragraph(line, 6)
    if culprit.set_off and culprit.hang_class in ("LongRunning", "HotCalls"):
        terminal.result(Text("      set off by ", "dim").append(culprit.set_off, "default"))
    lines = [_LIKELY[culprit.known]] if culprit.is_likely else []
    lines += hot_lines(culprit.hot) if culprit.hot else []
    for text in [*lines, *what_kept(culprit)]:
        terminal.paragraph(Text(f"      {text}"), 8)
    if culprit.work and culprit.work["only_waits"]:
        terminal.result(
            Text("      only its waits are counted; calls, too, with ", "dim").append(
                "flagfinder events record --syscalls target", "cyan"
            )
        )
    _sites(terminal, "then at" if culprit.hang_class == "LongRunning" else "at", culprit.stack)


def what_kept(culprit: Culprit) -> list[str]:
    """Who had the CPU of one that had none, what it did and what it ran, in lines for people."""
    lines = []
    if culprit.inversion:
        lines.append(f"priority inversion: {inversion_text(culprit.inversion)}")
    elif culprit.starved:
        lines.append(f"it {starved_text(culprit.starved)}")
    if culprit.work:
        lines.append(f"it did {work_text(culprit.work)}")
    if culprit.ran and culprit.hang_class != "LongWait":
        lines.append(f"it ran {shares_text(culprit.ran)}")
        lines += [f"it called {told}"] if (told := _calls_text(culprit.ran)) else []
    return lines


def work_text(work: WorkFields) -> str:
    """What a thread did, counted: ``12,000 pread64 of big.bin, 799 ms; 195 ms on a CPU``."""
    parts = [_counted_text(one) for one in work["counted"]]
    parts.append(f"{duration(work['run'])} on a CPU")
    if work["ready"] > work["run"]:
        parts.append(f"{duration(work['ready'])} ready without one")
    return "; ".join(parts)


def _counted_text(one: CountedFields) -> str:
    on = f" of {one['target']}" if one["target"] else ""
    return f"{one['count']:,} {one['call']}{on}, {duration(one['dur'])}"


def starved_text(starved: StarvedFields) -> str:
    """For how long a thread had no CPU, and who had it."""
    text = f"had no CPU for {duration(starved['dur'])}"
    if starved["tid"] is None:
        return text
    name = f" ({starved['thread']})" if starved["thread"] else ""
    return f"{text}, while thread {starved['tid']}{name} had it"


def inversion_text(inversion: Inversion) -> str:
    """How much less urgent a lock's holder was than who waited for it, and who had its CPU."""
    text = f"the holder is less urgent ({inversion.holder} against {inversion.waiter})"
    if inversion.instead_tid is None:
        return text
    starved = duration(inversion.starved)
    return (
        f"{text} and had no CPU for {starved}: thread {inversion.instead_tid} "
        f"({inversion.instead}) had it most"
    )


def hot_lines(hot: HotCall) -> list[str]:
    """What is known of a hot call, in lines for people."""
    result = (
        f"{errno.errorcode.get(-hot.result, hot.result)}" if hot.result < 0 else f"{hot.result}"
    )
    lines = [
        f"{hot.calls:,} times, {hot.per_second:,} in a second on a CPU; the last result was "
        f"{result}"
    ]
    if hot.code:
        lines.append(f"called by {hot.code}")
    for descriptor in hot.descriptors:
        lines.append(f"it asks about {descriptor_text(descriptor)}")
        lines += filter(None, [holders_text(descriptor)])
    if hot.opened_by:
        lines.append(f"opened by {hot.opened_by}")
    return lines


def shares_text(ran: RanFields) -> str:
    """The functions that took most of the time, each with its share."""
    shares = [
        f"{one['function']} {100 * one['samples'] / ran['samples']:.0f}%"
        for one in ran["functions"][:_RAN]
    ]
    return ", ".join(shares)


def _calls_text(ran: RanFields) -> str:
    """The calls that cost most."""
    calls = []
    for call in ran["calls"][:_RAN]:
        failed = f", {call['errors']:,} failed" if call["errors"] else ""
        calls.append(
            f"{call['call']} {count(call['count'], 'time')} in {short_time(call['total'])}{failed}"
        )
    return "; ".join(calls)


def _compared_line(wait: Choice, since: int) -> Text:
    """The wait that went well, with its time before (or after) the hang's begin."""
    assert wait.start is not None
    assert wait.dur is not None
    when = relative(wait.start, since)
    line = Text("  compared with: ", "bold").append(
        f"its wait {when}, which took {duration(wait.dur)}", "default"
    )
    if wait.by_tid is not None:
        line.append(f" and was ended by thread {wait.by_tid} ({wait.by_thread}), {wait.edge}")
    return line


def _sites(terminal: Terminal, label: str, stack: Sequence[str]) -> None:
    for number, site in enumerate(stack):
        terminal.result(
            Text(f"      {label if number == 0 else '':<10}", "dim").append(site, "dim")
        )


def _wait_line(wait: BlockedWait) -> Text:
    what = {"lock": "lock contention", "condition": "a condition", None: wait.call or "blocked"}[
        wait.kind
    ]
    text = Text(f"  {duration(wait.dur):>8} ", "bold").append(
        f"thread {wait.tid} ({wait.thread}): {what}", "default"
    )
    if wait.target:
        text.append(f" on {wait.target}")
    return text.append(f", {wait.edge} from thread {wait.by_tid} ({wait.by_thread})")


def show_critical_path(terminal: Terminal, found: CriticalPath, limit: int) -> None:
    """Whose time it was, then the longest waits."""
    whole = found.end - found.start
    head = Text(f"thread {found.tid} ({found.thread})", "bold").append(
        f", {duration(whole)}, was made up of", "default"
    )
    terminal.result(head)
    for share in found.threads:
        part = 100 * share.dur / whole if whole else 0
        line = Text(f"  {part:5.1f}% ", "bold").append(
            f"thread {share.tid} ({share.thread}): ", "default"
        )
        terminal.result(line.append(f"{duration(share.dur)}, {duration(share.run)} of it on a CPU"))
    longest = sorted(found.waits, key=lambda wait: -wait.dur)
    if longest:
        terminal.result(Text("the longest waits for others:", "bold"))
    for wait in longest[:limit]:
        terminal.result(_wait_line(wait))
        if wait.inversion:
            line = Text("           priority inversion: ", "bold red")
            terminal.result(line.append(inversion_text(wait.inversion), "default"))
        _sites(terminal, "blocked", wait.stack)
        _sites(terminal, "woken", wait.wake_stack)
    if found.raw["lost"]:
        terminal.warning(f"{found.raw['lost']:,} events were lost: waits may be missing")
