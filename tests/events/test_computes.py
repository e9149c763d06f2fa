# SPDX-License-Identifier: MIT
"""What a thread computed: the functions that the clock found it in, and its calls."""

from __future__ import annotations

import json

import pytest
from event_recorder import Recorded, Recorder
from harness import flagfinder
from schemas import validate

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]
ROUNDS, CALLS = 200, 3


@pytest.fixture(scope="module")
def recorded(recorder: Recorder) -> Recorded:
    return recorder.record("computes", options=("--syscalls", "target"))


def test_the_functions_that_ran_are_named_with_their_shares_and_calls(recorded: Recorded) -> None:
    graph = recorded.path.with_suffix(".graph")
    assert flagfinder("graph", "build", recorded.path, "-o", graph).returncode == 0
    tid = recorded.roles["main"]
    fields = json.loads(
        flagfinder("diagnose", graph, "--auto", "--thread", str(tid), "--json").stdout
    )
    validate(fields)
    vertices = json.loads(flagfinder("graph", "query", graph, "--tid", str(tid), "--json").stdout)
    validate(vertices)
    [ran] = [
        vertex["ran"] for vertex in vertices["vertices"] if vertex["ran"] and vertex["ran"]["calls"]
    ]
    samples = {one["function"].split(" (")[0]: one["samples"] for one in ran["functions"]}
    assert samples["often"] > samples["seldom"] > 0
    assert sum(samples.values()) == ran["samples"] >= 10
    calls = {call["call"]: call for call in ran["calls"]}
    assert (calls["write"]["count"], calls["write"]["errors"]) == (ROUNDS * CALLS, 0)
    assert calls["read"]["errors"] == calls["read"]["count"] == ROUNDS * CALLS
    assert calls["write"]["total"] > 0


def test_a_diagnosis_says_what_ran(recorded: Recorded) -> None:
    graph = recorded.path.with_suffix(".graph")
    flagfinder("graph", "build", recorded.path, "-o", graph)
    lines = flagfinder("events", "dump", recorded.path, "--limit", "100000").stdout.splitlines()
    middle = [int(line.split()[0]) for line in lines if " sample " in line]
    at = str(middle[len(middle) // 2])
    ran = flagfinder(
        "diagnose", graph, "--auto", "--thread", str(recorded.roles["main"]), "--at", at
    )
    assert "LongRunning" in ran.stdout
    assert "ran often" in ran.stdout
    assert "called " in ran.stdout
    assert f"read {ROUNDS * CALLS} times" in ran.stdout
