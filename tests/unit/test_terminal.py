# SPDX-License-Identifier: MIT
"""Text from files and processes reaches the terminal without anything that the terminal acts on."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from rich.text import Text

from flagfinder.cli import main
from flagfinder.cli.common import print_json
from flagfinder.report.terminal import ProgressLine, Terminal
from flagfinder.shared.errors import UsageError
from flagfinder.shared.visible import quote_command, visible

HOSTILE = (
    "a\x1b[31mEVIL\x1b]0;title\x07\r\x08\x7f\x9b2Jb\u202etxt.exe\u2066c\u2028d\udc9be\n"
    "flagfinder: forged"
)
SHOWN = "\\u001b[31mEVIL\\u001b]0;title"
COLOURS = re.compile(r"\x1b\[[\d;]*m")


def assert_harmless(text: str, lines: int | None = None) -> None:
    """Nothing in it moves the cursor, sets a title, changes colours or the order of letters."""
    bad = {
        letter
        for letter in text
        if letter not in "\n\t"
        and (
            unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp")
            or unicodedata.bidirectional(letter)
            in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
        )
    }
    assert not bad, f"{bad!r} in {text!r}"
    assert lines is None or text.count("\n") == lines, text


def hostile_error() -> UsageError:
    return UsageError(HOSTILE, HOSTILE, HOSTILE, HOSTILE)


WAYS: dict[str, tuple[Callable[[Terminal], Any], int]] = {
    "result": (lambda terminal: terminal.result(HOSTILE), 1),
    "styled result": (lambda terminal: terminal.result(Text("in ").append(HOSTILE, "bold")), 1),
    "paragraph": (lambda terminal: terminal.paragraph(Text("in ").append(HOSTILE, "bold"), 4), 2),
    "message": (lambda terminal: terminal.message(HOSTILE), 1),
    "warning": (lambda terminal: terminal.warning(HOSTILE), 1),
    "question": (lambda terminal: terminal.question([[(HOSTILE, "")], [("2", "bold")]]), 2),
    "prompt": (lambda terminal: terminal.prompt(HOSTILE), 0),
    "next command": (lambda terminal: terminal.next_command("flagfinder", HOSTILE), 1),
    "error": (lambda terminal: terminal.error(hostile_error()), 7),
    "raw": (lambda terminal: terminal.raw(HOSTILE), 2),
    "json": (lambda terminal: print_json(terminal, "verb", {HOSTILE: [HOSTILE]}), 6),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("color", ["never", "always"])
def test_every_way_to_the_terminal(way: str, color: Any, capfd: pytest.CaptureFixture[str]) -> None:
    show, lines = WAYS[way]
    show(Terminal(color))
    out, err = capfd.readouterr()
    written = out + err
    if color == "always":
        written = COLOURS.sub("", written)  # our own; those of the text are visible by now
        assert "[31m" in written
    assert "EVIL" in written
    assert_harmless(written, lines)


def test_styles_stay_on_their_letters(capfd: pytest.CaptureFixture[str]) -> None:
    Terminal("always").result(Text("\x1b").append("bold", "bold").append("plain"))
    assert capfd.readouterr().out == "\\u001b\x1b[1mbold\x1b[0mplain\n"


def test_json_keeps_its_meaning(capfd: pytest.CaptureFixture[str]) -> None:
    print_json(Terminal("never"), "verb", {"name": HOSTILE})
    assert json.loads(capfd.readouterr().out)["name"] == HOSTILE


def test_the_line_that_changes_in_place(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    size = os.terminal_size((500, 24))
    monkeypatch.setattr(os, "get_terminal_size", lambda _descriptor: size)
    line = ProgressLine(live=True)
    line.update(HOSTILE)
    written = capfd.readouterr().err.removeprefix("\r\x1b[K")
    assert SHOWN in written
    assert_harmless(written, 0)


@pytest.mark.parametrize("debug", [False, True])
def test_errors_of_the_command_line(debug: bool, capfd: pytest.CaptureFixture[str]) -> None:
    with contextlib.suppress(SystemExit):
        main(["trace", "info", f"/{HOSTILE}", *(["--debug"] if debug else [])])
    err = capfd.readouterr().err
    assert SHOWN in err
    assert_harmless(err)


def test_commands_are_shown_in_one_harmless_line_that_a_shell_understands() -> None:
    words = ["printf", "%s|", HOSTILE, "it's \\ \x1b", "plain word", ""]
    line = quote_command(*words)
    assert_harmless(line, 0)
    said = subprocess.run(
        ["bash", "-c", line], stdout=subprocess.PIPE, timeout=20, check=True
    ).stdout
    assert said.decode(errors="surrogateescape") == "".join(f"{word}|" for word in words[2:])


def test_ordinary_text_stays_as_it_is() -> None:
    text = "naïve Größe 線程 🧵 \\u001b x\u00a0y"
    assert visible(text) == text
