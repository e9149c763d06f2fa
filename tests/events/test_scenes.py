# SPDX-License-Identifier: MIT
"""Hangs of real programs in small: the true culprit is named. The bar is 5 of 5."""

from __future__ import annotations

import json

import pytest
from event_recorder import Recorder
from harness import flagfinder
from sizes import REPEAT
from test_diagnose import HANG, build, diagnosis

pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(120),
    pytest.mark.parametrize("syscalls", ["lazy", "target"]),
    pytest.mark.parametrize("turn", range(REPEAT)),
]


@pytest.mark.parametrize(
    ("scene", "of_main", "of_culprit"),
    [
        ("key", "LongRunning", "LongRunning"),
        ("ticks", "LongWait", "LongRunning"),
        ("request", "LongWait", "LongWait"),
        ("connection", "LongWait", "LongWait"),
        ("datagram", "RepeatedYield", "RepeatedYield"),
        ("kinds", "LongWait", "LongWait"),
        ("ended", "LongWait", "LongRunning"),
    ],
)
def test_the_culprit_is_named(
    recorder: Recorder,
    scene: str,
    of_main: str,
    of_culprit: str,
    syscalls: str,
    turn: int,  # noqa: ARG001
) -> None:
    recorded = recorder.record("scenes", scene, options=("--syscalls", syscalls))
    found = diagnosis(build(recorded))
    assert (found["thread"]["tid"], found["class"]) == (recorded.roles["main"], of_main)
    assert found["dur"] >= HANG
    culprit = found["culprits"][0]
    assert recorded.roles.get("innocent") not in {culprit["tid"] for culprit in found["culprits"]}
    greedy = diagnosis(recorded.path.with_suffix(".graph"), "--beam", "1")["culprits"][0]
    assert greedy["tid"] == culprit["tid"], "the beam is no worse than the best edge at each step"
    assert (culprit["tid"], culprit["class"]) == (recorded.roles["culprit"], of_culprit)
    if scene == "key":
        began = next(step for step in found["path"] if step["tid"] != recorded.roles["main"])
        assert (began["tid"], began["edge"]) == (recorded.roles["typist"], "ipc"), "the key began it"
    if scene == "request":
        assert found["circular"]
    if scene == "datagram":
        kinds = json.loads(flagfinder("events", "info", "--json", recorded.path).stdout)["events"]
        assert kinds.get("yield", 0) > 0 or syscalls == "target", "seen also where every yield returns at once"
        spin, watch = found["advice"]
        assert spin.startswith("flagfinder spin "), "the flag is still to be found"
        file = watch.split("--flag ")[1].split("#")[0]
        assert f"> {file} &&" in watch, "the file that is watched from is made first"
