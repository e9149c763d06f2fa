# SPDX-License-Identifier: MIT
"""When `record --stop-when-spinning` ends a recording."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import assert_consistent, record


@pytest.mark.live
@pytest.mark.usefixtures("tracer")
def test_a_program_that_comes_to_new_code_is_not_stopped_for_its_service_thread(
    program: Callable[..., Path], tmp_path: Path
) -> None:
    warming = program("warming.c", "-pthread")
    recorded = record(tmp_path / "trace", [warming], "--stop-when-spinning", "1", "--then", "kill")
    main = recorded.stdout.split()[0]
    assert re.search(rf"\bthreads? .*\b{main}\b.* spins?, recording ended", recorded.stderr), (
        recorded.stderr
    )
    assert_consistent(tmp_path / "trace")


@pytest.mark.live
@pytest.mark.usefixtures("tracer")
def test_a_child_that_spins_unrecorded_is_named(tmp_path: Path) -> None:
    script = "while :; do :; done & echo $!; exec sleep 60"
    recorded = record(
        tmp_path / "trace",
        ["sh", "-c", script],
        "--no-follow-children",
        "--stop-after",
        "6",
        "--then",
        "kill",
    )
    child = recorded.stdout.split()[0]
    try:
        assert (
            f"process {child} (sh), which the program started, keeps a processor busy"
            in recorded.stderr
        )
        assert "--follow-children records it too" in recorded.stderr
    finally:
        os.kill(int(child), signal.SIGKILL)
