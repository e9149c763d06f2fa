# SPDX-License-Identifier: MIT
"""What a shell's script asks between two sleeps."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from harness import started, wait_until

from flagfinder import spin
from flagfinder.interpreters import shell
from flagfinder.interpreters.shell import (
    Polling,
    UnclearError,
    operand,
    parsed,
    polling,
    shell_loop,
)

SLEEP = [b"sleep", b"1"]


def told(text: bytes, child: Sequence[bytes]) -> Polling | None:
    """The loop of a script of this text."""
    root = parsed(text)
    assert root is not None
    return polling(root, child)


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("while ! test -f ready; do sleep 1; done", ("while ! test -f ready",)),
        ("until curl -sf $URL >/dev/null; do sleep 1; done", ("until curl -sf $URL >/dev/null",)),
        ("while true; do [ -e a ] && break; sleep 1; done", ("[ -e a ]",)),
        ("for i in 1 2; do if pgrep x; then break; fi; sleep 1; done", ("if pgrep x",)),
        ("while :; do nc -z h 1 || exit 1; sleep 1; done", ("nc -z h 1",)),
        ("f() { until [ -s a ]; do\n sleep $N; done; }; f", ("until [ -s a ]",)),
        ("while [ ! -e a ]; do for x in 1; do echo $x; done; sleep 1; done", ("while [ ! -e a ]",)),
    ],
)
def test_the_conditions_that_end_the_loop_are_told(text: str, asks: tuple[str, ...]) -> None:
    loop = told(text.encode(), SLEEP)
    assert loop is not None and loop.asks == asks


@pytest.mark.parametrize(
    "text",
    [
        "while read line; do build $line; done",  # it has no pause
        "sleep 1; while ! test -f a; do build; done",  # the pause is not the loop's
        "while ! test -f a; do sleep 2; done",  # another pause than the child's
        "while :; do backup; sleep 1; done",  # nothing is asked
        "until a; do sleep 1; done; until b; do sleep 1; done",  # one of two
        "if (((",
    ],
)
def test_other_scripts_tell_nothing(text: str) -> None:
    assert told(text.encode(), SLEEP) is None


LOOP = "while [ ! -e ready ]; do sleep 60; done"


@pytest.mark.parametrize(
    ("shell", "text"),
    [
        ("dash", "(" * 20 + LOOP + ")" * 20),
        ("bash", f"cat <<{'E' * 5000}\nx\n{'E' * 5000}\n{LOOP}\n"),
    ],
)
def test_a_script_that_is_not_understood_is_told(shell: str, text: str, tmp_path: Path) -> None:
    script = tmp_path / "wait.sh"
    script.write_text(text)
    with started([shell, script], stdout=subprocess.DEVNULL) as process:
        wait_until(process, lambda: bool(children(process.pid)))
        with pytest.raises(UnclearError, match=r"\(wait\.sh\) is not understood at line 1"):
            shell_loop(process.pid)
        report = spin(process.pid, budget=0.1)
        assert any("wait.sh" in note for note in report.raw["notes"])


def children(pid: int) -> str:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text()


def test_deep_blocks_are_followed() -> None:
    text = "while :; do test -e a && " + "{ " * 2000 + "break;" + " };" * 2000 + " sleep 1; done"
    told(text.encode(), SLEEP)


def test_the_command_that_is_asked_belongs_to_the_loop_too() -> None:
    text = b"sleep 1\nuntil pg_isready -h db; do\n  sleep 2\ndone\n"
    loop = told(text, [b"/usr/bin/pg_isready", b"-h", b"db"])
    assert loop is not None
    assert (loop.asks, loop.line, loop.pause) == (("until pg_isready -h db",), 2, "sleep 2")


def test_a_long_condition_is_cut() -> None:
    loop = told(b"until " + b"a" * 200 + b"/name; do sleep 1; done", SLEEP)
    assert loop is not None and len(loop.asks[0]) == 120 and loop.asks[0].endswith("a/name")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("sh wait.sh a", (False, b"wait.sh")),
        ("bash -e -o pipefail wait.sh", (False, b"wait.sh")),
        ("bash -eo pipefail wait.sh", (False, b"wait.sh")),
        ("sh -c TEXT name", (True, b"TEXT")),
        ("bash -lc -- TEXT", (True, b"TEXT")),
        ("bash --norc", (False, None)),
        ("-bash", (False, None)),
    ],
)
def test_where_the_script_stands(words: str, found: tuple[bool, bytes | None]) -> None:
    assert operand(words.encode().split()) == found


def test_blocks_within_blocks_are_followed_to_what_leaves_the_loop() -> None:
    text = "while a; do b || " + "{ " * 2000 + "exit 1" + "; }" * 2000 + "; sleep 1; done"
    loop = told(text.encode(), SLEEP)
    assert loop is not None and loop.asks == ("while a", "b")


def test_a_text_that_takes_too_long_to_parse_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is no script, tree-sitter tries ever more."""
    text = b"while ! test -f ready; do sleep 1; done\n" * 1000
    assert parsed(text) is not None
    monkeypatch.setattr(shell, "_PARSING", 0.0)
    assert parsed(text) is None
