# SPDX-License-Identifier: MIT
"""Hangs of known cause: the culprit is named, and nobody who is innocent. The bar is 5 of 5."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from event_recorder import Recorder
from harness import flagfinder
from scenes import SCENES, Scene
from sizes import REPEAT
from test_diagnose import build, diagnosis, vertices

pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(120),
    pytest.mark.parametrize("turn", range(REPEAT)),
]


@pytest.mark.parametrize(
    ("scene", "syscalls"),
    [
        pytest.param(
            scene,
            mode,
            id=f"{scene.name}-{mode}",
            marks=() if (number + turn) % 4 == 0 or len(scene.modes) == 1 else pytest.mark.soak,
        )
        for number, scene in enumerate(SCENES)
        for turn, mode in enumerate(scene.modes)
    ],
)
def test_the_culprit_is_named_and_no_innocent(
    recorder: Recorder,
    tmp_path: Path,
    scene: Scene,
    syscalls: str,
    turn: int,  # noqa: ARG001
) -> None:
    recorded = scene.record(recorder, syscalls, tmp_path / "locked")
    found = diagnosis(build(recorded))
    assert scene.told(found) == scene.truth(recorded)
    assert found["dur"] >= scene.least
    assert scene.innocents(recorded, found) == []
    culprit = found["culprits"][0]
    if scene.name == "scenes-key":
        began = next(step for step in found["path"] if step["tid"] != recorded.roles["main"])
        assert (began["tid"], began["edge"]) == (recorded.roles["typist"], "ipc"), (
            "the key began it"
        )
    if scene.name == "scenes-datagram":
        spin, watch = found["advice"]
        assert spin.startswith("flagfinder spin "), "the flag is still to be found"
        file = watch.split("--flag ")[1].split("#")[0]
        assert f"> {file} &&" in watch, "the file that is watched from is made first"
    if scene.culprit == "holder":
        assert culprit["starved"]["dur"] > found["dur"] / 4
        assert culprit["starved"]["tid"] not in {culprit["tid"], recorded.roles["main"], None}


def test_yields_are_seen_whether_they_give_way_or_not(recorder: Recorder, turn: int) -> None:  # noqa: ARG001
    """Where nobody else wants the CPU no switch tells of them, but the clock finds them."""
    recorded = recorder.record("scenes", "datagram")
    main = vertices(build(recorded), recorded.roles["main"])
    kinds = json.loads(flagfinder("events", "info", "--json", recorded.path).stdout)["events"]
    assert kinds.get("yield", 0) > 0 or sum(vertex["yields"] for vertex in main) > 20
