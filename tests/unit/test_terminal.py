# SPDX-License-Identifier: MIT
"""Text from files and processes reaches the terminal without anything that the terminal acts on."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from rich.text import Text

from flagfinder.cli.command import main
from flagfinder.cli.common import print_json
from flagfinder.live.why_chain import WhyReport
from flagfinder.report.terminal import ProgressLine, Terminal
from flagfinder.report.why_report import show_why
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


@pytest.mark.parametrize(("columns", "longest"), [("60", 60), ("200", 200), ("", 100), ("9", 40)])
def test_a_paragraph_is_as_wide_as_the_terminal(
    columns: str,
    longest: int,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """What COLUMNS says counts as its width, too; 100 where nothing tells."""
    monkeypatch.setenv("COLUMNS", columns)
    Terminal().paragraph(Text("word " * 200), 4)
    lines = capfd.readouterr().out.splitlines()
    assert longest - 5 < max(map(len, lines[1:-1])) <= longest
    assert all(line.startswith("    word") for line in lines[1:])


def test_a_fault_is_red_and_without_colours_bold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a terminal, as `why` shows it."""

    def shown(kind: str, color: Any) -> bytes:
        ours, theirs = os.openpty()
        report = deadlock()
        root = {**report.raw["root"], "kind": kind}
        with os.fdopen(os.dup(theirs), "w") as screen, contextlib.redirect_stdout(screen):
            show_why(
                Terminal(color), [WhyReport.from_json(json.dumps({**report.raw, "root": root}))]
            )
            screen.flush()
            said = os.read(ours, 1 << 16)
        os.close(ours)
        os.close(theirs)
        return said

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert b"\x1b[1;31mdeadlock: \x1b[0ma circle" in shown("deadlock", "auto")
    assert b"\x1b[1mwaits for input: \x1b[0mthread" in shown("input", "auto")
    assert b"\x1b[1;33mnot known: \x1b[0mthread" in shown("unknown", "auto")
    assert b"\x1b" not in shown("deadlock", "never")
    monkeypatch.setenv("NO_COLOR", "1")
    assert b"\x1b[1mdeadlock: \x1b[0ma circle" in shown("deadlock", "auto")


def deadlock() -> WhyReport:
    fields = {
        "schema": "flagfinder.why/1",
        "pid": 1,
        "program": "app",
        "story": ["deadlock: thread 2 waits for thread 3, which waits for thread 2"],
        "links": [],
        "root": {"kind": "deadlock", "pid": 1, "tid": 2, "name": "app", "what": "a circle"},
        "next": [],
        "notes": [],
    }
    return WhyReport.from_json(json.dumps(fields))


def test_who_reads_a_pipe_gets_each_paragraph_at_once() -> None:
    code = (
        "import time; from flagfinder.report.terminal import Terminal\n"
        "Terminal().paragraph([('watching', 'bold')]); time.sleep(600)"
    )
    words = [sys.executable, "-P", "-c", code]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], 30)[0]
        assert process.stdout.readline() == "watching\n"
        process.kill()


def test_github_gets_no_command_by_a_name(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    name = "a\n::error::x\n  ##[error]y"
    for value, is_told in (("true", False), ("", True)):
        monkeypatch.setenv("GITHUB_ACTIONS", value)
        Terminal().error(UsageError("It failed", name, name))
        Terminal().warning(name)
        told = capfd.readouterr().err
        begins = [line.lstrip().startswith("::") for line in told.splitlines()]
        assert (any(begins), "##[" in told) == (is_told, is_told), told
