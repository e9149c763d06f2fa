# SPDX-License-Identifier: MIT
"""Calls that are repeated and bring nothing: which descriptor, why, who opened or passed it on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from event_recorder import Recorded, Recorder
from harness import flagfinder
from test_diagnose import build, diagnosis

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]
RATE = 10_000  # a second, far less than these programs call even on a busy machine


def recorded_calls(
    recorder: Recorder, mode: str, *, codes: tuple[int, ...] = (0,)
) -> tuple[Recorded, dict[str, Any]]:
    recorded = recorder.record("calls", mode, options=("--syscalls", "target", "--stacks", "all"))
    return recorded, diagnosis(build(recorded), codes=codes)


def hot_culprit(recorded: Recorded, found: dict[str, Any]) -> dict[str, Any]:
    culprit: dict[str, Any] = found["culprits"][0]
    assert (culprit["tid"], culprit["class"]) == (recorded.roles["culprit"], "HotCalls")
    assert culprit["hot"]["per_second"] > RATE
    assert culprit["hot"]["code"] == "repeat (calls)"
    return culprit


@pytest.mark.parametrize(
    ("mode", "call", "because", "why"),
    [
        ("null", "read", "end-of-file", "each read gets end of file"),
        ("closed", "poll", "not-open", "the descriptor is not open"),
        ("passed", "read", "no-writer", "end of file: no process has it open for writing"),
    ],
)
def test_the_call_its_file_and_the_reason_are_named(
    recorder: Recorder, mode: str, call: str, because: str, why: str
) -> None:
    recorded, found = recorded_calls(recorder, mode)
    culprit = hot_culprit(recorded, found)
    hot = culprit["hot"]
    (descriptor,) = hot["descriptors"]
    assert (hot["call"], descriptor["because"], descriptor["why"]) == (call, because, why)
    told = flagfinder("diagnose", recorded.path.with_suffix(".graph"), "--auto").stdout
    told = " ".join(told.split())
    assert why in told
    if mode == "null":
        assert culprit["doing"] == "calling read on /dev/null over and over"
        assert (hot["opened_by"]["tid"], hot["opened_by"]["call"]) == (
            recorded.roles["main"],
            "openat",
        )
        assert f"opened by thread {recorded.roles['main']} (calls), by openat" in told
    if mode == "passed":
        assert found["class"] == "LongWait"
        parent = descriptor["inherited_from"]
        assert (parent["pid"], parent["name"]) == (recorded.roles["main"], "calls")
        assert f"inherited from process {recorded.roles['main']} (calls)" in told


def test_compare_names_the_code_of_calls_that_did_not_block(recorder: Recorder) -> None:
    """By samples: neither program ever waits in these calls."""
    options = ("--syscalls", "target", "--stacks", "all")
    good, bad = (
        recorder.record("calls", mode, options=options).path for mode in ("closed", "null")
    )
    found = json.loads(flagfinder("compare", good, bad, "--json").stdout)
    rows = {(row["call"], row["code"]): row for row in found["rows"]}
    polls, reads = rows["poll", "repeat (calls)"], rows["read", "repeat (calls)"]
    assert min(polls["good"]["count"], polls["bad"]["count"]) > 1000
    assert reads["bad"]["count"] > 1000
    assert any("samples" in note for note in found["notes"])
    assert found["rows"][0] == reads, "what only the bad run does is first"
    assert reads["ratio"] is None


def test_a_thread_that_gets_what_it_asks_for_is_innocent(recorder: Recorder) -> None:
    # Most times nobody is named, which is right.
    _, found = recorded_calls(recorder, "serves", codes=(0, 1))
    classes = {found["class"], *(culprit["class"] for culprit in found["culprits"])}
    assert "HotCalls" not in classes
