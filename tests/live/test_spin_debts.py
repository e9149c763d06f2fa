# SPDX-License-Identifier: MIT
"""`flagfinder spin` where either of two words would let a thread go on: who owes them decides."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import (
    announced_flags,
    assert_found,
    compiled,
    flagfinder,
    started,
    wait_for_rounds,
    wait_until,
)

SOURCE = Path(__file__).parent / "programs" / "debts.c"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("debts") / "debts", SOURCE, "-O2", "-g0")


@pytest.fixture
def thread(
    request: pytest.FixtureRequest, program: Path, tmp_path: Path
) -> Iterator[tuple[dict[str, Any], int]]:
    """What is said of the waiting thread, and the address of `count`."""
    error = tmp_path / "stderr"
    with (
        error.open("wb") as stderr,
        started([program, request.param], stdin=subprocess.PIPE, stderr=stderr) as process,
    ):
        wait_until(process, lambda: "FLAG" in error.read_text())
        wait_for_rounds(process)
        ran = flagfinder("spin", "--json", str(process.pid), timeout=60)
        assert process.poll() is None, "the program did not survive"
    assert_found(ran)
    [(address, _)] = announced_flags(error.read_text())
    yield json.loads(ran.stdout)["threads"][0], address


@pytest.mark.live
@pytest.mark.parametrize("thread", ["served", "joined"], indirect=True)
def test_what_comes_next_is_before_a_word_to_stop_by(thread: tuple[dict[str, Any], int]) -> None:
    report, count = thread
    flag = report["flags"][0]
    named = [(f["rank"], f["name"], f["confidence"], f["owed"]) for f in report["flags"]]
    assert flag["rank"] == 1 and int(flag["address"]["spin"], 16) == count, named
    assert flag["owed"][0]["known"] == "proved" and "returns data" in flag["owed"][0]["after"], (
        named
    )
    assert any("stop" in other["name"] for other in report["flags"][1:]), named


@pytest.mark.live
@pytest.mark.parametrize("thread", ["served"], indirect=True)
def test_the_report_says_that_the_debt_decided(thread: tuple[dict[str, Any], int]) -> None:
    report, _ = thread
    flag = report["flags"][0]
    why = f"thread {flag['owed'][0]['tid']} would write it after"
    assert flag["evidence"][0].startswith(why), flag["evidence"]
    assert any(why in step for step in report["explain"]), report["explain"]
    assert flag["name"] in report["reason"]


@pytest.mark.live
@pytest.mark.parametrize("thread", ["by_library"], indirect=True)
def test_the_caller_of_a_library_routine_is_named(
    thread: tuple[dict[str, Any], int],
) -> None:
    report, _ = thread
    [owed] = report["flags"][0]["owed"]
    assert owed["known"] == "proved", owed
    assert owed["code"]["symbol"].startswith("raise_all+"), owed


@pytest.mark.live
@pytest.mark.parametrize("thread", ["nobody"], indirect=True)
def test_one_of_two_words_is_not_said_to_be_sure(thread: tuple[dict[str, Any], int]) -> None:
    report, _ = thread
    flag, other = report["flags"][:2]
    assert not flag["owed"] and not other["owed"]
    assert flag["confidence"] <= 0.5
    assert flag["as_good"] == other["rank"]
    assert flag["evidence"][0].startswith(f"one of two words: {other['name']} would do as well")


@pytest.mark.live
def test_the_function_that_writes_a_field_is_named_if_no_thread_owes_it(tmp_path: Path) -> None:
    source = SOURCE.with_name("unstarted.c")
    with started([compiled(tmp_path / "unstarted", source, "-O1")]) as process:
        wait_for_rounds(process)
        ran = flagfinder("spin", "--json", str(process.pid), timeout=60)
    assert_found(ran)
    [flag] = json.loads(ran.stdout)["threads"][0]["flags"]
    assert "(+0x30, 4 bytes), finish, is on no thread's stack" in flag["owed_by_nobody"]
