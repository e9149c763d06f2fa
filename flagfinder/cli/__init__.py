"""The command line: ``flagfinder VERB ...``. One module per verb; this one ties them together.

Exit codes: 0 found, 1 searched and found nothing, 2 usage or failure, 65 bad trace, 69 something is
unavailable, 77 no permission, 130 Ctrl-C. ``record`` passes on the exit status of its program.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from flagfinder import _core
from flagfinder.cli.common import Parser
from flagfinder.errors import FlagfinderError, UsageError
from flagfinder.report.terminal import ColorChoice, Terminal, quote_command

_LIVE = ("spin", "watch", "poke")
_HANGS = ("events", "mark", "graph", "diagnose", "report", "critical-path", "compare", "overhead")
_VERBS = ("record", "trace", "diff", "registers", "find", *_LIVE, *_HANGS, "doctor")

_EPILOG = """\
examples:
  flagfinder record -o normal.trace -- ./app --good
  flagfinder record -o spin.trace --stop-when-spinning -- ./app --bad
  flagfinder diff normal.trace spin.trace
  flagfinder spin 4711                        a live process, without any recording

exit codes: 0 found, 1 nothing found, 2 usage or failure, 65 bad trace, 69 unavailable,
77 no permission, 130 Ctrl-C. `record` passes on the exit status of its program.
"""


def build_parser(words: Sequence[str] = ()) -> Parser:
    """The command line: of the verb that ``words`` ask for, or of all.

    A verb's module is imported only for its own sake: importing all of them takes longer than a short command.
    """
    parser = Parser(
        prog="flagfinder",
        description="Names the memory location that a spinning thread waits for, from two recorded runs.",
        epilog=_EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"flagfinder {_core.VERSION}")
    verbs = parser.add_subparsers(metavar="VERB", required=True, parser_class=Parser)
    asked = next((word for word in words if not word.startswith("-")), "")
    for verb in (asked,) if asked in _VERBS else _VERBS:
        importlib.import_module(f"flagfinder.cli.{verb.replace('-', '_')}").add_parser(verbs)
    return parser


def main(arguments: Sequence[str]) -> int:
    """Runs one command line; returns the exit code and never raises what flagfinder foresees."""
    own, _ = _split(arguments)
    debug = "--debug" in own
    terminal = Terminal(_early_color(own))
    try:
        return run(arguments)
    except FlagfinderError as error:
        if debug:
            traceback.print_exc()
        terminal.error(error)
        return error.exit_code
    except KeyboardInterrupt:
        if debug:
            traceback.print_exc()
        terminal.message("interrupted")
        return 130
    except BrokenPipeError:
        # The reader of our output went away (`| head`): no error of ours. Python would complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if debug:
            traceback.print_exc()
        terminal.error(_from_os(error))
        return _from_os(error).exit_code
    except Exception as error:
        if debug:
            traceback.print_exc()
        terminal.error(_unforeseen(error))
        return FlagfinderError.exit_code


def run(arguments: Sequence[str], preset: Mapping[str, Any] | None = None) -> int:
    """Runs one command line; returns the exit code and raises what goes wrong.

    ``preset`` holds options that no word can express: the ``trapper`` of ``watch`` and the ``stepper`` of ``record``
    inside a debugger.
    """
    own, target = _split(arguments)
    if not own:
        build_parser().print_help()
        return FlagfinderError.exit_code
    parsed = _parse(build_parser(own), own, argparse.Namespace(command=target, **(preset or {})))
    code: int = parsed.run(parsed, Terminal(parsed.color, parsed.quiet))
    sys.stdout.flush()
    return code


def _parse(parser: Parser, words: Sequence[str], preset: argparse.Namespace) -> argparse.Namespace:
    parsed, unknown = parser.parse_known_args(words, preset)
    if not unknown:
        return parsed
    verb = " ".join(("flagfinder", *words[:1]))
    fix = f"`{verb} --help` shows the options and examples."
    if words[0] == "record" and parsed.command is None and not unknown[0].startswith("-"):
        fix = f"Put -- in front of the program: flagfinder {words[0]} .. -- {quote_command(*unknown)}"
    raise UsageError("The command line isn't understood", f"unknown: {quote_command(*unknown)}", fix)


def entry() -> None:
    """The ``flagfinder`` command."""
    sys.exit(main(sys.argv[1:]))


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """Our own words and those behind the first ``--``, which belong to the program to record."""
    words = list(arguments)
    if "--" not in words:
        return words, None
    place = words.index("--")
    return words[:place], words[place + 1 :]


def _early_color(arguments: Sequence[str]) -> ColorChoice:
    """The colour choice for errors in the command line itself."""
    choices: tuple[ColorChoice, ...] = ("always", "never")
    for choice in choices:
        if f"--color={choice}" in arguments or ("--color", choice) in pairwise(arguments):
            return choice
    return "auto"


def _from_os(error: OSError) -> FlagfinderError:
    found = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    result = FlagfinderError(
        "The operating system refused a request",
        found,
        "Check the path and its permissions.",
        "What was written before is kept.",
    )
    if isinstance(error, PermissionError):
        result.exit_code = 77
    return result


def _unforeseen(error: Exception) -> FlagfinderError:
    return FlagfinderError(
        "flagfinder itself failed",
        f"{type(error).__name__}: {error}",
        "Run the command again with --debug and report what it prints.",
        "Recordings on disk are unaffected.",
    )
