# SPDX-License-Identifier: MIT
"""`critical-path` and `compare` on programs that wait for known reasons."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from event_recorder import Recorded, Recorder
from harness import flagfinder, run
from made_up_events import SWITCH, WAKING, Event, event_file, events

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]
WORK = 40_000_000  # ns on a CPU that the programs compute


def critical_path(recorded: Recorded, *options: str) -> dict[str, Any]:
    graph = recorded.path.with_suffix(".graph")
    assert flagfinder("graph", "build", recorded.path, "-o", graph).returncode == 0
    ran = flagfinder(
        "critical-path", graph, "--thread", str(recorded.roles["main"]), "--json", *options
    )
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    assert found["schema"] == "flagfinder.critical-path/1"
    assert found["lost"] == 0
    return found


def longest_wait(found: dict[str, Any]) -> dict[str, Any]:
    waits: list[dict[str, Any]] = [
        wait for wait in found["waits"] if wait["depth"] == 0 and wait["edge"] == "wake"
    ]
    return max(waits, key=lambda wait: wait["dur"])


def assert_whole(found: dict[str, Any]) -> None:
    """Segments follow each other from the beginning to the end."""
    at = found["from"]
    for segment in found["segments"]:
        assert segment["start"] == at
        at += segment["dur"]
    assert at == found["to"]
    assert sum(share["dur"] for share in found["threads"]) == found["to"] - found["from"]


def test_the_holder_s_work_is_the_waiter_s_time(recorder: Recorder) -> None:
    recorded = recorder.record("locks", "contention", options=("--stacks", "all"))
    found = critical_path(recorded)
    assert_whole(found)
    wait = longest_wait(found)
    assert (wait["by_tid"], wait["kind"], wait["inversion"]) == (
        recorded.roles["holder"],
        "lock",
        None,
    )
    assert any(site.startswith("take_the_lock") for site in wait["stack"])
    assert any(site.startswith("hold") for site in wait["wake_stack"])
    shares = {share["tid"]: share for share in found["threads"]}
    assert shares[recorded.roles["holder"]]["dur"] >= wait["dur"] * 0.9
    assert shares[recorded.roles["holder"]]["run"] > WORK // 2


def test_a_condition_is_no_lock(recorder: Recorder) -> None:
    recorded = recorder.record("locks", "handoff", options=("--stacks", "all"))
    wait = longest_wait(critical_path(recorded))
    assert (wait["by_tid"], wait["kind"]) == (recorded.roles["holder"], "condition")


def test_without_stacks_a_futex_stays_a_futex(recorder: Recorder) -> None:
    recorded = recorder.record("locks", "contention")
    wait = longest_wait(critical_path(recorded))
    assert (wait["by_tid"], wait["call"], wait["kind"]) == (recorded.roles["holder"], "futex", None)


@pytest.mark.parametrize("mode", ["inversion", "unwoken"])
def test_priority_inversion_is_named_with_who_had_the_cpu(recorder: Recorder, mode: str) -> None:
    recorded = recorder.record("locks", mode, options=("--stacks", "all"))
    found = critical_path(recorded)
    wait = longest_wait(found)
    inversion = wait["inversion"]
    assert (wait["by_tid"], wait["kind"]) == (recorded.roles["holder"], "lock")
    assert inversion["holder"] > inversion["waiter"]
    assert inversion["starved"] > wait["dur"] / 2
    rivals = {recorded.roles[f"rival{number}"] for number in range(3)}
    own = {*rivals, recorded.roles["main"], recorded.roles["holder"]}
    # On a busy machine a thread of another program may have had the CPU for longer.
    assert inversion["instead_tid"] in rivals or inversion["instead_tid"] not in {*own, None}
    graph = recorded.path.with_suffix(".graph")
    told = json.loads(
        flagfinder("diagnose", graph, "--auto", "--json", "--at", str(wait["start"] + 1)).stdout
    )
    [holder] = [
        culprit for culprit in told["culprits"] if culprit["tid"] == recorded.roles["holder"]
    ]
    assert holder["inversion"] == inversion, "as the critical path has it"
    assert (
        "priority inversion: the holder is less urgent"
        in flagfinder("diagnose", graph, "--auto").stdout
    )
    page = graph.with_suffix(".html")
    assert flagfinder("report", graph, "-o", page).returncode == 0
    assert "<li>Priority inversion: the holder is less urgent" in page.read_text(), (
        "a line of the story"
    )


def test_a_part_of_the_time_is_explained_alone(recorder: Recorder) -> None:
    recorded = recorder.record("locks", "contention", options=("--stacks", "all"))
    wait = longest_wait(critical_path(recorded))
    begin, end = wait["start"] + wait["dur"] // 4, wait["start"] + wait["dur"] // 2
    part = critical_path(recorded, "--from", str(begin), "--to", str(end))
    assert_whole(part)
    assert {share["tid"] for share in part["threads"]} == {recorded.roles["holder"]}


def test_a_thread_that_is_not_there_has_no_path(recorder: Recorder) -> None:
    recorded = recorder.record("locks", "contention")
    critical_path(recorded)
    ran = flagfinder("critical-path", recorded.path.with_suffix(".graph"), "--thread", "4194305")
    assert ran.returncode == 1


def test_compare_names_the_call_and_its_code(recorder: Recorder, tmp_path: Path) -> None:
    """The chain's last process is late in one round of the bad run: main waits for it in `read`."""
    options = ("--stacks", "all", "--syscalls", "target")
    good = recorder.record("hangs", "chain", "well", options=options)
    bad = recorder.record("hangs", "chain", "sleeps", options=options)
    plot = tmp_path / "calls.svg"
    ran = flagfinder("compare", good.path, bad.path, "--json", "--plot", plot)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["schema"] == "flagfinder.compare/1"
    assert found["lost"] == 0
    assert not any("can't be compared" in note for note in found["notes"])
    rows = {(row["call"], row["code"]): row for row in found["rows"]}
    late = rows["clock_nanosleep", "be_late (hangs)"]
    assert (late["good"]["count"], late["bad"]["count"]) == (0, 1)
    assert late["bad"]["total"] >= 400_000_000
    reads = rows["read", "chain (hangs)"]
    assert reads["bad"]["longest"] - reads["good"]["longest"] > 200_000_000
    # Calls before the recorder knew where code is may be the C library's in one run only: rows that
    # are there in both runs are compared.
    both = [row for row in found["rows"] if row["good"]["count"] and row["bad"]["count"]]
    assert ("read", "chain (hangs)") in [(row["call"], row["code"]) for row in both[:2]]
    assert plot.read_text().startswith("<?xml")


@pytest.mark.usefixtures("recorder")
def test_compare_counts_errors_and_only_the_target_s_calls(tmp_path: Path) -> None:
    """Twenty looks for a file that there is not; other programs wait in futex, poll and select
    meanwhile, on the same CPUs.
    """
    paths = []
    for name, looks in (("good", 0), ("bad", 20)):
        path = tmp_path / f"{name}.events"
        script = (
            f"i=0; while [ $i -lt {looks} ]; do [ -e /no/such/file ]; i=$((i+1)); done; sleep 0.3"
        )
        options = ("-q", "--syscalls", "target", "--all")
        ran = flagfinder("events", "record", "-o", path, *options, "--", "/bin/sh", "-c", script)
        assert ran.returncode == 0, ran.stderr
        paths.append(path)
    # No drawing without matplotlib, but the table all the same.
    script = (
        "import sys; from flagfinder.cli.command import main; sys.modules['matplotlib'] = None; "
        "sys.exit(main(sys.argv[1:]))"
    )
    command = [
        sys.executable,
        "-P",
        "-c",
        script,
        "compare",
        *paths,
        "--json",
        "--plot",
        tmp_path / "calls.svg",
    ]
    ran = run(command, timeout=60)
    assert ran.returncode == 69, ran.stderr
    rows = json.loads(ran.stdout)["rows"]
    more = [
        row["bad"]["errors"].get("ENOENT", 0) - row["good"]["errors"].get("ENOENT", 0)
        for row in rows
    ]
    assert max(more) == 20
    calls = {row["call"] for row in rows}
    assert "clock_nanosleep" in calls
    assert not calls & {"pselect6", "epoll_wait", "ppoll"}


def test_no_more_is_told_than_fits_into_memory(tmp_path: Path) -> None:
    """Two threads that wake each other: a small file of them holds millions of waits."""
    step, count = 4000, 8000
    blocks = []
    for first in range(0, 28 * count, count):
        turns = [
            (step * (first + turn), 7 + turn % 2, 8 - turn % 2) for turn in range(1, count + 1)
        ]
        pairs = [
            (Event(ts, WAKING, one, other, flags=1), Event(ts + 1000, SWITCH, one, other, flags=1))
            for ts, one, other in turns
        ]
        blocks.append(events(*(event for pair in pairs for event in pair)))
    recording = event_file(tmp_path / "run.events", *blocks)
    graph = tmp_path / "run.graph"
    assert flagfinder("graph", "build", recording, "-o", graph).returncode == 0
    ran = flagfinder("critical-path", graph, "--thread", "7", "--json")
    found = json.loads(ran.stdout)
    assert_whole(found)
    assert len(found["waits"]) == 100_000
    assert len(found["segments"]) <= 100_000
