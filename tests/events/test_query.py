# SPDX-License-Identifier: MIT
"""`graph query`: which vertices, and in which order."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from event_recorder import Recorded, Recorder
from harness import flagfinder

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]
ALL = ("--limit", "100000")


@pytest.fixture(scope="module")
def recorded(recorder: Recorder) -> Recorded:
    return recorder.record("wakes", "eventfd")


@pytest.fixture(scope="module")
def graph(recorded: Recorded) -> Path:
    path = recorded.path.with_suffix(".graph")
    assert flagfinder("graph", "build", recorded.path, "-o", path).returncode == 0
    return path


def queried(graph: Path, *options: str, code: int = 0) -> list[dict[str, Any]]:
    ran = flagfinder("graph", "query", graph, "--json", *options)
    assert ran.returncode == code, ran.stderr
    found: list[dict[str, Any]] = json.loads(ran.stdout)["vertices"]
    return found


@pytest.mark.parametrize("key", ["dur", "run", "wait", "woke"])
def test_the_largest_come_first(graph: Path, key: str) -> None:
    found = [vertex[key] or 0 for vertex in queried(graph, "--sort", key, *ALL)]
    assert found == sorted(found, reverse=True)
    assert found[0] > 0
    assert [v[key] or 0 for v in queried(graph, "--sort", key, "--limit", "3")] == found[:3]


def test_a_wait_lasts_until_the_next_vertex_and_a_waker_is_counted(
    recorded: Recorded, graph: Path
) -> None:
    own = queried(graph, "--tid", str(recorded.roles["waiter"]), *ALL)
    assert len(own) > 2
    for vertex, following in pairwise(own):
        if vertex["wait"] is not None:
            assert vertex["start"] + vertex["dur"] + vertex["wait"] == following["start"]
    wakers = {v["vertex"]: v["woke"] for v in queried(graph, *ALL)}
    causes = [cause for v in own for cause in v["causes"] if cause["edge"] == "ipc"]
    assert causes
    assert all(wakers[cause["vertex"]] > 0 for cause in causes if cause["vertex"] is not None)


def test_threads_are_chosen_by_their_names(graph: Path) -> None:
    names = {vertex["thread"] for vertex in queried(graph, "--name", "wak*", *ALL)}
    assert names == {"wakes"}
    assert queried(graph, "--name", "nobody-*", code=1) == []
