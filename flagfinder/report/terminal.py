# SPDX-License-Identifier: MIT
"""Where output goes: results to stdout, progress and messages to stderr, colour only where
wanted.
"""

from __future__ import annotations

import io
import json
import os
import sys
import textwrap
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TextIO

from rich.console import Console
from rich.text import Text

from flagfinder.report.names import WIDTH, short_text, wrapped
from flagfinder.shared.errors import FlagfinderError
from flagfinder.shared.private_file import create_private
from flagfinder.shared.visible import quote_command, visible

ColorChoice = Literal["auto", "always", "never"]
_TAB = "\t"
# Control characters that text of many lines has of its own.
_LAYOUT = "\n\t"
# What a menu puts around its choices.
_MENU_MARGIN = 12


class Answers:
    """Where the one JSON object of a command goes: stdout, or ``stream``. ``given``: it was
    written.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self.given = False

    def give(self, fields: Mapping[str, object]) -> None:
        """Writes the object."""
        self.given = True
        stream = self._stream or sys.stdout
        stream.write(Terminal.json_text(fields))
        stream.flush()


@contextmanager
def answers_alone(to_stdout: bool, path: Path | None) -> Iterator[Answers]:
    """Keeps stdout for the JSON object, or opens ``path`` for it.

    With ``to_stdout`` the descriptor 1 becomes a copy of stderr meanwhile, for all that prints: the
    programs that are started, too. A lone surrogate (a file name's byte that is no UTF-8) is
    written as JSON's escape of it.
    """
    if path is not None:
        with io.TextIOWrapper(
            create_private(path), encoding="utf-8", errors="backslashreplace"
        ) as file:
            yield Answers(file)
        return
    if not to_stdout:
        yield Answers()
        return
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", encoding="utf-8", errors="backslashreplace") as kept:
        os.dup2(2, 1)
        try:
            yield Answers(kept)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), kept.fileno())
            raise
        finally:
            sys.stdout.flush()
            os.dup2(kept.fileno(), 1)


class Terminal:
    """The two consoles of one command. Nothing else in flagfinder prints.

    What it is given may hold names from files, processes and symbols: it shows control characters,
    and sends none.
    """

    def __init__(
        self, color: ColorChoice = "auto", quiet: bool = False, answers: Answers | None = None
    ) -> None:
        self._answers = answers or Answers()
        never = color == "never" or (color == "auto" and bool(os.environ.get("NO_COLOR")))
        force = True if color == "always" else None
        self.out = _console(sys.stdout, never, force)
        self.err = _console(sys.stderr, never, force)
        # Whether names are shown as the compiler made them (``--explain``).
        self.names_in_full = False
        self._quiet = quiet
        self._live = sys.stderr.isatty()

    def result(self, text: Text | str) -> None:
        """One line of the result, to stdout, never cut or wrapped by rich."""
        self.out.print(_plain(self.out, text), soft_wrap=True)

    def paragraph(self, text: Text, indent: int = 0) -> None:
        """A piece of the result with its names shortened, in lines of at most 100 columns, all but
        the first indented.

        What has no space to part at (a path, an address) may be longer.
        """
        text = _plain(self.out, text)
        text = text if self.names_in_full else short_text(text)
        for number, line in enumerate(wrapped(text, WIDTH, indent)):
            self.result(Text(" " * indent if number else "").append_text(line))

    def answer(self, fields: Mapping[str, object]) -> None:
        """The JSON object of ``--json``, where that goes."""
        self._answers.give(fields)

    @staticmethod
    def json_text(fields: Mapping[str, object]) -> str:
        """The object as it is written: without control characters."""
        return visible(json.dumps(fields, indent=2, ensure_ascii=False), "\n") + "\n"

    def raw(self, text: str) -> None:
        """Text for other programs (dumps, scripts, lines of JSON), to stdout as it is but for
        control characters.
        """
        sys.stdout.write(visible(text if text.endswith("\n") else text + "\n", _LAYOUT))

    def message(self, text: str) -> None:
        """One line about what is being done, to stderr; silent with ``--quiet``."""
        if not self._quiet:
            self.err.print(Text(f"flagfinder: {visible(text, _TAB)}"), soft_wrap=True)

    def warning(self, text: str) -> None:
        """One line that the user must know, to stderr, ``--quiet`` or not."""
        head = Text("flagfinder: ").append("warning: ", "yellow")
        self.err.print(head.append(visible(text, _TAB)), soft_wrap=True)

    def question(self, lines: list[Text]) -> None:
        """What the user is asked, to stderr: stdout is for the result."""
        for line in lines:
            self.err.print(_plain(self.err, line), soft_wrap=True)

    def prompt(self, text: str) -> None:
        """What stands before the answer, without an end of line."""
        self.err.print(Text(visible(text, _TAB), "bold"), end="", soft_wrap=True)

    @property
    def has_menu(self) -> bool:
        """Whether ``menu`` can be drawn, and keys be read one by one."""
        return sys.stdin.isatty() and self._live and not self.err.is_dumb_terminal

    def menu(self, question: str, choices: list[list[str]]) -> int:
        """Lets the user choose, on stderr, by arrow keys or digits, and Enter; the first choice is
        marked at first. Escape gives up, as Ctrl-C does.

        Returns the number of the choice, from 1. ``choices``: the lines of each, those behind the
        first are details.
        """
        # Only a command that asks imports it.
        from prompt_toolkit.application import create_app_session  # noqa: PLC0415
        from prompt_toolkit.key_binding import KeyBindings  # noqa: PLC0415
        from prompt_toolkit.output import create_output  # noqa: PLC0415
        from prompt_toolkit.shortcuts import choice  # noqa: PLC0415

        width = max(20, self.err.width - _MENU_MARGIN)
        cut = [
            [piece for line in lines for piece in textwrap.wrap(visible(line), width)]
            for lines in choices
        ]
        options = [(number, f"\n{'':7}".join(lines)) for number, lines in enumerate(cut, 1)]
        keys = KeyBindings()
        keys.add("escape")(lambda event: event.app.exit(exception=KeyboardInterrupt()))
        with create_app_session(output=create_output(stdout=sys.stderr)):
            return choice(
                textwrap.fill(visible(question), width),
                options=options,
                default=1,
                key_bindings=keys,
            )

    def next_command(self, *words: str | os.PathLike[str]) -> None:
        """The last line of a result: what to run now. To stderr: it is no part of the result."""
        if not self._quiet:
            self.err.print(
                Text("Next: ", "bold").append(quote_command(*words), "cyan"), soft_wrap=True
            )

    def error(self, error: FlagfinderError) -> None:
        """The four parts of an error, to stderr."""
        head = Text("flagfinder: ").append(visible(error.what), "bold red")
        self.err.print(head, soft_wrap=True)
        for label, part in (
            ("found", error.found),
            ("fix", error.fix),
            ("still works", error.still_works),
        ):
            if part:
                lines = [visible(line, _TAB) for line in part.split("\n")]
                body = Text(f"  {label + ':':<13}", "bold").append(lines[0], "default")
                for line in lines[1:]:
                    body.append(f"\n{'':15}{line}", "default")
                self.err.print(body, soft_wrap=True)

    def traceback(self) -> None:
        """Where the error that is being handled came from, to stderr."""
        sys.stderr.write(visible(traceback.format_exc(), _LAYOUT))

    @contextmanager
    def progress(self) -> Iterator[ProgressLine]:
        """A line that changes in place on a terminal; nothing elsewhere."""
        line = ProgressLine(self._live and not self._quiet)
        try:
            yield line
        finally:
            line.clear()


class ProgressLine:
    """See ``Terminal.progress``."""

    def __init__(self, live: bool) -> None:
        self._live = live
        self._shown = False

    def update(self, text: str) -> None:
        """Shows ``text`` instead of what was there."""
        if self._live:
            # Some terminals do not know their size.
            width = max(20, (os.get_terminal_size(sys.stderr.fileno()).columns or 80) - 1)
            sys.stderr.write(f"\r\x1b[K{visible(text)[:width]}")
            sys.stderr.flush()
            self._shown = True

    def clear(self) -> None:
        """Makes room for other output."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = False


def _plain(console: Console, text: Text | str) -> Text:
    """The text, styles kept, without control characters."""
    if isinstance(text, str):
        return Text(visible(text, _TAB))
    if visible(text.plain, _TAB) == text.plain:
        return text
    pieces = text.render(console)
    return Text.assemble(*((visible(piece.text, _TAB), piece.style or "") for piece in pieces))


def _console(stream: object, never: bool, force: bool | None) -> Console:
    return Console(
        file=stream,  # type: ignore[arg-type]
        no_color=never,
        force_terminal=False if never else force,
        highlight=False,
        markup=False,
        emoji=False,
    )
