# SPDX-License-Identifier: MIT
"""A live process on a screen: what its threads poll, what the others wait for, what to do next."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from flagfinder.interpreters.which import runs_java
from flagfinder.live.spin import SpinReport, SpinThread
from flagfinder.report.code import code_text
from flagfinder.report.diff_report import LOOPS, show_flag_facts
from flagfinder.report.lines import label_line
from flagfinder.report.python_report import python_calls, show_python
from flagfinder.report.terminal import Terminal
from flagfinder.report.units import count

_WAITS_SHOWN = 6
_STACK_SHOWN = 5
# An idle machine makes 25,000 in the usual budget; fewer may be too few rounds of the loop.
_FEW_STEPS = 10_000
_FEW_ROUNDS = 8  # the engine wants some before it calls a way around a loop


def show_spin(terminal: Terminal, report: SpinReport, explain: bool = False) -> None:
    """The whole answer; ends in the next command."""
    terminal.names_in_full = explain
    found = [thread for thread in report.threads if thread.flag is not None]
    first, others = report.threads[:1], report.threads[1:]
    for thread in first:
        _show_thread(terminal, thread, explain)
    for thread in others:
        if explain:
            _show_thread(terminal, thread, explain)
    if not explain:
        _show_briefly(terminal, others)
    for note in report.notes:
        label_line(terminal, "note", Text(note))
    if not report.threads:
        terminal.result("the process has no thread that could be looked at")
    if report.source == "core":
        _end_of_core(terminal, report, explain)
        return
    _show_ways(terminal, report)
    if found and found[0].flag is not None and found[0].flag.size:
        terminal.next_command("flagfinder", "poke", str(report.pid), "--thread", str(found[0].tid))
    elif not (report.found or report.not_asked) and runs_java(report.pid):
        terminal.message("`why` reads what Java code polls and who writes it")
        terminal.next_command("flagfinder", "why", str(report.pid))
    elif not report.found and any(_was_cut(thread, report.budget_ms) for thread in report.threads):
        terminal.message(
            "the budget ended before much was seen (a busy machine, or long rounds); more of it "
            "may show the flag"
        )
        terminal.next_command(
            "flagfinder", "spin", str(report.pid), "--budget", f"{report.budget_ms * 5 / 1000:g}"
        )
    elif not explain:
        terminal.next_command("flagfinder", "spin", str(report.pid), "--explain")


def _show_ways(terminal: Terminal, report: SpinReport) -> None:
    """Says once where the threads' instructions were seen; and why not in copies."""
    copied = [thread for thread in report.threads if thread.steps and thread.via == "replica"]
    stepped = [thread for thread in report.threads if thread.steps and thread.via != "replica"]
    parts = []
    for threads, how in (copied, "seen in a copy"), (stepped, "stepped"):
        if threads:
            longest = max(thread.pause_ms for thread in threads)
            pause = f"{longest:.0f}" if longest >= 10 else f"{longest:.1f}"
            why = f" ({threads[0].via_reason})" if threads is stepped else ""
            parts.append(
                f"{count(len(threads), 'thread')} {how}{why}, paused for {pause} ms at most"
            )
    if parts:
        terminal.message("; ".join([*parts, "all run on as before"]))


def _end_of_core(terminal: Terminal, report: SpinReport, explain: bool) -> None:
    terminal.message(
        "each thread's copy went on from the core; its calls answered what the thread last got"
    )
    if not explain:
        terminal.message("--explain shows every thread and the reasoning")
    if not any(thread.flag for thread in report.threads) and any(
        thread.steps for thread in report.threads
    ):
        terminal.message(f"a longer look: --budget {report.budget_ms * 5 / 1000:g}")


def _was_cut(thread: SpinThread, budget_ms: int) -> bool:
    rounds = thread.loop.iterations if thread.loop is not None else None
    few_steps, few_rounds = thread.steps < _FEW_STEPS, rounds is not None and rounds < _FEW_ROUNDS
    if thread.via == "replica":  # a copy ends before its time only when it has shown enough rounds
        return thread.steps > 0 and (few_rounds or (rounds is None and few_steps))
    return thread.steps > 0 and (few_steps or few_rounds) and thread.pause_ms >= budget_ms


def _show_thread(terminal: Terminal, thread: SpinThread, explain: bool) -> None:
    terminal.paragraph(_headline(thread), 2)
    loop = thread.loop
    if loop is not None:
        where = Text(loop.function or "unknown code", "cyan").append(": ")
        where.append(LOOPS.get(loop.kind, f"a {loop.kind} loop"))
        if loop.iterations is not None:
            where.append(f", {count(loop.iterations, 'iteration')} seen in {thread.steps:,} steps")
        label_line(terminal, "spins in", where)
        if loop.at is not None:
            label_line(terminal, "at", Text(str(loop.at), "bold"))
    if thread.flag is not None:
        show_flag_facts(terminal, thread.flags, thread.condition, explain)
    elif thread.waits_until is not None:
        label_line(terminal, "no flag", Text(f"at the level of machine words: {thread.reason}"))
    if thread.python is not None:
        show_python(terminal, thread.python, explain)
    # Of a shell its own code tells nothing.
    is_shown = thread.flag is None and (thread.script is None or explain)
    if is_shown and thread.wait is not None:
        for code in thread.wait.stack[: _STACK_SHOWN if not explain else None]:
            label_line(terminal, "in", code_text(code))
    for note in thread.notes if explain else ():
        label_line(terminal, "note", Text(note))
    if explain:
        for number, step in enumerate(thread.explain, 1):
            terminal.result(Text(f"{number:3}. {step}"))


def _who(thread: SpinThread) -> str:
    return (
        f"thread {thread.tid} ({thread.name})" if thread.name else f"thread {thread.tid}"
    )  # cores tell no names


def _headline(thread: SpinThread) -> Text:
    who = _who(thread)
    flag = thread.flag
    if flag is None and thread.waits_until is not None:
        return (
            Text(f"{thread.kind}: ", "bold")
            .append(f"{who} waits in Python until ")
            .append(thread.waits_until, "bold")
        )
    if flag is None and thread.script is not None:
        return (
            Text(f"{thread.kind}: ", "bold")
            .append(f"{who} asks ")
            .append(thread.script.asks, "bold")
            .append(f" again and again, with `{thread.script.loop.pause}` in between")
        )
    if flag is None:
        return Text(f"{thread.kind}: ", "bold yellow").append(f"{who}: {thread.reason}")
    verb = {"syscall-loop": "repeats", "lock": "spins for"}.get(thread.verdict or "", "polls")
    told = Text(f"{thread.kind}: ", "bold").append(f"{who} {verb} ").append(flag.name, "bold")
    return told.append(_or_as_good(thread))


def _or_as_good(thread: SpinThread) -> Text:
    """The word, or the poll, that the first can't be told from."""
    as_good = thread.flag.as_good if thread.flag is not None else None
    if as_good is None:
        return Text("")
    other = thread.flags[as_good - 1]
    verb = "or repeats" if other.kind == "syscall" else "or"
    return Text(f" {verb} ").append(other.name, "bold").append(": either would end the wait")


def _show_briefly(terminal: Terminal, threads: Sequence[SpinThread]) -> None:
    """Threads that do the same in the same place are one line."""
    alike: dict[tuple[str, str, str], list[SpinThread]] = {}
    for thread in threads:
        alike.setdefault((thread.name, _does(thread), _where(thread)), []).append(thread)
    shown = list(alike.items())[:_WAITS_SHOWN]
    for (name, does, where), group in shown:
        who = _ids([thread.tid for thread in group]) + (f" ({name})" if name else "")
        label_line(terminal, "thread" if len(group) == 1 else "threads", Text(f"{who}, {does}"))
        if where:
            label_line(terminal, "", Text(f"    in {where}", "dim"))
    left = len(threads) - sum(len(group) for _, group in shown)
    if left:
        label_line(terminal, "", Text(f"and {count(left, 'more thread')}: --explain"))


def _ids(tids: Sequence[int]) -> str:
    match tids:
        case [one]:
            return str(one)
        case [one, other]:
            return f"{one} and {other}"
        case _:
            return f"{tids[0]}, {tids[1]} and {len(tids) - 2} more"


def _does(thread: SpinThread) -> str:
    if thread.flag is not None:
        return f"{thread.kind}: polls {thread.flag.name}{_or_as_good(thread)}"
    if thread.waits_until is not None:
        return f"{thread.kind}: waits in Python until {thread.waits_until}"
    return f"{thread.kind}: {thread.reason}"


def _where(thread: SpinThread) -> str:
    if thread.python is not None:
        return python_calls(thread.python)
    if thread.wait is None or thread.flag is not None:
        return ""
    named = [code.symbol.split("+")[0] for code in thread.wait.stack if code.symbol]
    return " < ".join(named[:4])
