"""Where output goes: results to stdout, progress and messages to stderr, colour only where wanted."""

from __future__ import annotations

import os
import shlex
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from rich.console import Console
from rich.text import Text

from flagfinder.errors import FlagfinderError

ColorChoice = Literal["auto", "always", "never"]
# What a menu puts around its choices.
_MENU_MARGIN = 12


def quote_command(*words: str | os.PathLike[str]) -> str:
    """A command as it can be pasted into a shell."""
    return shlex.join(os.fspath(word) for word in words)


class Terminal:
    """The two consoles of one command. Nothing else in flagfinder prints."""

    def __init__(self, color: ColorChoice = "auto", quiet: bool = False) -> None:
        never = color == "never" or (color == "auto" and bool(os.environ.get("NO_COLOR")))
        force = True if color == "always" else None
        self.out = _console(sys.stdout, never, force)
        self.err = _console(sys.stderr, never, force)
        self._quiet = quiet
        self._live = sys.stderr.isatty()

    def result(self, text: Text | str) -> None:
        """One piece of the result, to stdout, never cut or wrapped by rich."""
        self.out.print(text, soft_wrap=True)

    def raw(self, text: str) -> None:
        """Text for other programs (JSON, dumps), to stdout as it is."""
        sys.stdout.write(text if text.endswith("\n") else text + "\n")

    def message(self, text: str) -> None:
        """One line about what is being done, to stderr; silent with ``--quiet``."""
        if not self._quiet:
            self.err.print(Text(f"flagfinder: {text}"), soft_wrap=True)

    def warning(self, text: str) -> None:
        """One line that the user must know, to stderr, ``--quiet`` or not."""
        self.err.print(Text("flagfinder: ").append("warning: ", "yellow").append(text), soft_wrap=True)

    def question(self, lines: list[Text]) -> None:
        """What the user is asked, to stderr: stdout is for the result."""
        for line in lines:
            self.err.print(line, soft_wrap=True)

    def prompt(self, text: str) -> None:
        """What stands before the answer, without an end of line."""
        self.err.print(Text(text, "bold"), end="", soft_wrap=True)

    @property
    def has_menu(self) -> bool:
        """Whether ``menu`` can be drawn, and keys be read one by one."""
        return sys.stdin.isatty() and self._live and not self.err.is_dumb_terminal

    def menu(self, question: str, choices: list[list[str]]) -> int:
        """Lets the user choose, on stderr, by arrow keys or digits, and Enter; the first choice is marked at first.

        Returns the number of the choice, from 1. ``choices``: the lines of each, those behind the first are details.
        """
        # Only who is asked waits for the import.
        from prompt_toolkit.application import create_app_session  # noqa: PLC0415
        from prompt_toolkit.output import create_output  # noqa: PLC0415
        from prompt_toolkit.shortcuts import choice  # noqa: PLC0415

        width = max(20, self.err.width - _MENU_MARGIN)
        cut = [[piece for line in lines for piece in textwrap.wrap(line, width)] for lines in choices]
        options = [(number, f"\n{'':7}".join(lines)) for number, lines in enumerate(cut, 1)]
        with create_app_session(output=create_output(stdout=sys.stderr)):
            return choice(textwrap.fill(question, width), options=options, default=1)

    def next_command(self, *words: str | os.PathLike[str]) -> None:
        """The last line of a result: what to run now. To stderr: it is no part of the result."""
        if not self._quiet:
            self.err.print(Text("Next: ", "bold").append(quote_command(*words), "cyan"), soft_wrap=True)

    def error(self, error: FlagfinderError) -> None:
        """The four parts of an error, to stderr."""
        head = Text("flagfinder: ").append(error.what, "bold red")
        self.err.print(head, soft_wrap=True)
        for label, part in (("found", error.found), ("fix", error.fix), ("still works", error.still_works)):
            if part:
                lines = part.splitlines()
                body = Text(f"  {label + ':':<13}", "bold").append(lines[0], "default")
                for line in lines[1:]:
                    body.append(f"\n{'':15}{line}", "default")
                self.err.print(body, soft_wrap=True)

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
            sys.stderr.write(f"\r\x1b[K{text[:width]}")
            sys.stderr.flush()
            self._shown = True

    def clear(self) -> None:
        """Makes room for other output."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = False


def _console(stream: object, never: bool, force: bool | None) -> Console:
    return Console(
        file=stream,  # type: ignore[arg-type]
        no_color=never,
        force_terminal=False if never else force,
        highlight=False,
        markup=False,
        emoji=False,
    )
