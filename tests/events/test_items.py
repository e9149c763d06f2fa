# SPDX-License-Identifier: MIT
"""Requests that a server answers in one wake-up: what it did for each leads back to who asked for
it.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from event_recorder import Recorded, Recorder
from test_diagnose import build, vertices

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]
ROUNDS = 10
CLIENTS = ("first", "second")


def recorded_graph(
    recorder: Recorder, *words: str, syscalls: str = "target"
) -> tuple[Recorded, Path]:
    recorded = recorder.record("batch", *words, options=("--syscalls", syscalls))
    return recorded, build(recorded)


def senders(vertex: dict[str, Any]) -> set[int]:
    """Threads whose messages made a vertex begin."""
    causes = vertex["causes"]
    return {
        cause["tid"]
        for cause in causes
        if cause["edge"] == "ipc" and cause["ts"] <= vertex["start"]
    }


def answering(graph: Path, recorded: Recorded, client: str) -> list[dict[str, Any]]:
    """What the server did, each time that it woke the client with an answer, after which the client
    sleeps.

    A client whose request is taken out of its socket is woken, too, and goes on waiting.
    """
    server = {vertex["vertex"]: vertex for vertex in vertices(graph, recorded.roles["server"])}
    woken = [
        vertex
        for vertex in vertices(graph, recorded.roles[client])
        if vertex["ends_in"] == "clock_nanosleep"
    ]
    causes = (cause for vertex in woken for cause in vertex["causes"])
    return [server[cause["vertex"]] for cause in causes if cause["edge"] == "ipc"]


@pytest.mark.parametrize("how", ["processes", "turns", "shared"])
def test_an_answer_leads_to_who_asked(recorder: Recorder, how: str) -> None:
    recorded, graph = recorded_graph(recorder, how)
    for client in CLIENTS:
        found = answering(graph, recorded, client)
        # A client that is late to wait for its answer is not woken by it.
        assert len(found) >= ROUNDS // 2
        assert [senders(vertex) for vertex in found] == [{recorded.roles[client]}] * len(found)


def test_items_are_joined_by_weak_edges_and_share_out_the_time(recorder: Recorder) -> None:
    recorded, graph = recorded_graph(recorder, "processes")
    server = vertices(graph, recorded.roles["server"])
    pairs = list(pairwise(server))
    items = [(one, other) for one, other in pairs if one["start"] + one["dur"] == other["start"]]
    assert len(items) >= ROUNDS
    for one, other in items:
        assert one["vertex"] in {
            cause["vertex"] for cause in other["causes"] if cause["edge"] == "weak"
        }
        assert one["ends_in"] is None
        assert one["run"] <= one["dur"]


def test_without_all_calls_only_waits_split(recorder: Recorder) -> None:
    recorded, graph = recorded_graph(recorder, "processes", syscalls="lazy")
    server = vertices(graph, recorded.roles["server"])
    assert all(one["start"] + one["dur"] < other["start"] for one, other in pairwise(server))
