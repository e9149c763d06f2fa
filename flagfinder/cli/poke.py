# SPDX-License-Identifier: MIT
"""``flagfinder poke``: writes the value that ends a loop into a live process, after a
confirmation.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from flagfinder.cli.common import (
    ADDRESS,
    EXIT_FOUND,
    EXIT_NOTHING_FOUND,
    PID,
    TID,
    VERBS,
    WORD_SIZE,
    Number,
    Subparsers,
    add_timeout,
    add_verb,
    print_json,
)
from flagfinder.live.apart import LeftBehind, ask_apart
from flagfinder.live.deadline import DEFAULT_TIMEOUT
from flagfinder.live.poke import Poked, poke, try_poke
from flagfinder.live.poke_plan import Plan, plan_poke
from flagfinder.report.terminal import Terminal
from flagfinder.shared.errors import UnavailableError, UsageError

if TYPE_CHECKING:
    from flagfinder.live.fields import PokeFields, TriedFields

_EXAMPLES = """\
  flagfinder poke 4711            what spin names, with the value that ends the loop
  flagfinder poke 4711 --dry-run  tries it in a copy of the thread; nothing is changed
  flagfinder poke 4711 --flag spin.json#1 --yes
  flagfinder poke 4711 --address 0x55d0c0de4010 --size 4 --value 1

The value is written in one copy, so that no reader sees half of it where one byte changes or the
processor copies words whole. The program goes on with a state that it would not have reached by
itself.

exit codes: 0 the thread left the loop (--dry-run: its copy did); 1 it did not, or nothing was
written; 2 usage; 77 no permission"""

_VALUE = Number("value", 0, 2**64 - 1, base=0, none="auto")


def add_parser(subparsers: Subparsers) -> None:
    parser = add_verb(subparsers, "poke", VERBS["poke"], _EXAMPLES, run)
    parser.add_argument("pid", type=PID, help="the process")
    parser.add_argument(
        "--flag", metavar="FILE#RANK", help="a flag of a spin or diff report (JSON)"
    )
    parser.add_argument("--address", type=ADDRESS, metavar="0x..", help="where to write")
    parser.add_argument("--size", type=WORD_SIZE, choices=(1, 2, 4, 8), help="how many bytes")
    parser.add_argument("--thread", type=TID, help="the thread that polls it")
    parser.add_argument(
        "--value", type=_VALUE, metavar="N|auto", help="what to write (default auto)"
    )
    parser.needs("--address", "names the word, and so does --flag", lambda o: o.flag is None)
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="write into a copy of the thread and tell what it does; change nothing",
    )
    parser.add_argument("--yes", action="store_true", help="write without asking")
    add_timeout(parser, DEFAULT_TIMEOUT)
    parser.needs("--yes", "goes without --dry-run, which writes nothing", lambda o: not o.dry_run)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    if (options.address is None) != (options.size is None) and options.flag is None:
        raise UsageError(
            "The word isn't named", "--address goes with --size", "Give both, or --flag."
        )
    terminal.message(f"looking which thread of process {options.pid} polls it")
    plan = ask_apart(
        lambda _: plan_poke(
            options.pid,
            flag=options.flag,
            address=options.address,
            size=options.size,
            thread=options.thread,
            value=options.value,
        ),
        options.timeout,
    )
    if options.dry_run:
        return _try(options, terminal, plan)
    if not options.yes and not _confirmed(terminal, plan):
        terminal.message("nothing was written")
        if options.json:
            print_json(terminal, "poke", _planned(plan))
        return EXIT_NOTHING_FOUND
    done = _written(options, plan)
    if options.json:
        print_json(terminal, "poke", _fields(done))
    else:
        terminal.result(
            f"wrote {plan.value:#x} over {done.before:#x} at {plan.address:#x}, {plan.name}"
        )
        terminal.result(_outcome(done))
        if not done.ended:
            terminal.next_command("flagfinder", "spin", str(plan.pid))
    return EXIT_NOTHING_FOUND if done.left is False else EXIT_FOUND


def _written(options: argparse.Namespace, plan: Plan) -> Poked:
    try:
        return ask_apart(lambda _: poke(plan), options.timeout)
    except LeftBehind as left:
        raise UnavailableError(
            "It is not known whether the thread goes on, nor whether the word was written",
            f"{left.because}; {left.where}",
            f"`flagfinder spin {plan.pid}` tells what its threads poll now.",
            "No other word was written.",
        ) from None


def _try(options: argparse.Namespace, terminal: Terminal, plan: Plan) -> int:
    proof = ask_apart(lambda _: try_poke(plan), options.timeout)
    if options.json:
        tried: TriedFields = {
            "outcome": proof.outcome,
            "instructions": proof.instructions,
            "reached": None if proof.reached is None else str(proof.reached),
            "why": proof.why,
        }
        fields: PokeFields = {**_planned(plan), "thread": plan.copied, "proof": tried}
        print_json(terminal, "poke", fields)
    else:
        from flagfinder.report.diff_report import proof_text

        terminal.result(proof_text(proof))
        terminal.message(f"process {plan.pid} was not changed")
        terminal.next_command("flagfinder", "poke", str(plan.pid))
    return EXIT_FOUND if proof.outcome == "leaves" else EXIT_NOTHING_FOUND


def _confirmed(terminal: Terminal, plan: Plan) -> bool:
    now = "unknown" if plan.now is None else f"{plan.now:#x}"
    terminal.warning(
        f"this changes process {plan.pid}: {plan.size} bytes at {plan.address:#x}, {plan.name}"
    )
    terminal.warning(f"value {now} becomes {plan.value:#x}, because {plan.why}")
    if not sys.stdin.isatty():
        raise UsageError("Nothing was written", "there is no terminal to ask on", "Add --yes.")
    return input("Write it? [y/N] ").strip().lower() in ("y", "yes")


def _outcome(done: Poked) -> str:
    ended = "; the process has ended since" if done.ended else ""
    if done.left is None:
        return f"no thread was seen to poll it before, so none could be seen to go on{ended}"
    thread = done.plan.thread
    who = f"thread {thread.tid} ({thread.name})" if thread else "the thread"
    if done.left:
        return f"{who} left the loop: the diagnosis holds{ended}"
    if done.after in (done.plan.value, None):
        return f"{who} still polls it"
    return f"{who} still polls it; the word is {done.after:#x} again, somebody else writes it"


def _planned(plan: Plan) -> PokeFields:
    """What would be written, and that it was not."""
    return {
        "pid": plan.pid,
        "address": f"{plan.address:#x}",
        "size": plan.size,
        "name": plan.name,
        "value": f"{plan.value:#x}",
        "before": None if plan.now is None else f"{plan.now:#x}",
        "written": None,
        "after": None,
        "thread": plan.thread.tid if plan.thread else None,
        "left": None,
        "ended": False,
        "why": plan.why,
    }


def _fields(done: Poked) -> PokeFields:
    return {
        **_planned(done.plan),
        "before": f"{done.before:#x}",
        "written": f"{done.plan.value:#x}",
        "after": None if done.after is None else f"{done.after:#x}",
        "left": done.left,
        "ended": done.ended,
    }
