# SPDX-License-Identifier: MIT
"""io_uring: a wait in io_uring_enter leads back to who submitted the request, and to who wrote what
it read.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from event_recorder import Recorded, Recorder
from harness import flagfinder, live_or_skip, run

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]
ROUNDS = 10
FORBIDDEN = 77


@pytest.fixture(scope="module")
def rings(recorder: Recorder) -> Recorder:
    """Where this kernel lets programs use io_uring."""
    tried = run([recorder.program("rings"), "pipe"], timeout=60)
    if tried.returncode == FORBIDDEN:
        live_or_skip(f"this kernel forbids io_uring: {tried.stderr.strip()}")
    assert tried.returncode == 0, tried.stderr
    return recorder


def recorded_graph(rings: Recorder, *words: str) -> tuple[Recorded, Path]:
    recorded = rings.record("rings", *words)
    checked = flagfinder("events", "check", recorded.path)
    assert checked.returncode == 0, checked.stdout
    graph = recorded.path.with_suffix(".graph")
    ran = flagfinder("graph", "build", recorded.path, "-o", graph)
    assert ran.returncode == 0, ran.stderr
    return recorded, graph


def vertices(graph: Path, *options: str | int) -> list[dict[str, Any]]:
    ran = flagfinder("graph", "query", graph, "--limit", "10000", "--json", *options)
    assert ran.returncode == 0, ran.stderr
    found: list[dict[str, Any]] = json.loads(ran.stdout)["vertices"]
    return found


def causes_of_waits(graph: Path, tid: int, edge: str) -> list[int | None]:
    """Threads from which edges of this kind come into what followed the thread's waits in
    io_uring_enter.
    """
    after = [
        now
        for before, now in pairwise(vertices(graph, "--tid", tid))
        if before["ends_in"] == "io_uring_enter"
    ]
    return [cause["tid"] for vertex in after for cause in vertex["causes"] if cause["edge"] == edge]


def test_a_wait_leads_to_its_submission_and_to_who_wrote(rings: Recorder) -> None:
    recorded, graph = recorded_graph(rings, "pipe")
    waiter, writer = recorded.roles["waiter"], recorded.roles["writer"]
    submitted = causes_of_waits(graph, waiter, "io_uring")
    assert len(submitted) >= ROUNDS
    assert set(submitted) == {waiter}
    assert set(causes_of_waits(graph, waiter, "ipc")) == {writer}


def test_a_completion_that_a_worker_brings_leads_to_who_submitted(rings: Recorder) -> None:
    recorded, graph = recorded_graph(rings, "other")
    submitted = causes_of_waits(graph, recorded.roles["waiter"], "io_uring")
    # A worker that loses its CPU between the completion and the wake is not believed.
    assert len(submitted) >= ROUNDS // 2
    assert set(submitted) == {recorded.roles["submitter"]}


def test_a_worker_begins_with_a_fork(rings: Recorder) -> None:
    recorded, graph = recorded_graph(rings, "worker")
    own = [vertex for vertex in vertices(graph) if vertex["pid"] == recorded.roles["waiter"]]
    workers = [vertex for vertex in own if vertex["thread"].startswith("iou-wrk")]
    assert workers
    assert [cause["edge"] for cause in workers[0]["causes"]] == ["fork"]
