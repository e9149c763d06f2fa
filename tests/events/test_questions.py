# SPDX-License-Identifier: MIT
"""`diagnose` asks if two threads ended waits that went well: the answer decides which one is
blamed.
"""

from __future__ import annotations

import json
import os
import pty
import subprocess
import termios
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from event_recorder import Recorded, Recorder
from harness import FLAGFINDER, flagfinder

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]
MOST_QUESTIONS = 3
# What a terminal is sent when a menu begins: what is pasted shall be told from keys.
TAKES_KEYS = b"\x1b[?2004h"


@pytest.fixture(scope="module")
def two(recorder: Recorder) -> tuple[Path, Recorded]:
    """The graph of a thread that two others answer in turn, until one does not."""
    recorded = recorder.record("hangs", "two")
    graph = recorded.path.with_suffix(".graph")
    ran = flagfinder("graph", "build", recorded.path, "-o", graph)
    assert ran.returncode == 0, ran.stderr
    return graph, recorded


def answered(graph: Path, answers: Path, *options: str) -> dict[str, Any]:
    ran = flagfinder("diagnose", graph, "--json", "--answers", answers, *options)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def first_question(graph: Path, answers: Path) -> dict[str, Any]:
    answers.write_text("1\n" * MOST_QUESTIONS)
    asked: dict[str, Any] = answered(graph, answers)["asked"][0]
    return asked


def number_of(question: dict[str, Any], tid: int) -> int:
    """The choice, from 1, of the wait that this thread ended."""
    return 1 + [choice["by_tid"] for choice in question["choices"]].index(tid)


def test_the_answer_decides_who_is_blamed(two: tuple[Path, Recorded], tmp_path: Path) -> None:
    graph, recorded = two
    answers = tmp_path / "answers"
    question = first_question(graph, answers)
    assert (question["topic"], question["tid"]) == ("baseline", recorded.roles["main"])
    workers = {recorded.roles["culprit"], recorded.roles["other"]}
    assert {choice["by_tid"] for choice in question["choices"]} == workers
    for role, hang_class in (("culprit", "LongRunning"), ("other", "LongWait")):
        number = number_of(question, recorded.roles[role])
        answers.write_text(
            f"# which wait\n{number}  # of the {role}\n\n" + "1\n" * (MOST_QUESTIONS - 1)
        )
        found = answered(graph, answers)
        assert found["asked"][0]["answer"] == number
        assert found["questions"] == len(found["asked"]) <= MOST_QUESTIONS
        nearest = found["culprits"][-1]
        assert (nearest["tid"], nearest["class"]) == (recorded.roles[role], hang_class)


def test_by_rule_nothing_is_asked(two: tuple[Path, Recorded]) -> None:
    graph, _ = two
    for options in (("--auto",), ()):
        ran = flagfinder("diagnose", graph, "--json", *options)
        assert ran.returncode == 0, ran.stderr
        found = json.loads(ran.stdout)
        assert (found["questions"], found["asked"]) == (0, [])


def test_answers_that_do_not_fit_are_refused_with_the_question(
    two: tuple[Path, Recorded], tmp_path: Path
) -> None:
    answers = tmp_path / "answers"
    for text, said in (("", "without an answer"), ("3", "does not fit"), ("yes", "does not fit")):
        answers.write_text(text)
        ran = flagfinder("diagnose", two[0], "--answers", answers)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert said in ran.stderr
        assert "Which of these waits" in ran.stderr
    answers.write_text("1\n" * (MOST_QUESTIONS + 2))
    assert (
        "questions that were not asked"
        in flagfinder("diagnose", two[0], "--answers", answers).stderr
    )


def test_a_terminal_is_asked_until_the_answer_fits(
    two: tuple[Path, Recorded], tmp_path: Path
) -> None:
    graph, recorded = two
    number = number_of(first_question(graph, tmp_path / "answers"), recorded.roles["culprit"])
    ours, theirs = pty.openpty()
    command = [*FLAGFINDER, "diagnose", os.fspath(graph), "--json"]
    asked = subprocess.Popen(
        command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    os.close(theirs)
    os.write(ours, f"9\n{number}\n".encode() + b"\n" * MOST_QUESTIONS)
    shown, questions = asked.communicate(timeout=60)
    os.close(ours)
    assert asked.returncode == 0, questions
    assert questions.count("1 to 2 [1]: ") >= 2
    found = json.loads(shown)
    assert found["asked"][0]["answer"] == number
    assert found["culprits"][0]["tid"] == recorded.roles["culprit"]


def in_a_terminal(graph: Path, keys: list[bytes], found: Path | None = None) -> tuple[int, bytes]:
    """Runs `diagnose` in a terminal, and presses keys when a menu begins: these, then Enter.

    Returns its exit status and what it drew. `found`: a file for its result.
    """
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    command = [*FLAGFINDER, "diagnose", os.fspath(graph), "--json"]
    # Nobody answers here where the cursor stands.
    environment = {**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
    with (found or Path(os.devnull)).open("wb") as result:
        asked = subprocess.Popen(
            command, stdin=theirs, stdout=result, stderr=theirs, env=environment
        )
    os.close(theirs)
    drawn, menus = b"", 0
    with suppress(OSError):  # the other end is closed
        while piece := os.read(ours, 4096):
            drawn += piece
            if drawn.count(TAKES_KEYS) > menus:
                os.write(ours, keys[menus] if menus < len(keys) else b"\r")
                menus += 1
    os.close(ours)
    return asked.wait(timeout=60), drawn


@pytest.mark.parametrize("keys", ["\x1b[B\r", "2\r", "\x1b[B\x1b[A\x1b[B\r"])
def test_a_menu_takes_arrow_keys_and_numbers(
    two: tuple[Path, Recorded], tmp_path: Path, keys: str
) -> None:
    graph, _ = two
    second = first_question(graph, tmp_path / "answers")["choices"][1]
    status, drawn = in_a_terminal(graph, [keys.encode()], tmp_path / "found")
    assert status == 0, drawn
    assert b"Which of these waits" in drawn
    found = json.loads((tmp_path / "found").read_text())
    assert found["asked"][0]["answer"] == 2
    assert found["culprits"][-1]["tid"] == second["by_tid"]


def test_escape_leaves_a_menu_as_ctrl_c_does(two: tuple[Path, Recorded]) -> None:
    for key in ("\x1b", "\x03"):
        status, drawn = in_a_terminal(two[0], [key.encode()])
        assert status == 130, drawn
        assert b"Which of these waits" in drawn


def test_what_came_before_is_compared_too(two: tuple[Path, Recorded], tmp_path: Path) -> None:
    """The rule's choice is the newest wait of those who were asked this time, not the newest of
    all.
    """
    graph, recorded = two
    question = first_question(graph, tmp_path / "answers")
    assert question["choices"][0]["by_tid"] == recorded.roles["culprit"]
    assert answered(two[0], tmp_path / "answers", "--preceding", "3")["asked"]
    refused = flagfinder("diagnose", two[0], "--auto", "--preceding", "-1")
    assert refused.returncode == 2
