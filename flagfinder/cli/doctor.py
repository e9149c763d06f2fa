# SPDX-License-Identifier: MIT
"""``flagfinder doctor``: what works for this user on this machine."""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import TYPE_CHECKING

from flagfinder import _core
from flagfinder.chain.doctor import examine
from flagfinder.cli.common import (
    EXIT_FOUND,
    EXIT_NOTHING_FOUND,
    PID,
    VERBS,
    Subparsers,
    add_verb,
    print_json,
)
from flagfinder.report.terminal import Terminal
from flagfinder.shared.machine import Check, as_fields

if TYPE_CHECKING:
    from flagfinder.chain.fields import DoctorFields

_EXAMPLES = """\
  flagfinder doctor
  flagfinder doctor --pid 4711         can this process be looked at, has it debug info
  flagfinder doctor --program ./app
  flagfinder doctor --json
  flagfinder doctor --rules            the rules that judge words; FF_WITHOUT=NAME leaves one out

`opt` marks what is missing but optional: with it the verbs named behind it can do more.
exit codes: 0 all works that the verbs need; 1 something does not, and its fix is shown"""

_CAPABILITIES = ("CAP_SYS_PTRACE", "CAP_PERFMON", "CAP_BPF")
_SIGNS = {True: ("yes", "green"), False: ("no", "bold red"), None: ("?", "yellow")}
_OPTIONAL = ("opt", "yellow")
_NAME, _SIGN, _FIX = 14, 5, "fix: "


def add_parser(subparsers: Subparsers) -> None:
    parser = add_verb(subparsers, "doctor", VERBS["doctor"], _EXAMPLES, run)
    parser.add_argument("--pid", type=PID, help="also examine this process")
    parser.add_argument("--program", type=Path, help="also examine this program")
    parser.add_argument(
        "--rules", action="store_true", help="list the rules that judge words, and nothing else"
    )
    parser.needs("--rules", "is a list for people, not for --json", lambda parsed: not parsed.json)


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    if options.rules:
        _show_rules(terminal)
        return EXIT_FOUND
    report = examine(options.pid, options.program)
    if options.json:
        fields: DoctorFields = {"works": report.works, "checks": as_fields(report.checks)}
        print_json(terminal, "doctor", fields)
    else:
        for check in report.checks:
            sign, style = _OPTIONAL if check.optional and not check.works else _SIGNS[check.works]
            _show(terminal, check, sign, style)
        _show_what_gives_all(terminal)
    return EXIT_FOUND if report.works else EXIT_NOTHING_FOUND


def _show_rules(terminal: Terminal) -> None:
    from rich.text import Text

    names = 2 + max(len(name) for name, *_ in _core.RULES)
    weights = 2 + max(len(weight) for _, _, weight, _ in _core.RULES)
    for stage, rules in itertools.groupby(_core.RULES, lambda rule: rule[1]):
        terminal.prose(Text(stage, "underline"), 0)
        for name, _, weight, does in rules:
            about = does.replace("{}", "..")
            head = (f"{name:<{names}}", "bold")
            terminal.prose(Text.assemble(head, f"{weight:<{weights}}", about), names + weights)


def _show_what_gives_all(terminal: Terminal) -> None:
    """The one command that has the rights that all checks miss."""
    lacking = [name for name in _CAPABILITIES if not _core.has_capability(name)]
    if len(lacking) > 1:
        from rich.text import Text

        advice, *commands = _core.how_to_get_capabilities(lacking).split("\n")
        terminal.prose(Text(f"For all of this at once: {advice}"), 0)
        for command in commands:
            terminal.result(command)


def _show(terminal: Terminal, check: Check, sign: str, style: str) -> None:
    """The first lines are sentences; those behind them may be commands, to be copied whole."""
    from rich.text import Text

    needed = f" (needed by {check.serves})" if check.fix else ""
    first, *more = f"{check.found}{needed}".split("\n")
    row = ((f"{check.name:<{_NAME}}", "bold"), (f"{sign:<{_SIGN}}", style), first)
    terminal.prose(Text.assemble(*row), _NAME + _SIGN)
    for words in more:
        terminal.result(f"{'':{_NAME + _SIGN}}{words}")
    if not check.fix:
        return
    advice, *commands = check.fix.split("\n")
    indent = _NAME + _SIGN + len(_FIX)
    terminal.prose(Text(f"{_FIX:>{indent}}{advice}"), indent)
    for command in commands:
        terminal.result(f"{'':{indent}}{command}")
