# SPDX-License-Identifier: MIT
"""Questions of a diagnosis: shown with numbers, answered on a terminal (by arrow keys or numbers)
or from a file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from flagfinder.graph.diagnose import Choice, Question
from flagfinder.report.names import Piece
from flagfinder.report.terminal import Terminal
from flagfinder.report.units import duration, relative
from flagfinder.shared.errors import UsageError

Ask = Callable[[Question], int]


def on_terminal(terminal: Terminal) -> Ask:
    """Asks by a menu where that can be drawn, else on stderr, and reads the number from stdin.
    Enter takes the first choice, which is the rule's."""

    def ask(question: Question) -> int:
        if terminal.has_menu:
            return terminal.menu(
                _head(question), [_choice(question, choice) for choice in question.choices]
            )
        terminal.question(lines(question))
        while True:
            terminal.prompt(f"1 to {len(question.choices)} [1]: ")
            words = sys.stdin.readline()
            if not words:
                raise UsageError(
                    "A question is left without an answer",
                    "the input ended",
                    "Answer with a number, or let --auto decide by rule.",
                )
            if not words.strip():
                return 1
            number = _number(words, question)
            if number is not None:
                return number

    return ask


class AnswerFile:
    """Numbers of choices, one a line, in the order of the questions; empty lines and what follows #
    say nothing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            fix = "Give a text file with a number on each line."
            raise UsageError("The answers can't be read", str(error), fix) from None
        words = (line.partition("#")[0].strip() for line in text.splitlines())
        self._answers = [word for word in words if word]
        self._taken = 0

    def ask(self, question: Question) -> int:
        """The next answer. Raises UsageError, with the question, where there is none, or none that
        fits.
        """
        shown = "\n".join("".join(text for text, _ in line) for line in lines(question))
        if self._taken == len(self._answers):
            raise UsageError(
                "A question is left without an answer",
                f"{self._path} has {self._taken}, and the next question is:\n{shown}",
                "Add a line with the number of a choice.",
                "--auto decides by rule.",
            )
        word = self._answers[self._taken]
        number = _number(word, question)
        if number is None:
            raise UsageError(
                "An answer does not fit its question",
                f"answer {self._taken + 1} in {self._path} is {word!r}; the question is:\n{shown}",
                f"Write a number from 1 to {len(question.choices)}.",
                "--auto decides by rule.",
            )
        self._taken += 1
        return number

    @property
    def left(self) -> int:
        """How many answers nobody asked for."""
        return len(self._answers) - self._taken


def lines(question: Question) -> list[list[Piece]]:
    """The question, then its choices with their numbers."""
    shown = [[(_head(question), "bold")]]
    for number, choice in enumerate(question.choices, 1):
        words, *sites = _choice(question, choice)
        shown.append([(f"  {number}  ", "cyan"), (words, "")])
        shown += [[(f"       {site}", "dim")] for site in sites]
    return shown


def _head(question: Question) -> str:
    who = f"thread {question.tid} ({question.thread})"
    if question.topic == "baseline":
        return f"Which of these waits of {who} went as it should have?"
    if sum(choice.vertex is not None for choice in question.choices) > 1:
        return f"What made {who} go on?"
    return f"Nothing is known to have made {who} go on. Follow what it did before?"


def _choice(question: Question, choice: Choice) -> list[str]:
    """A choice in words, then its innermost call sites."""
    words = (
        _baseline(choice, question.start)
        if question.topic == "baseline"
        else _link(choice, question.start)
    )
    return [words, *choice.stack[:3]]


def _baseline(choice: Choice, since: int) -> str:
    by = f"thread {choice.by_tid} ({choice.by_thread})" if choice.by_tid is not None else "another"
    return (
        f"{duration(choice.dur or 0)}, {relative(choice.start or 0, since)}, ended by {by}: "
        f"{choice.edge}"
    )


def _link(choice: Choice, since: int) -> str:
    if choice.vertex is None:
        return "none of that: stop here"
    did = f"{duration(choice.dur or 0)}, from {relative(choice.start or 0, since)} on"
    return f"thread {choice.tid} ({choice.thread}), {did}: {choice.edge}"


def _number(words: str, question: Question) -> int | None:
    text = words.strip()
    number = int(text) if text.isascii() and text.isdigit() else 0
    return number if 1 <= number <= len(question.choices) else None
