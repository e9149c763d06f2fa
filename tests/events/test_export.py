# SPDX-License-Identifier: MIT
"""`graph export`, read back by readers that share nothing with the writer."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import Any

import pytest
from event_recorder import Recorded, Recorder
from harness import FLAGFINDER, flagfinder, run
from perfetto_reader import read_perfetto
from pyarrow import parquet

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]
PACKET = 120  # bytes of a slice or an arrow, its end and its part of the names
_GRAPHML = "{http://graphml.graphdrawing.org/xmlns}"


@pytest.fixture(scope="module")
def recorded(recorder: Recorder) -> Recorded:
    return recorder.record("wakes", "eventfd", options=("--stacks", "all"))


@pytest.fixture(scope="module")
def graph(recorded: Recorded) -> Path:
    path = recorded.path.with_suffix(".graph")
    assert flagfinder("graph", "build", recorded.path, "-o", path).returncode == 0
    return path


@pytest.fixture(scope="module")
def vertices(graph: Path) -> list[dict[str, Any]]:
    ran = flagfinder("graph", "query", graph, "--limit", "100000", "--json")
    found: list[dict[str, Any]] = json.loads(ran.stdout)["vertices"]
    return found


def export(graph: Path, path: Path) -> Path:
    ran = flagfinder("graph", "export", graph, "-o", path)
    assert ran.returncode == 0, ran.stderr
    return path


def test_perfetto_shows_runs_waits_and_arrows(
    recorded: Recorded, graph: Path, vertices: list[dict[str, Any]], tmp_path: Path
) -> None:
    trace = read_perfetto(export(graph, tmp_path / "run.perfetto-trace"))
    waiter, waker = recorded.roles["waiter"], recorded.roles["waker"]
    assert trace.threads[waker] == (waiter, "wakes")
    assert trace.processes[waiter] == "wakes"
    runs = [(s.tid, s.start, s.end) for s in trace.slices if s.category == "run"]
    assert sorted(runs) == sorted((v["tid"], v["start"], v["start"] + v["dur"]) for v in vertices)
    waits = [s for s in trace.slices if s.category == "wait" and s.tid == waiter]
    assert sum(s.name == "read anon_inode:[eventfd]" for s in waits) >= 9
    assert any("main" in str(s.notes.get("stack")) for s in waits)
    begins = {flow: s for s in trace.slices for flow in s.flows}
    ends = {flow: s for s in trace.slices for flow in s.ending_flows}
    assert begins.keys() == ends.keys()
    # A reader takes packets of one time in the file's order, and drops ends without a beginning.
    assert all(begins[flow].start < ends[flow].start for flow in begins)
    arrows = [
        (begins[flow].tid, ends[flow].tid) for flow in begins if begins[flow].category == "ipc"
    ]
    assert arrows.count((waker, waiter)) >= 10
    edges = [
        cause
        for v in vertices
        for cause in v["causes"]
        if cause["tid"] is not None and cause["edge"] != "weak"
    ]
    assert len(begins) == len(edges)


def test_perfetto_s_packets_are_in_order_and_texts_are_written_once(
    graph: Path, tmp_path: Path
) -> None:
    path = export(graph, tmp_path / "run.perfetto-trace")
    trace = read_perfetto(path)
    assert trace.late == 0
    stacks = [str(s.notes["stack"]) for s in trace.slices if "stack" in s.notes]
    texts = sum(map(len, set(stacks)))
    assert sum(map(len, stacks)) > 3 * texts, "many waits have the same"
    assert path.stat().st_size < PACKET * len(trace.slices) + 2 * texts


def test_graphml_has_every_vertex_and_edge(
    graph: Path, vertices: list[dict[str, Any]], tmp_path: Path
) -> None:
    root = xml.parse(export(graph, tmp_path / "run.graphml")).getroot()
    declared = {key.get("id") for key in root.iter(f"{_GRAPHML}key")}
    nodes = list(root.iter(f"{_GRAPHML}node"))
    assert [node.get("id") for node in nodes] == [f"v{v['vertex']}" for v in vertices]
    for node, vertex in zip(nodes, vertices, strict=True):
        data = {item.get("key"): item.text for item in node}
        assert data.keys() <= declared
        assert data["node-tid"] == str(vertex["tid"])
        assert data["node-start"] == str(vertex["start"])
        assert data.get("node-call") == vertex["ends_in"]
        assert (data.get("node-stack") or "").splitlines() == vertex["stack"]
    found = sorted(
        (edge.get("source"), edge.get("target"), edge.findtext(f"{_GRAPHML}data[@key='edge-kind']"))
        for edge in root.iter(f"{_GRAPHML}edge")
    )
    causes = [
        (v["vertex"], cause)
        for v in vertices
        for cause in v["causes"]
        if cause["vertex"] is not None
    ]
    assert found == sorted((f"v{cause['vertex']}", f"v{to}", cause["edge"]) for to, cause in causes)


def test_parquet_tables_are_the_graph(
    graph: Path, vertices: list[dict[str, Any]], tmp_path: Path
) -> None:
    folder = export(graph, tmp_path / "run.parquet")
    rows = parquet.read_table(folder / "vertices.parquet").to_pylist()
    assert [row["start"] for row in rows] == [v["start"] for v in vertices]
    assert [row["call"] or None for row in rows] == [v["ends_in"] for v in vertices]
    edges = parquet.read_table(folder / "edges.parquet").to_pylist()
    assert len(edges) == sum(len(v["causes"]) for v in vertices)
    threads = parquet.read_table(folder / "threads.parquet").to_pylist()
    assert {v["tid"] for v in vertices} <= {thread["tid"] for thread in threads}


@pytest.mark.parametrize(
    ("module", "form", "extra"), [("pyarrow", "parquet", "parquet"), ("numpy", "graphml", "arrays")]
)
def test_without_an_extra_it_is_told_how_to_get_it(
    graph: Path, tmp_path: Path, module: str, form: str, extra: str
) -> None:
    (tmp_path / f"{module}.py").write_text(f"raise ImportError('No module named {module}')")
    command = (
        [word for word in FLAGFINDER if word != "-P"]
        if FLAGFINDER[0] == sys.executable
        else FLAGFINDER
    )
    words = ["graph", "export", graph, "-o", tmp_path / f"run.{form}"]
    ran = run([*command, *words], timeout=60, cwd=tmp_path)
    assert ran.returncode == 69
    assert f"pip install 'flagfinder[{extra}]'" in ran.stderr


def test_a_name_that_tells_no_format_is_a_usage_error(graph: Path, tmp_path: Path) -> None:
    ran = flagfinder("graph", "export", graph, "-o", tmp_path / "run.xyz")
    assert ran.returncode == 2
    assert "--format" in ran.stderr
