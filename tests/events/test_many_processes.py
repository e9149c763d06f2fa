# SPDX-License-Identifier: MIT
"""How much memory a graph of many short processes takes, each with its own code map."""

from __future__ import annotations

from pathlib import Path

import pytest
from event_recorder import Recorder
from harness import FLAGFINDER
from peak import MIB, measured

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]
PROCESSES = 600
MOST = 256 * MIB


def test_files_of_many_processes_are_read_once(recorder: Recorder, tmp_path: Path) -> None:
    recorded = recorder.record("starts", str(PROCESSES), options=("--stacks", "all"))
    graph = tmp_path / "run.graph"
    for verb in (
        ("graph", "build", recorded.path, "-o", graph),
        ("compare", recorded.path, recorded.path),
        ("diagnose", "--auto", graph),
        ("report", graph, "-o", tmp_path / "report.html"),
        ("graph", "export", graph, "-o", tmp_path / "run.perfetto-trace"),
    ):
        ran = measured([*FLAGFINDER, *verb], tmp_path, timeout=250)
        assert ran.returncode in (0, 1), ran.stderr
        assert ran.peak_bytes < MOST, f"{verb[:2]}: {ran.peak_bytes / MIB:.0f} MiB"
