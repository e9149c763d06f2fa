# SPDX-License-Identifier: MIT
"""GraphML is well-formed, whatever the threads of the recording were called."""

from __future__ import annotations

import io
import os
import tracemalloc
import xml.etree.ElementTree as xml
from pathlib import Path

import numpy as np

from flagfinder.graph.graphml import write_graphml
from flagfinder.graph.tables import GraphTables


def test_names_that_xml_forbids_are_made_visible() -> None:
    names = np.array(["\x1b[31m\x00\ufffe\r</data>\n"], dtype=object)
    nodes = {"vertex": np.array([0]), "thread": names}
    edges = {"from": np.array([0]), "to": np.array([0]), "kind": names}
    file = io.BytesIO()
    write_graphml(GraphTables(nodes, edges, {}), file)
    root = xml.fromstring(file.getvalue())
    found = [data.text for data in root.iter("{http://graphml.graphdrawing.org/xmlns}data")]
    assert found == ["\\u001b[31m\\u0000\ufffd\\u000d</data>\n"] * 2


def test_no_more_than_a_piece_is_in_words_at_a_time() -> None:
    numbers = np.arange(50_000)
    nodes = {"vertex": numbers, "start": numbers}
    edges = {"from": numbers, "to": numbers, "kind": numbers}
    with Path(os.devnull).open("wb") as file:
        tracemalloc.start()
        write_graphml(GraphTables(nodes, edges, {}), file)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 4 << 20
