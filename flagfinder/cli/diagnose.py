# SPDX-License-Identifier: MIT
"""``flagfinder diagnose``: who is to blame for a hang."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from flagfinder.cli.common import (
    EXIT_FOUND,
    EXIT_NOTHING_FOUND,
    VERBS,
    Number,
    Subparsers,
    add_hang,
    add_host,
    add_verb,
    print_json,
)
from flagfinder.flags.flag_file import read_flag
from flagfinder.graph.diagnose import diagnose, find_hangs
from flagfinder.graph.graph import EventGraph, open_graph
from flagfinder.report.debuggers import DEBUGGERS, hang_script
from flagfinder.report.questions import AnswerFile, Ask, on_terminal
from flagfinder.report.terminal import Terminal
from flagfinder.report.units import count
from flagfinder.shared.errors import UsageError

if TYPE_CHECKING:
    from flagfinder.graph.diagnosis_fields import HangsFields, NoDiagnosisFields

_EXAMPLES = """\
  flagfinder diagnose run.graph                        asks where the graph can't decide
  flagfinder diagnose run.graph --answers answers.txt  the same, a choice on each line
  flagfinder diagnose run.events --auto                of a recording, without a file of its graph
  flagfinder diagnose run.graph --hangs                what may be meant; then --thread and --at
  flagfinder diagnose run.graph --auto --thread 4711 --at 123456789012 --json
  flagfinder diagnose run.graph --auto --emit gdb > stop.py; gdb -x stop.py --args ./app

exit codes: 0 a hang was explained, 1 there is none, or nobody is known to owe its end, 2 failure,
65 no graph"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_verb(subparsers, "diagnose", VERBS["diagnose"], _EXAMPLES, run)
    parser.add_argument("file", type=Path, metavar="GRAPH", help="or a recording of events")
    decided = parser.add_mutually_exclusive_group()
    decided.add_argument(
        "--auto",
        action="store_true",
        help="decide by rule (so it is without a terminal, too)",
    )
    decided.add_argument(
        "--answers",
        type=Path,
        metavar="FILE",
        help="answers to the questions: a number on each line",
    )
    decided.add_argument(
        "--hangs",
        action="store_true",
        help="explain nothing: list the unusual stretches, and why they are unusual",
    )
    add_hang(parser)
    add_host(parser)
    parser.add_argument(
        "--emit",
        choices=DEBUGGERS,
        help="print a script instead, with which the debugger stops where the culprit waited, or "
        "began to compute, and watches what it waits for",
    )
    parser.add_argument(
        "--flag",
        metavar="FILE#RANK",
        help="with --emit: what it polls, of a spin or diff report (JSON)",
    )
    parser.needs("--emit", "prints a script, not JSON", lambda o: not (o.json or o.json_file))
    parser.needs("--emit", "needs a hang that is explained", lambda o: not o.hangs)
    parser.needs("--preceding", "goes with a hang that is explained", lambda o: not o.hangs)
    parser.needs("--flag", "goes with --emit only", lambda o: o.emit)
    parser.add_argument(
        "--preceding",
        type=Number("number of stretches", 0, 1000),
        default=0,
        metavar="N",
        help="compare N stretches before a wait, too, to find the one that went well (default 0)",
    )


def nothing_found(graph: EventGraph, thread: int | None) -> str:
    """Why there is no diagnosis."""
    if thread is not None and not graph.query(thread, limit=1):
        return f"no hang: the graph has no thread {thread}"
    return "no hang: no thread ran or waited for a millisecond at that time"


def _list(options: argparse.Namespace, terminal: Terminal, graph: EventGraph) -> int:
    from flagfinder.report.graph_report import show_hangs

    if options.json:
        fields: HangsFields = {"hangs": graph.hangs_json(options.thread, options.at, options.host)}
        print_json(terminal, "diagnose-hangs", fields)
        return _exit_code(any(hang["unusual"] for hang in fields["hangs"]))
    found = find_hangs(graph, options.thread, options.at, options.host)
    if found:
        show_hangs(terminal, found, graph.span()[0])
    else:
        terminal.result(nothing_found(graph, options.thread))
    return _exit_code(any(hang.unusual for hang in found))


def _exit_code(is_found: bool) -> int:
    return EXIT_FOUND if is_found else EXIT_NOTHING_FOUND


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    answers = AnswerFile(options.answers) if options.answers else None
    ask: Ask | None = answers.ask if answers else None
    if answers is None and not options.auto and sys.stdin.isatty():
        ask = on_terminal(terminal)
    graph = open_graph(options.file)
    if options.hangs:
        return _list(options, terminal, graph)
    found = diagnose(graph, options.thread, options.at, options.preceding, ask, options.host)
    if answers and answers.left:
        terminal.warning(
            f"{options.answers}: {count(answers.left, 'answer')} to questions that were not asked"
        )
    if found is None:
        if options.json:
            nothing: NoDiagnosisFields = {"class": None, "culprits": [], "path": [], "questions": 0}
            print_json(terminal, "diagnose", nothing)
        else:
            terminal.result(nothing_found(graph, options.thread))
        return EXIT_NOTHING_FOUND
    if options.emit and not found.culprits:
        raise UsageError(
            "There is nothing to stop at",
            f"nobody is known to owe the end of what thread {found.tid} ({found.thread}) waits for",
            "Without --emit, the diagnosis says what is known.",
        )
    if options.emit:
        flag = read_flag(options.flag).flag() if options.flag else None
        terminal.raw(hang_script(options.emit, found.culprits[0], flag, graph.summary()["command"]))
    elif options.json:
        print_json(terminal, "diagnose", found.raw)
    else:
        from flagfinder.report.graph_report import show_diagnosis

        show_diagnosis(terminal, found, graph.span()[0])
    return _exit_code(bool(found.culprits))
