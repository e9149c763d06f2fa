# SPDX-License-Identifier: MIT
"""The verdict on a screen: where the runs part, what is polled, what ends the loop, who wrote it,
why this word.

Kept within 80x24 where the names allow. Everything shown comes from ``Report``; nothing is decided
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.text import Text

from flagfinder.flags.code import parse_hex
from flagfinder.flags.flags import (
    AskedDescriptor,
    Flag,
    Owed,
    Proof,
    Report,
    ThreadName,
    Writer,
)
from flagfinder.flags.loop_condition import LoopCondition
from flagfinder.report.code import code_text
from flagfinder.report.lines import label_line
from flagfinder.report.python_report import show_python
from flagfinder.report.terminal import Terminal
from flagfinder.report.units import count, hexadecimal

if TYPE_CHECKING:
    from flagfinder.flags.fields import Standing

_EVIDENCE_SHOWN = 4
_STANDINGS: Mapping[Standing, str] = {
    "proved": "proved: another thread's copy writes it, and a copy of this one then goes on",
    "seen-in-good-run": "seen: in the good run another thread wrote it, and the loop ended",
    "ends-loop": "tried: a copy of the thread left its loop by it",
    "counted": "counted: the call came back with the same answer each time; the thread may work "
    "beside it",
    "by-code": "deduced from the loop's code",
    "one-of-several": "one of several that would end the wait",
    "assumed": "assumed: it rests on what nothing shows",
    "unsure": "not sure",
    "ruled-out": "ruled out",
}
_STACK_SHOWN = 2
_OWED_SHOWN = 2
_PARTS_SHOWN = 4
_DESCRIPTORS_SHOWN = 2

_KINDS = {
    "global": "global variable",
    "heap": "heap object",
    "tls": "thread-local variable",
    "stack": "stack variable",
    "shared": "shared memory",
    "syscall": "syscall result",
}

LOOPS = {
    "busy": "a busy loop",
    "pause": "a busy loop with pause",
    "yield": "a loop that yields between looks",
    "sleep": "a loop that sleeps between looks",
    "syscall": "a loop around a syscall",
    "lock": "a loop that looks under a lock",
    "rmw": "a loop that tries to take the word",
}


def show_report(terminal: Terminal, report: Report, explain: bool = False) -> None:
    """The whole answer. ``explain`` adds the engine's reasoning step by step and every
    candidate.
    """
    terminal.names_in_full = explain
    terminal.paragraph(_headline(report), 2)
    if report.loop is not None:
        _show_spot(terminal, report)
    flag = report.flag
    if flag is not None:
        _show_flag(terminal, flag, report.condition, explain)
        _show_evidence(terminal, report.flags, explain)
    elif report.waits_until is not None:
        label_line(terminal, "no flag", Text(f"at the level of machine words: {report.reason}"))
    if report.python is not None:
        show_python(terminal, report.python, explain)
    for chain in report.chains:
        label_line(terminal, "chain", Text(chain))
    for note in report.notes:
        label_line(terminal, "note", Text(note))
    if explain and report.explain:
        terminal.result("")
        terminal.result(Text("How this was found", "bold"))
        for number, step in enumerate(report.explain, 1):
            terminal.result(Text(f"{number:3}. {step}"))


def _headline(report: Report) -> Text:
    thread = _thread(report.spin_thread)
    flag = report.flag
    if report.verdict == "data-flag" and flag is not None:
        does = "sleeps until a change of" if report.loop is None else "polls"
        return (
            Text("data flag: ", "bold green").append(f"{thread} {does} ").append(flag.name, "bold")
        )
    if report.verdict == "syscall-loop" and flag is not None:
        return (
            Text("syscall loop: ", "bold green")
            .append(f"{thread} repeats ")
            .append(flag.name, "bold")
        )
    if report.verdict == "lock" and flag is not None:
        return Text("lock: ", "bold green").append(f"{thread} spins for ").append(flag.name, "bold")
    if report.waits_until is not None:
        return (
            Text("Python loop: ", "bold green")
            .append(f"{thread} waits in Python until ")
            .append(report.waits_until, "bold")
        )
    return Text(f"{report.verdict.replace('-', ' ')}: ", "bold yellow").append(report.reason)


def _show_spot(terminal: Terminal, report: Report) -> None:
    loop = report.loop
    assert loop is not None
    where = Text()
    if loop.function:
        where.append(loop.function, "cyan")
        if loop.module and loop.module not in loop.function:
            where.append(f" ({loop.module})")
        where.append(": ")
    where.append(LOOPS.get(loop.kind, f"a {loop.kind} loop"))
    if loop.iterations is not None:
        where.append(f", {count(loop.iterations, 'iteration')} seen")
    label_line(terminal, "spins in", where)
    point = report.divergence
    if point is None:
        return
    label_line(terminal, "parts at", code_text(point.branch))
    if point.normal_target is not None:
        label_line(
            terminal, "", Text("normal run went to ").append_text(code_text(point.normal_target))
        )
    if point.spin_target is not None:
        label_line(
            terminal, "", Text("spin run goes to   ").append_text(code_text(point.spin_target))
        )


def show_flag_facts(
    terminal: Terminal, flags: tuple[Flag, ...], condition: LoopCondition | None, explain: bool
) -> None:
    """A live thread's flags: what one run alone tells of them."""
    flag = flags[0]
    _show_place(terminal, flag)
    _show_condition(terminal, flag, condition, explain)
    _show_descriptors(terminal, flag, explain)
    if flag.proof is not None:
        label_line(terminal, "tried out", proof_text(flag.proof))
    _show_owed(terminal, flag, explain)
    if flag.readers:
        label_line(terminal, "read by", code_text(flag.readers[0]))
        for caller in flag.reader_stack[:_STACK_SHOWN]:
            label_line(terminal, "", Text("called from ").append_text(code_text(caller)))
    _show_evidence(terminal, flags, explain)


def _show_condition(
    terminal: Terminal,
    flag: Flag,
    condition: LoopCondition | None,
    explain: bool,
    left_with: str = "",
) -> None:
    """What would end the loop, a line for each way out."""
    parts = condition.parts if condition is not None else ()
    if not parts:
        ends = Text(flag.exit_when or "not known", "bold").append(left_with, "default")
        label_line(terminal, "ends when", ends)
    shown = parts if explain else parts[:_PARTS_SHOWN]
    for number, part in enumerate(shown):
        # Of one test the word is named above.
        what = flag.exit_when if len(parts) == 1 and flag.exit_when else part.text
        text = Text("or " if number else "").append(what, "bold")
        if part.value is not None and part.flag != flag.rank:
            text.append(f" (now {part.value:#x})")
        if part.tests_more:
            text.append(", and what is tested behind it")
        if not number:
            text.append(left_with)
        label_line(terminal, "" if number else "ends when", text)
    if len(parts) > len(shown):
        more = count(len(parts) - len(shown), "more test")
        label_line(terminal, "", Text(f"or by {more}: --explain"))


def _show_descriptors(terminal: Terminal, flag: Flag, explain: bool) -> None:
    shown = flag.descriptors if explain else flag.descriptors[:_DESCRIPTORS_SHOWN]
    for descriptor in shown:
        label_line(terminal, "asks about", Text(descriptor_text(descriptor)))
        holders = holders_text(descriptor)
        if holders:
            label_line(terminal, "", Text(holders))
    if len(flag.descriptors) > len(shown):
        more = count(len(flag.descriptors) - len(shown), "more descriptor")
        label_line(terminal, "", Text(f"and {more}: --explain"))
    if flag.calls_per_second is not None:
        label_line(
            terminal, "rate", Text(f"{flag.calls_per_second:,} such calls a second by this thread")
        )


def descriptor_text(descriptor: AskedDescriptor) -> str:
    """``fd 0, /dev/null: each read gets end of file``."""
    via = "" if descriptor.via is None else f" in epoll fd {descriptor.via}"
    text = f"fd {descriptor.fd}{via}, {descriptor.what}"
    if descriptor.because == "not-open":
        return f"fd {descriptor.fd}{via}: {descriptor.why}"
    return text if descriptor.why is None else f"{text}: {descriptor.why}"


def holders_text(descriptor: AskedDescriptor) -> str:
    """``inherited from process 12 (xargs), fd 0; other end: process 13 (cat), fd 1``."""
    parts = []
    parent = descriptor.inherited_from
    if parent is not None and parent["known"] == "seen":
        parts.append(
            f"inherited from process {parent['pid']} ({parent['name']}), fd {parent['fd']}"
        )
    elif parent is not None:
        parts.append(f"probably set by process {parent['pid']} ({parent['name']}), its parent")
    if descriptor.peers:
        parts.append(f"other end: {', '.join(descriptor.peers)}")
    return "; ".join(parts)


def _show_owed(terminal: Terminal, flag: Flag, explain: bool) -> None:
    shown = flag.owed if explain else flag.owed[:_OWED_SHOWN]
    labels = ["owed by", *[""] * len(shown)]
    if len(flag.owed) > 1 and all(owed.known == "by-code" for owed in flag.owed):
        label_line(
            terminal,
            labels.pop(0),
            Text(f"one of {len(flag.owed)} threads, which one is not known:"),
        )
    for label, owed in zip(labels, shown, strict=False):
        label_line(terminal, label, owed_text(owed))
    if len(flag.owed) > len(shown):
        label_line(
            terminal,
            "",
            Text(f"and {count(len(flag.owed) - len(shown), 'more thread')}: --explain"),
        )
    if not flag.owed and flag.owed_by_nobody:
        label_line(terminal, "owed by", Text("nobody: ", "bold").append(flag.owed_by_nobody))


def owed_text(owed: Owed) -> Text:
    """``thread 16548 (worker) in worker_loop+0x4d: it would write 0x1 after its `read` on fd 0
    returns data (proved in a copy)``.
    """
    text = Text(f"thread {owed.tid} ({owed.name})" if owed.name else f"thread {owed.tid}", "bold")
    if owed.known == "seen":
        text.append(f"; in the normal run {_thread(owed.normal)} wrote it")
        return text.append(f" after {owed.after}") if owed.after else text
    if owed.code is not None:
        text.append(" in ").append_text(code_text(owed.code))
    what = f"it would write {owed.value:#x}" if owed.value is not None else "it would write it"
    text.append(f": {what}")
    if owed.known == "proved":
        return text.append(
            f" after {owed.after} (proved in a copy)" if owed.after else " (proved in a copy)"
        )
    if owed.after is not None:
        text.append(f"; it waits: {owed.after}")
    return text.append(" (by its code)")


def proof_text(proof: Proof) -> Text:
    """``in a copy of the thread, with 0x1 there: it left the loop after 38 instructions, to
    main+0x40``.
    """
    values = " and ".join(f"{value:#x}" for value in proof.words.values())
    where = (
        "there"
        if len(proof.words) == 1
        else "in " + " and ".join(f"{address:#x}" for address in proof.words)
    )
    text = Text(f"in a copy of the thread, with {values} {where}: ")
    if proof.outcome == "leaves":
        text.append("it left the loop", "bold")
        if proof.instructions is not None:
            text.append(f" after {count(proof.instructions, 'instruction')}")
        if proof.reached is not None:
            text.append(", to ").append_text(code_text(proof.reached))
    elif proof.outcome == "returns" and proof.instructions is None:
        text.append("it stayed in the loop", "bold")
    elif proof.outcome == "returns":
        text.append("it did something else and came back to the loop", "bold")
    elif proof.outcome == "faults":
        text.append("it would crash", "bold").append(f": {proof.why}")
    else:
        text.append(f"whether it leaves the loop is not known: {proof.why}")
    return text


def _show_flag(
    terminal: Terminal, flag: Flag, condition: LoopCondition | None, explain: bool
) -> None:
    _show_place(terminal, flag)
    left_with = ""
    if flag.value_exit is not None:
        value = _value(flag.value_exit, flag.value_exit_symbol)
        left_with = f" (the normal run left with {value})"
    _show_condition(terminal, flag, condition, explain, left_with)
    _show_writers(terminal, flag)
    _show_owed(terminal, flag, explain)


def _show_place(terminal: Terminal, flag: Flag) -> None:
    kind = _KINDS.get(flag.kind, flag.kind)
    what = Text(f"{count(flag.size, 'byte')} of a {kind}" if flag.size else kind)
    if flag.spin_address is not None:
        what.append(f" at {flag.spin_address:#x}")
    label_line(terminal, "polls", what)
    if flag.access_path:
        label_line(terminal, "", Text(f"reached as {flag.access_path}"))
    label_line(terminal, "value", Text(_value(flag.value_spin, flag.value_spin_symbol), "bold"))


def _value(value: int | None, symbol: str | None) -> str:
    """``0x9429e0, _Py_FalseStruct``: an address says more by its name."""
    return hexadecimal(value) if symbol is None else f"{hexadecimal(value)}, {symbol}"


def _show_writers(terminal: Terminal, flag: Flag) -> None:
    if flag.kind == "syscall" and not flag.writers:
        return
    for run, label in (("normal", "written by"), ("spin", "")):
        writers = [writer for writer in flag.writers if writer.run == run]
        if not writers:
            if run == "normal" and flag.normal_address is None and flag.value_exit is None:
                label_line(terminal, label, Text("not known: the normal run has no values there"))
            else:
                label_line(terminal, label, Text(f"{run} run: nobody seen"))
            continue
        # A lock's word is written by who takes it as well; who gives it back ends the wait.
        ending = (
            writer
            for writer in writers
            if run == "normal" and parse_hex(writer.value) == flag.value_exit is not None
        )
        shown = next(ending, writers[0])
        label_line(terminal, label, _writer(shown))
        if run == "normal":  # who wrote it in the spin run only shows that it is another write
            for caller in shown.stack[:_STACK_SHOWN]:
                label_line(terminal, "", Text("    called from ").append_text(code_text(caller)))
        if len(writers) > 1:
            label_line(terminal, "", Text(f"    and {count(len(writers) - 1, 'more writer')}"))


def _writer(writer: Writer) -> Text:
    text = Text(f"{writer.run} run: {_thread(ThreadName(writer.tid, writer.thread))}")
    if writer.value is not None:
        text.append(f" wrote {writer.value}")
    if writer.code is not None:
        text.append(" in ").append_text(code_text(writer.code))
    return text


def _show_evidence(terminal: Terminal, flags: tuple[Flag, ...], explain: bool) -> None:
    """How the first of ``flags`` is known, what speaks for it, and how many others there are; all
    of it with ``explain``.
    """
    flag, others = flags[0], flags[1:]
    shown = len(flag.evidence) if explain else _EVIDENCE_SHOWN
    rank = f"the first of {len(flags)} candidates" if others else "the only candidate"
    if others and not explain:
        rank += ": --explain shows the others"
    label_line(terminal, "known", Text(f"{_STANDINGS[flag.standing]}; {rank}"))
    for item in flag.evidence[:shown]:
        label_line(terminal, "", Text(f"- {item}"))
    if len(flag.evidence) > shown:
        label_line(terminal, "", Text(f"- and {len(flag.evidence) - shown} more: --explain"))
    if not (explain and others):
        return
    terminal.result("")
    terminal.result(Text("Other candidates", "bold"))
    for other in others:
        value = f", value {other.value_spin:#x}" if other.value_spin is not None else ""
        terminal.result(Text(f"{other.rank:3}. {other.name}{value}"))
        terminal.result(Text(f"           {_STANDINGS[other.standing]}"))
        for item in other.evidence:
            terminal.result(Text(f"           - {item}"))


def _thread(thread: ThreadName | None) -> str:
    if thread is None or (thread.tid is None and thread.name is None):
        return "a thread"
    name = f" ({thread.name})" if thread.name else ""
    return f"thread {thread.tid}{name}" if thread.tid is not None else f"thread{name}"
