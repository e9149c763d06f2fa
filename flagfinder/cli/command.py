# SPDX-License-Identifier: MIT
"""``flagfinder VERB ...``: one module per verb; this one ties them together.

Exit codes: 0 found, 1 searched and found nothing, 2 usage or failure, 65 bad trace, 69 something is
unavailable, 77 no permission, 130 Ctrl-C. ``record`` passes on the exit status of its program.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import resource
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from flagfinder.cli import version
from flagfinder.cli.common import VERBS, Parser, add_output_options, print_json
from flagfinder.report.terminal import Answers, Terminal, answers_alone
from flagfinder.shared.errors import FlagfinderError, Interrupted, UnavailableError, UsageError
from flagfinder.shared.start import hear_interrupts
from flagfinder.shared.visible import quote_command

if TYPE_CHECKING:
    from flagfinder.cli.fields import ErrorFields

_FILES = 24  # that are open at the same time in a look at a small program
_EPILOG = """\
examples:
  flagfinder record -o normal.trace -- ./app --good
  flagfinder record -o spin.trace --stop-when-spinning -- ./app --bad
  flagfinder diff normal.trace spin.trace
  flagfinder why 4711                         who keeps a live process waiting, and why
  flagfinder spin 4711                        the word that its threads poll

exit codes: 0 found, 1 nothing found, 2 usage or failure, 65 bad trace, 69 unavailable,
77 no permission, 130 Ctrl-C. `record` and `guard` pass on the exit status of their program.

With --json stdout holds one JSON object, its `schema` in front. That of a failure is
flagfinder.error/1: `error` with `what` failed, what was `found`, the `fix` and what
`still_works`; and `exit_code`.
"""


# Those that start a program which stands behind --.
_STARTERS = tuple(f"flagfinder {verb}" for verb in ("record", "guard", "events record", "overhead"))
_MOST_VERBS = 3


def build_parser(words: Sequence[str] | None = None) -> Parser:
    """The command line: the verb that ``words`` ask for, the names of all verbs where they ask for
    none, or all verbs with their options (None).

    A verb's module is imported only for its own sake: importing all of them takes longer than a
    short command.
    """
    parser = Parser(
        prog="flagfinder",
        description="Names the memory word that a hung or spinning thread waits for, who owes the "
        "write,\n"
        "and why it has not come.",
        epilog=_EPILOG,
    )
    parser.add_argument("--version", action="version", version=version())
    verbs = parser.add_subparsers(metavar="VERB", required=True, parser_class=Parser)
    asked = next((word for word in words or () if not word.startswith("-")), "")
    for verb in (asked,) if asked in VERBS else VERBS:
        if verb == asked or words is None:
            importlib.import_module(f"flagfinder.cli.{verb.replace('-', '_')}").add_parser(verbs)
        else:
            verbs.add_parser(verb, help=VERBS[verb])
    return parser


def main(arguments: Sequence[str]) -> int:
    """Runs one command line; returns the exit code and never raises what flagfinder foresees."""
    own, _ = _split(arguments)
    early = _early_options(own)
    terminal = Terminal(early.color)
    try:
        with answers_alone(early.json, early.json_file) as answers:
            return _run_and_tell(arguments, early, answers)
    except BrokenPipeError:
        # Nobody reads what has no end of its own (`watch | head`). Python would complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # --json-file can't be written
        failure = _from_os(error)
        terminal.error(failure)
        return failure.exit_code


def _run_and_tell(arguments: Sequence[str], early: argparse.Namespace, answers: Answers) -> int:
    """Runs one command line and tells of its failure, in words and with --json as an object."""
    terminal = Terminal(early.color, answers=answers)
    try:
        hear_interrupts()
        return run(arguments, answers=answers)
    except BrokenPipeError:
        raise
    except (Exception, KeyboardInterrupt) as error:
        if early.debug:
            terminal.traceback()
        failure = _failure(error)
        if isinstance(error, KeyboardInterrupt):
            terminal.message(failure.what)
        else:
            terminal.error(failure)
        if (early.json or early.json_file) and not answers.given:
            fields: ErrorFields = {
                "error": {
                    "what": failure.what,
                    "found": failure.found,
                    "fix": failure.fix,
                    "still_works": failure.still_works,
                },
                "exit_code": failure.exit_code,
            }
            print_json(terminal, "error", fields)
        return failure.exit_code


def _failure(error: BaseException) -> FlagfinderError:
    """What the user is told of ``error``."""
    if isinstance(error, FlagfinderError):
        return error
    if isinstance(error, KeyboardInterrupt):
        return Interrupted("interrupted")
    return _from_os(error) if isinstance(error, OSError) else _unforeseen(error)


def run(
    arguments: Sequence[str],
    preset: Mapping[str, object] | None = None,
    answers: Answers | None = None,
) -> int:
    """Runs one command line; returns the exit code and raises what goes wrong.

    ``preset`` holds options that no word can express: the ``trapper`` of ``watch`` and the
    ``stepper`` of ``record`` inside a debugger. ``answers`` is where the object of --json goes, by
    default stdout.
    """
    own, target = _split(arguments)
    if not own:
        build_parser(own).print_help()
        return FlagfinderError.exit_code
    if own[0] == "help":
        _refuse_unknown_verb(own[1:])
        build_parser([*own[1:2], "--help"]).parse_args([*own[1:2], "--help"])
    _refuse_unknown_verb(own)
    parsed = _parse(build_parser(own), own, argparse.Namespace(command=target, **(preset or {})))
    parsed.leaf.refuse_idle(parsed, own)
    parsed.json = parsed.json or parsed.json_file is not None
    _refuse_few_files()
    terminal = Terminal(parsed.color, parsed.quiet, answers)
    code: int = parsed.run(parsed, terminal)
    terminal.flush()
    return code


def _refuse_few_files() -> None:
    """Raises UnavailableError where so few files may be open that a look would fail midway."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < _FILES:
        raise UnavailableError(
            "flagfinder does not begin",
            f"This process may open {most} files only (RLIMIT_NOFILE), and needs {_FILES}",
            "Allow more in the shell before: `ulimit -n 1024`.",
            "Nothing was started or changed.",
        )


def _parse(parser: Parser, words: Sequence[str], preset: argparse.Namespace) -> argparse.Namespace:
    parsed, unknown = parser.parse_known_args(words, preset)
    if not unknown:
        return parsed
    verb = f"flagfinder {words[0]}"
    fix = f"`{verb} --help` shows the options and examples."
    option = unknown[0].partition("=")[0]
    if not option.startswith("-"):
        if parsed.command is None and parsed.leaf.prog in _STARTERS:
            behind = quote_command(*unknown)
            fix = f"Put -- in front of the program: {parsed.leaf.prog} .. -- {behind}"
    elif others := _verbs_with(option):
        fix = f"{option} is an option of {', '.join(others[:_MOST_VERBS])}. {fix}"
    elif near := _near(option, parser.options_of(words[0])):
        fix = f"Did you mean {near}? {fix}"
    raise UsageError(
        "The command line isn't understood", f"unknown: {quote_command(*unknown)}", fix
    )


def _verbs_with(option: str) -> list[str]:
    """The verbs that have this option."""
    every = build_parser()
    return [f"`{verb}`" for verb in VERBS if option in every.options_of(verb)]


def _refuse_unknown_verb(words: Sequence[str]) -> None:
    """Raises UsageError where the first word is no verb, with the one that it is like."""
    word = next((word for word in words if not word.startswith("-")), None)
    if word is None or word in VERBS:
        return
    fix = "`flagfinder --help` lists the verbs."
    if word.isdigit():
        fix = f"Did you mean `flagfinder why {word}`? {fix}"
    elif near := _near(word, VERBS):
        fix = f"Did you mean `flagfinder {near}`? {fix}"
    raise UsageError("The command line isn't understood", f"{word!r} is no verb", fix)


def _near(word: str, known: Iterable[str]) -> str | None:
    import difflib  # for a command line that isn't understood

    return next(iter(difflib.get_close_matches(word, list(known), 1)), None)


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """Our own words and those behind the first ``--``, which belong to the program to record."""
    words = list(arguments)
    if "--" not in words:
        return words, None
    place = words.index("--")
    return words[:place], words[place + 1 :]


def _early_options(words: Sequence[str]) -> argparse.Namespace:
    """How to answer, for errors in the command line itself; what can't be understood is left for
    the verb to refuse.
    """
    parser = Parser(add_help=False)
    add_output_options(parser)
    try:
        return parser.parse_known_args(words)[0]
    except UsageError:
        return argparse.Namespace(
            color="auto", json="--json" in words, json_file=None, debug="--debug" in words
        )


def _from_os(error: OSError) -> FlagfinderError:
    found = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    fix = "Check the path and its permissions."
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        fix = "Make room on the disk, or write elsewhere."
    elif isinstance(error, BlockingIOError):  # a process or a thread could not be started
        fix = "Allow more processes and threads: `ulimit -u`, or pids.max of the control group."
    what = "The operating system refused a request"
    result = FlagfinderError(what, found, fix, "Other files are unaffected.")
    if isinstance(error, PermissionError):
        result.exit_code = 77
    return result


def _unforeseen(error: BaseException) -> FlagfinderError:
    return FlagfinderError(
        "flagfinder itself failed",
        f"{type(error).__name__}: {error}",
        "Run the command again with --debug and report what it prints.",
        "Recordings on disk are unaffected.",
    )
