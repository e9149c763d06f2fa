# SPDX-License-Identifier: MIT
"""`flagfinder spin` looks at copies, and at the threads themselves where a copy does not
do what its thread does.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import (
    MachineTooBusyError,
    assert_found,
    compiled,
    flagfinder,
    started,
    wait_for_rounds,
    waiting_for_a_cpu,
)
from planted import built, planted

SOURCE = Path(__file__).parent / "programs" / "copies.c"
# What the copies of its first thread show; where one stands for the thread, how that is known.
FIT = {
    "alone": "found it where its copy goes",
    "moved": "its copies of 3 moments poll the same word",
}
UNLIKE = {
    "asks": "in a copy it comes to sched_getscheduler",
    "switches": "it changes stacks",
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("copies") / "copies", SOURCE)


@pytest.fixture
def process(request: pytest.FixtureRequest, program: Path) -> Iterator[subprocess.Popen[bytes]]:
    with started([program, request.param], stdout=subprocess.DEVNULL) as process:
        wait_for_rounds(process)
        yield process
        assert process.poll() is None, "the program did not survive"


def first_thread(process: subprocess.Popen[bytes], *options: str) -> dict[str, Any]:
    ran = flagfinder("spin", "--json", *options, str(process.pid), timeout=60)
    assert_found(ran)
    threads = json.loads(ran.stdout)["threads"]
    return next(thread for thread in threads if thread["tid"] == process.pid)


@pytest.mark.live
@pytest.mark.parametrize(
    ("process", "why"), (FIT | UNLIKE).items(), ids=FIT | UNLIKE, indirect=["process"]
)
def test_a_copy_is_believed_where_it_does_what_its_thread_does(
    process: subprocess.Popen[bytes], why: str
) -> None:
    thread = first_thread(process)
    assert any(flag["symbol"] == "never" for flag in thread["flags"]), thread["reason"]
    way = "replica" if why in FIT.values() else "in-place"
    assert thread["via"] == way and why in thread["via_reason"], thread["via_reason"]
    assert thread["pause_ms"] > 0 and thread["steps"] > 0


@pytest.mark.live
@pytest.mark.parametrize("process", ["computes"], indirect=True)
def test_work_that_asks_whether_it_is_to_stop_is_no_wait(
    process: subprocess.Popen[bytes],
) -> None:
    ran = flagfinder("spin", "--json", str(process.pid), timeout=60)
    [thread] = json.loads(ran.stdout)["threads"]
    assert (thread["verdict"], thread["flags"]) == ("no-flag", []), thread["reason"]
    assert "the loop computes" in thread["reason"]


@pytest.mark.live
@pytest.mark.parametrize("process", ["turns"], indirect=True)
def test_threads_that_take_turns_wait_for_nothing(process: subprocess.Popen[bytes]) -> None:
    ran = flagfinder("spin", "--json", str(process.pid), timeout=60)
    threads = json.loads(ran.stdout)["threads"]
    assert len(threads) == 3
    flags = [flag for thread in threads for flag in thread["flags"]]
    assert all(flag["standing"] in ("assumed", "unsure") for flag in flags), flags


@pytest.mark.live
@pytest.mark.parametrize("process", ["backs-off"], indirect=True)
def test_who_backs_off_by_chance_still_waits(process: subprocess.Popen[bytes]) -> None:
    flag = first_thread(process)["flags"][0]
    assert (flag["symbol"], flag["standing"]) == ("never", "ends-loop")


@pytest.mark.live
@pytest.mark.parametrize("process", ["puts-off"], indirect=True)
def test_what_a_thread_does_itself_is_not_waited_for(process: subprocess.Popen[bytes]) -> None:
    ran = flagfinder("spin", "--json", str(process.pid), timeout=60)
    thread = json.loads(ran.stdout)["threads"][0]
    assert not thread["flags"], thread["reason"]


@pytest.mark.live
@pytest.mark.parametrize("process", ["looks"], indirect=True)
def test_rounds_that_look_through_much_are_followed_to_their_end(
    process: subprocess.Popen[bytes],
) -> None:
    ran = flagfinder("spin", "--json", str(process.pid), timeout=60)
    thread = json.loads(ran.stdout)["threads"][0]
    # A round does much, and nobody is known to write the flag, nor what the table holds.
    assert not thread["flags"], thread["reason"]
    [flag] = [one for one in thread["considered"] if one["symbol"] == "never"] or [None]
    if flag is None and waiting_for_a_cpu() > 0.8:
        raise MachineTooBusyError(ran.stderr + ran.stdout)
    assert flag is not None, thread["reason"]
    assert thread["via"] == "replica", thread["via_reason"]
    assert flag["proof"]["outcome"] == "leaves", thread["explain"]
    for value, code, outcome in (("1", 0, "leaves"), ("0", 1, "returns")):
        word = ("--address", flag["address"]["spin"], "--size", "4", "--value", value)
        of = (str(process.pid), "--thread", str(process.pid), "--dry-run")
        ran = flagfinder("poke", "--json", *of, *word, timeout=90)
        assert ran.returncode == code, ran.stderr
        assert json.loads(ran.stdout)["proof"]["outcome"] == outcome


@pytest.mark.live
@pytest.mark.parametrize("process", ["alone"], indirect=True)
def test_a_word_that_nobody_polls_is_tried_with_the_thread_that_was_named(
    process: subprocess.Popen[bytes],
) -> None:
    [flag] = first_thread(process)["flags"]
    beside = f"{int(flag['address']['spin'], 16) + 64:#x}"
    word = ("--address", beside, "--size", "4", "--value", "1", "--dry-run")
    ran = flagfinder("poke", "--json", str(process.pid), *word, timeout=90)
    assert ran.returncode == 2 and "--thread TID" in ran.stderr, ran.stderr
    ran = flagfinder("poke", "--json", str(process.pid), *word, "--thread", str(process.pid))
    assert ran.returncode == 1, ran.stderr
    tried = json.loads(ran.stdout)
    assert (tried["thread"], tried["proof"]["outcome"]) == (process.pid, "returns")


@pytest.mark.live
@pytest.mark.parametrize("process", ["alone"], indirect=True)
def test_in_place_no_copy_is_looked_at(process: subprocess.Popen[bytes]) -> None:
    stepped = first_thread(process, "--in-place")
    assert (stepped["via"], stepped["flags"][0]["symbol"]) == ("in-place", "never")
    assert stepped["via_reason"] == "no copy was asked for"


@pytest.mark.live
@pytest.mark.parametrize("process", ["alone", "asks"], indirect=True)
def test_the_report_says_once_which_way_was_used(process: subprocess.Popen[bytes]) -> None:
    ran = flagfinder("spin", str(process.pid), timeout=60)
    assert_found(ran)
    text = " ".join(ran.stderr.split())
    in_copy = text.count("1 thread seen in a copy, paused for")
    stepped = text.count(
        "1 thread stepped (in a copy it comes to sched_getscheduler, whose answer is not known)"
    )
    assert (in_copy, stepped) in [(1, 0), (0, 1)], ran.stderr
    assert bool(stepped) == (b"asks" in Path(f"/proc/{process.pid}/cmdline").read_bytes())


@pytest.mark.live
def test_a_copy_knows_how_a_child_is_and_begins_a_sleep_anew(tmp_path: Path) -> None:
    """The second look finds the thread in a sleep that the first one interrupted."""
    with planted(built(tmp_path), "asks_child", tmp_path) as (process, _):
        for _ in range(2):
            thread = first_thread(process)
            assert thread["flags"][0]["name"] == "wait4 returns 0"
            assert thread["via"] == "replica", thread["via_reason"]
