# SPDX-License-Identifier: MIT
"""``flagfinder why``. In: a process, a core file or two recordings. Out: which thread keeps it from
going on, and why.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from flagfinder.cli.common import (
    ANY_ID,
    EXIT_FOUND,
    EXIT_NOTHING_FOUND,
    SECONDS,
    TID,
    VERBS,
    Subparsers,
    add_places,
    add_timeout,
    add_verb,
    check_sysroot,
    check_writable,
    core_file,
    write_page,
)
from flagfinder.live.apart import Told, report_apart
from flagfinder.live.coredump import LATEST, fetched
from flagfinder.live.deadline import (
    DEFAULT_BUDGET,
    DEFAULT_CORE_BUDGET,
    DEFAULT_TIMEOUT,
    Deadline,
    not_asked,
)
from flagfinder.live.patient import Patient, by_id, by_name
from flagfinder.live.tree import ask, descendants
from flagfinder.live.why import why_fields, why_of_core, why_recorded
from flagfinder.live.why_chain import WhyReport
from flagfinder.report.terminal import Terminal
from flagfinder.report.units import count
from flagfinder.shared.errors import UsageError
from flagfinder.shared.visible import quote_command

if TYPE_CHECKING:
    from flagfinder.live.fields import WhyAllFields, WhyFields

_APART = 10.0  # s
_IDLE = 10.0  # s

_EXAMPLES = """\
  flagfinder why 4711                  who owes what the process waits for, to the end of the chain
  flagfinder why -n server             the process that is called so
  flagfinder why --all                 which processes of this machine hang
  flagfinder why -- make test          runs it; says why once it does nothing for 10 s
  flagfinder why 4711 --thread 4713    begin with this thread
  flagfinder why 4711 --html why.html  a page with a drawing of the threads and processes
  flagfinder why 4711 --stacks         also all open calls of all threads
  flagfinder why 4711 --json           links, root and evidence for other programs
  flagfinder why --core core.4711      the same of a dead process, as far as its core file tells
  flagfinder why --coredump latest     the same of the last one whose core systemd kept
  flagfinder why normal.trace spin.trace   the same of a recorded run, beside a good one

The chain is followed through locks, polled words, pipes, sockets, file locks and children, into
other processes. Each link says how it is known: [seen] in the kernel or in memory, [proved] in a
copy of the thread, [by code] of the program, or [assumed]. Threads that poll are looked at as
`flagfinder spin` does it; root sees more processes. A core file holds locks and words, but not
who has the other end of a pipe, and no other process. Of recordings, each thread that owes is
followed to the branch at which it left the good run's way, and to the value behind that branch.

--all has a line for each process whose chain ends in a circle, or with one that is stopped, frozen
or has ended; or that burns a processor and reads and writes nothing. It is seen so twice, --for
seconds apart. `why -- COMMAND` is `guard --idle 10 -- COMMAND`.

exit codes: 0 the end of the chain is known; 1 it is not, or is assumed, or with --all none hangs;
65 no core of a 64-bit program, files that are not those of the process, or an unreadable recording;
69 no such process, or none that can be looked at; 77 no permission to look at it"""


def _kept(text: str) -> str:
    """Of --coredump: the id of a process, or the last one."""
    return text if text == LATEST else str(ANY_ID(text))


def add_parser(subparsers: Subparsers) -> None:
    parser = add_verb(
        subparsers,
        "why",
        VERBS["why"],
        _EXAMPLES,
        run,
    )
    parser.add_argument(
        "target",
        nargs="*",
        metavar="PID | NORMAL SPIN",
        help="the process, or a recording of a good run and one of the bad run",
    )
    parser.add_argument(
        "-n",
        "--name",
        help="the process whose program, script or own name is this; of several the one from which "
        "the others descend",
    )
    parser.add_argument(
        "--all", action="store_true", help="a line for each process of this machine that hangs"
    )
    parser.add_argument(
        "--for",
        dest="apart",
        type=SECONDS,
        default=_APART,
        help=f"with --all: the time between the two looks (default {_APART:g})",
    )
    parser.add_argument(
        "--core", type=core_file, metavar="FILE", help="an ELF core of a dead process instead"
    )
    parser.add_argument(
        "--coredump",
        type=_kept,
        metavar="PID|latest",
        help="that of a dead process which systemd-coredump keeps",
    )
    add_places(parser, "its executable")
    parser.add_argument(
        "--thread", type=TID, help="begin with this thread (default: one that polls, or the first)"
    )
    parser.add_argument(
        "--children",
        action="store_true",
        help="also ask the processes that it started and no chain led to",
    )
    parser.add_argument(
        "--stacks",
        action="store_true",
        help="also show all open calls of all threads, alike ones once (?: it may be an old call)",
    )
    parser.add_argument(
        "--locals",
        action="store_true",
        help="with --stacks: also the variables of Python's functions, which may be secret",
    )
    parser.add_argument("--html", type=Path, help="also write a page that draws the chain")
    parser.add_argument(
        "--budget",
        type=SECONDS,
        help=f"hold each stepped thread for about SECONDS (default {DEFAULT_BUDGET}); of a core: "
        f"let each copy go on for at most SECONDS (default {DEFAULT_CORE_BUDGET:g})",
    )
    add_timeout(parser, DEFAULT_TIMEOUT)
    parser.needs("--for", "goes with --all only", lambda parsed: parsed.all)
    for option in ("--thread", "--children", "--stacks", "--html", "--budget"):
        parser.needs(option, "is about one process", lambda parsed: not parsed.all)
    for option in ("--program", "--sysroot"):
        parser.needs(option, "goes with --core only", _is_dead)
    parser.needs(
        "--locals",
        "goes with --stacks of a process",
        lambda parsed: parsed.stacks and not _is_dead(parsed),
    )
    parser.needs(
        "--children",
        "is about a live process",
        lambda parsed: len(parsed.target) < 2 and not _is_dead(parsed),
    )
    parser.needs(
        "--stacks",
        "is about processes and cores, not about recordings",
        lambda parsed: len(parsed.target) < 2,
    )
    parser.needs(
        "--budget",
        "is about threads that are stepped, and recordings have none",
        lambda parsed: len(parsed.target) < 2,
    )
    parser.needs(
        "--timeout",
        "is about processes and cores, and recordings are read to their end",
        lambda parsed: len(parsed.target) < 2,
    )


def _is_only_an_id(word: str) -> bool:
    return word.isdecimal() and not Path(word).exists()


def _is_dead(parsed: argparse.Namespace) -> bool:
    return parsed.core is not None or parsed.coredump is not None


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    if options.command:
        return _guarded(options, terminal)
    dead = (options.core is not None) + (options.coredump is not None)
    named = dead + (options.name is not None) + options.all
    given = len(options.target) + named
    if not given or given > 1 + (len(options.target) == 2 and not named):
        raise UsageError(
            "One thing can be looked at, not more" if given else "It isn't said what to look at",
            count(len(options.target), "word")
            + ("" if options.core is None else " and --core")
            + ("" if options.coredump is None else " and --coredump")
            + ("" if options.name is None else " and --name")
            + (" and --all" if options.all else ""),
            "flagfinder why PID, flagfinder why -n NAME, flagfinder why NORMAL SPIN (two "
            "recordings), or flagfinder why --core FILE",
        )
    if options.all:
        return _all(options, terminal)
    if len(options.target) == 2 and all(map(_is_only_an_id, options.target)):
        raise UsageError(
            "One process can be asked, not more",
            f"two process ids: {' and '.join(options.target)}",
            f"`flagfinder why {options.target[0]}` goes on to each process that its chain leads "
            "to. `--children` asks those that it started, `--all` all of this machine.",
        )
    check_sysroot(options.sysroot)
    if options.html is not None:
        check_writable(options.html)
    with contextlib.ExitStack() as kept:
        if options.coredump is not None:
            options.core = kept.enter_context(fetched(options.coredump))
        report = _report(options, terminal)
    if options.coredump is not None:
        report = _told_again(report, options)
    others = [WhyReport.from_raw(one) for one in report.raw.get("others", ())]
    if options.json:
        terminal.answer(report.raw)
    else:
        from flagfinder.report.why_report import show_why

        show_why(terminal, [report, *others])
    if options.html is not None:
        from flagfinder.report.why_page import why_page

        write_page(options.html, lambda: why_page(report, others), terminal)
    return EXIT_FOUND if report.found else EXIT_NOTHING_FOUND


def _guarded(options: argparse.Namespace, terminal: Terminal) -> int:
    from flagfinder.cli.guard import run_guarded  # most looks start no command

    if options.target or _is_dead(options) or options.name is not None or options.all:
        raise UsageError(
            "One thing can be looked at, not more",
            "a command behind --, and a process",
            "flagfinder why -- COMMAND",
        )
    return run_guarded(options.command, terminal, idle=_IDLE, as_json=options.json)


def _all(options: argparse.Namespace, terminal: Terminal) -> int:
    from flagfinder.live.everyone import hung  # of one process nothing of it is needed

    def told(number: int) -> None:
        terminal.message(f"looking at {count(number, 'process', 'processes')} twice")

    found = hung(options.apart, options.timeout, told)
    if options.json:
        fields: WhyAllFields = {
            "schema": "flagfinder.why-all/1",
            "seconds": options.apart,
            "count": found.count,
            "reports": [report.raw for report in found.reports],
            "notes": list(found.notes),
        }
        terminal.answer(fields)
    else:
        from flagfinder.report.why_report import show_all

        show_all(terminal, found.reports)
        for note in found.notes:
            terminal.message(note)
    return EXIT_FOUND if found.reports else EXIT_NOTHING_FOUND


def _report(options: argparse.Namespace, terminal: Terminal) -> WhyReport:
    def told(_: int, polling: list[int]) -> None:
        if polling:
            listed = ", ".join(str(tid) for tid in polling)
            terminal.message(f"looking at {count(len(polling), 'thread')}: {listed}")

    if len(options.target) == 2:
        return _recorded(options, terminal)
    patient = _patient(options) if options.core is None else None
    if patient is not None and patient.note is not None:
        terminal.message(patient.note)
    deadline = Deadline.after(options.timeout)

    def question(so_far: Callable[[str], object], told: Told) -> WhyFields:
        if patient is None:
            return why_of_core(
                options.core,
                options.thread,
                sysroot=options.sysroot,
                program=options.program,
                budget=options.budget or DEFAULT_CORE_BUDGET,
                timeout=options.timeout,
                stacks=options.stacks,
                so_far=so_far,
            ).raw
        raw = why_fields(
            patient.pid,
            options.thread or patient.thread,
            budget=options.budget or DEFAULT_BUDGET,
            timeout=options.timeout,
            stacks=options.stacks,
            variables=options.locals,
            told=told,
            so_far=so_far,
        )
        if options.children:
            so_far(json.dumps(raw))
            _add_others(raw, deadline)
        return raw

    def meanwhile() -> None:
        import dataclasses  # noqa: F401  # what a report is made of

        if not options.json:
            terminal.prepare()

    return WhyReport.from_raw(report_apart(question, options.timeout, told, meanwhile))


def _told_again(report: WhyReport, options: argparse.Namespace) -> WhyReport:
    """With what can be asked next of a core that is fetched anew."""
    told = quote_command("--core", options.core), quote_command("--coredump", options.coredump)
    report.raw["next"] = [line.replace(*told) for line in report.next]
    return WhyReport.from_raw(report.raw)


def _patient(options: argparse.Namespace) -> Patient:
    if options.name is not None:
        return by_name(options.name)
    word = options.target[0]
    try:
        return by_id(ANY_ID(word) or 0)
    except argparse.ArgumentTypeError as error:
        named = f"By name: `{quote_command('flagfinder', 'why', '-n', word)}`. "
        is_number = not word.strip("+-.0123456789")
        raise UsageError(
            f"{word or 'An empty word'} is no process",
            str(error),
            f"{'' if is_number else named}`ps -e` lists the processes. Of two recordings: "
            "`flagfinder why NORMAL SPIN`.",
        ) from error


def _recorded(options: argparse.Namespace, terminal: Terminal) -> WhyReport:
    from flagfinder.cli.diff import check_thread  # of processes none of it is needed
    from flagfinder.trace.trace import open_trace

    normal, spin = (open_trace(Path(word)) for word in options.target)
    check_thread(spin, options.thread)
    with terminal.progress() as progress:
        progress.update("following what the run waits for")
        return why_recorded(normal, spin, options.thread)


def _add_others(raw: WhyFields, deadline: Deadline) -> None:
    """Adds the reports of the processes that it started, without this one and its helpers. Runs in
    the child that asks.
    """
    raw["others"] = []
    report = WhyReport.from_raw(raw)
    if deadline.is_over:
        not_asked(raw, deadline.over, "the processes that it started")
        return
    ours = {os.getppid(), *descendants(os.getppid())}
    pids = [one for one in descendants(report.pid) if one not in ours]
    asked = ask(pids, [report], deadline=deadline)
    raw["others"] = [other.raw for other in asked.reports]
    raw["notes"] += asked.notes
