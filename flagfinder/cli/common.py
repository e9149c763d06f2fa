"""What every verb shares: its parser's shape, common options, JSON output."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from flagfinder.errors import UsageError
from flagfinder.report.terminal import Terminal

Run = Callable[[argparse.Namespace, Terminal], int]
Subparsers = Any  # argparse keeps the type of add_subparsers' result private

# Why Frida is kept out of running processes: docs/decisions.md.
FRIDA_HARM = "Frida's way into a running process may kill it, where a thread holds the dynamic loader's lock"

EXIT_FOUND = 0
EXIT_NOTHING_FOUND = 1

_SIZE = re.compile(r"^(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?$", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


class Parser(argparse.ArgumentParser):
    """argparse, with usage errors in our four parts and long help texts kept as written."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(*args, **kwargs)

    def error(self, message: str) -> NoReturn:
        raise UsageError(
            "The command line isn't understood",
            message,
            f"`{self.prog} --help` shows the options and examples.",
        )


def add_verb(subparsers: Subparsers, name: str, summary: str, examples: str, run: Run, **options: Any) -> Parser:
    """A verb's parser with the options that all verbs have."""
    parser: Parser = subparsers.add_parser(
        name, help=summary, description=summary, epilog=f"examples:\n{examples}", **options
    )
    parser.set_defaults(run=run)
    shared = parser.add_argument_group("output")
    shared.add_argument("--json", action="store_true", help="print one JSON object")
    shared.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="auto honours NO_COLOR (default)"
    )
    shared.add_argument("-q", "--quiet", action="store_true", help="no progress, no hints; warnings stay")
    shared.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def print_json(terminal: Terminal, verb: str, fields: Mapping[str, Any]) -> None:
    """One object with its schema in front."""
    terminal.raw(json.dumps({"schema": f"flagfinder.{verb}/1", **fields}, indent=2, ensure_ascii=False))


def parse_size(text: str) -> int:
    """``64M``, ``1.5GiB``, ``4096`` in bytes, for argparse."""
    match = _SIZE.match(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write it like 64M or 1.5GiB")
    value = int(float(match[1]) * 1024 ** _POWERS[match[2].upper()])
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no size above zero")
    return value


def parse_pid(text: str) -> int:
    """A process id, for argparse."""
    if not text.isdecimal() or not 0 < int(text) < 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is no process id")
    return int(text)


def parse_seconds(text: str) -> float:
    """A positive number of seconds, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 86400 * 365:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above zero")
    return value
