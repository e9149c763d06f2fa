# SPDX-License-Identifier: MIT
"""Where output goes: results to stdout, progress and messages to stderr, colour only where
wanted.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO

from flagfinder.report.names import Piece, short_pieces, wrapped
from flagfinder.shared.errors import FlagfinderError
from flagfinder.shared.private_file import write_private
from flagfinder.shared.visible import quote_command, visible, without_commands

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

# rich takes as long to import as all else that a command needs. It is imported where styles are
# shown: a command with --json needs none.

ColorChoice = Literal["auto", "always", "never"]
_TAB = "\t"
# Control characters that text of many lines has of its own.
_LAYOUT = "\n\t"
# Columns of a line where there is no terminal, and where one is hardly wide enough.
_WIDTH, _LEAST_WIDTH = 100, 40
# What a menu puts around its choices.
_MENU_MARGIN = 12


def _drop(stream: TextIO) -> None:
    """What is written to the stream from now on: nobody reads it. Python would complain at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class Answers:
    """Where the one JSON object of a command goes: stdout, ``stream`` or a file. ``given``: it was
    written, or a part of it.
    """

    def __init__(self, stream: TextIO | None = None, path: Path | None = None) -> None:
        self._stream, self._path = stream, path
        self.given = False

    def give(self, fields: Mapping[str, object]) -> None:
        """Writes the object. Of one that finds no room there is no file."""
        self.given = True
        text = Terminal.json_text(fields)
        if self._path is not None:
            content = text.encode("utf-8", "backslashreplace")
            _apart(self._path, partial(write_private, self._path, content))
            return
        stream = self._stream or sys.stdout
        try:
            stream.write(text)
            stream.flush()
        except BrokenPipeError:
            _drop(stream)


def _apart(path: Path, write: Callable[[], object]) -> None:
    from flagfinder.live.apart import use_apart  # most commands write no file

    use_apart(path, write)


def _begin(path: Path) -> None:
    """Refuses what can't be written. Who reads a FIFO would take an early end for the answer."""
    if path.is_file() or not path.exists():
        write_private(path, b"")


def _forget(path: Path) -> None:
    if path.is_file():
        path.unlink()


@contextmanager
def answers_alone(to_stdout: bool, path: Path | None) -> Iterator[Answers]:
    """Keeps stdout for the JSON object, or ``path``.

    With ``to_stdout`` the descriptor 1 becomes a copy of stderr meanwhile, for all that prints: the
    programs that are started, too. A lone surrogate (a file name's byte that is no UTF-8) is
    written as JSON's escape of it.
    """
    if path is not None:
        _apart(path, partial(_begin, path))
        answers = Answers(path=path)
        try:
            yield answers
        except BaseException:
            if not answers.given:
                _apart(path, partial(_forget, path))
            raise
        return
    if not to_stdout:
        yield Answers()
        return
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", encoding="utf-8", errors="backslashreplace") as kept:
        os.dup2(2, 1)
        try:
            yield Answers(kept)
        finally:
            sys.stdout.flush()
            os.dup2(kept.fileno(), 1)


class Terminal:
    """The two consoles of one command. Nothing else in flagfinder prints.

    What it is given may hold names from files, processes and symbols: it shows control characters,
    and sends none. Who stops reading a result (`| head`) takes nothing else from the command: its
    exit code tells the answer all the same. ``is_read``: nobody has stopped by now.
    """

    def __init__(
        self, color: ColorChoice = "auto", quiet: bool = False, answers: Answers | None = None
    ) -> None:
        self._answers = answers or Answers()
        self._color = color
        # Whether names are shown as the compiler made them (``--explain``).
        self.names_in_full = False
        self._quiet = quiet
        self._live = sys.stderr.isatty()
        self.is_read = True

    @cached_property
    def _out(self) -> Console:
        return _console(sys.stdout, self._color)

    @cached_property
    def _err(self) -> Console:
        return _console(sys.stderr, self._color)

    def _has_styles(self, stream: TextIO) -> bool:
        return self._color == "always" or stream.isatty() or "FORCE_COLOR" in os.environ

    def _tell(self, *pieces: Piece, end: str = "\n") -> None:
        """Pieces of text, each with its style, to stderr; they have no control characters.

        A stderr that takes nothing (a full disk) ends no command: the result goes elsewhere.
        """
        pieces = tuple((without_commands(text), style) for text, style in pieces)
        with suppress(OSError):
            if self._has_styles(sys.stderr):
                from rich.text import Text

                self._err.print(Text.assemble(*pieces), end=end, soft_wrap=True)
            else:
                sys.stderr.write("".join(text for text, _ in pieces) + end)
                sys.stderr.flush()

    def result(self, text: Text | str) -> None:
        """One line of the result, to stdout, never cut or wrapped."""
        if isinstance(text, str):
            self.raw(visible(text, _TAB))
        else:
            self.line(*self._pieces(text))
            self.flush()

    def line(self, *pieces: Piece) -> None:
        """One line of the result, to stdout, in pieces, each with its style."""
        shown = [(visible(text, _TAB), style) for text, style in pieces]
        if any(style for _, style in shown) and self._has_styles(sys.stdout):
            from rich.text import Text

            with self._to_reader():
                self._out.print(Text.assemble(*shown), soft_wrap=True)
        else:
            self.raw("".join(text for text, _ in shown))

    def prepare(self) -> None:
        """Imports what shows a result, while there is nothing else to do."""
        if self._has_styles(sys.stdout):
            self._out  # noqa: B018

    def _pieces(self, text: Text | Sequence[Piece]) -> Sequence[Piece]:
        if isinstance(text, Sequence):
            return text
        pieces = text.render(self._out)
        return [(piece.text, str(piece.style) if piece.style else "") for piece in pieces]

    @property
    def width(self) -> int:
        """Columns of a line of the result: the terminal's, or what COLUMNS says; 100 elsewhere."""
        if not (sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal()):
            return _WIDTH
        return max(_LEAST_WIDTH, self._out.width)

    def paragraph(self, text: Text | Sequence[Piece], indent: int = 0) -> None:
        """A piece of the result with its names shortened, in lines as wide as the terminal, all but
        the first indented.

        What has no space to part at (a path, an address) may be longer.
        """
        pieces = self._pieces(text)
        self.prose(pieces if self.names_in_full else short_pieces(pieces), indent)

    def prose(self, text: Text | Sequence[Piece], indent: int = 0) -> None:
        """The same, with its words as they are."""
        shown = [(visible(piece, _TAB), style) for piece, style in self._pieces(text)]
        for number, line in enumerate(wrapped(shown, self.width, indent)):
            self.line((" " * indent if number else "", ""), *line)
        self.flush()  # who reads a pipe may wait for it

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
        with self._to_reader():
            sys.stdout.write(visible(text if text.endswith("\n") else text + "\n", _LAYOUT))

    def flush(self) -> None:
        """What was written by now comes to its reader."""
        with self._to_reader():
            sys.stdout.flush()

    @contextmanager
    def _to_reader(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            self.is_read = False
            _drop(sys.stdout)

    def check_read(self) -> None:
        """Raises BrokenPipeError once nobody reads the result: it may have no end of its own."""
        if not self.is_read:
            raise BrokenPipeError

    def message(self, text: str) -> None:
        """One line about what is being done, to stderr; silent with ``--quiet``."""
        if not self._quiet:
            self._tell((f"flagfinder: {visible(text, _TAB)}", ""))

    def warning(self, text: str) -> None:
        """One line that the user must know, to stderr, ``--quiet`` or not."""
        self._tell(("flagfinder: ", ""), ("warning: ", "yellow"), (visible(text, _TAB), ""))

    def question(self, lines: list[list[Piece]]) -> None:
        """What the user is asked, to stderr: stdout is for the result."""
        for line in lines:
            self._tell(*((visible(text, _TAB), style) for text, style in line))

    def prompt(self, text: str) -> None:
        """What stands before the answer, without an end of line."""
        self._tell((visible(text, _TAB), "bold"), end="")

    @property
    def has_menu(self) -> bool:
        """Whether ``menu`` can be drawn, and keys be read one by one."""
        return sys.stdin.isatty() and self._live and not self._err.is_dumb_terminal

    def menu(self, question: str, choices: list[list[str]]) -> int:
        """Lets the user choose, on stderr, by arrow keys or digits, and Enter; the first choice is
        marked at first. Escape gives up, as Ctrl-C does.

        Returns the number of the choice, from 1. ``choices``: the lines of each, those behind the
        first are details.
        """
        # Only a command that asks imports them.
        import textwrap

        from prompt_toolkit.application import create_app_session
        from prompt_toolkit.key_binding import KeyBindings
        from prompt_toolkit.output import create_output
        from prompt_toolkit.shortcuts import choice

        width = max(20, self._err.width - _MENU_MARGIN)
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
            self._tell(("Next: ", "bold"), (quote_command(*words), "cyan"))

    def error(self, error: FlagfinderError) -> None:
        """The four parts of an error, to stderr."""
        self._tell(("flagfinder: ", ""), (visible(error.what), "bold red"))
        for label, part in (
            ("found", error.found),
            ("fix", error.fix),
            ("still works", error.still_works),
        ):
            if part:
                lines = f"\n{'':15}".join(visible(line, _TAB) for line in part.split("\n"))
                self._tell((f"  {label + ':':<13}", "bold"), (lines, ""))

    def traceback(self) -> None:
        """Where the error that is being handled came from, to stderr."""
        import traceback

        with suppress(OSError):
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


def _console(stream: TextIO, color: str) -> Console:
    from rich.console import Console

    class Honest(Console):
        def on_broken_pipe(self) -> None:
            """The command decides what a reader that went away means, and not rich."""
            raise BrokenPipeError

    never = color == "never"
    # NO_COLOR is about colours: bold letters stay.
    no_color = never or (color == "auto" and bool(os.environ.get("NO_COLOR")))
    return Honest(
        file=stream,
        no_color=no_color,
        force_terminal=False if never else True if color == "always" else None,
        highlight=False,
        markup=False,
        emoji=False,
    )
