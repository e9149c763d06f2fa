# SPDX-License-Identifier: MIT
"""When `record --stop-when-spinning` ends a recording."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import assert_consistent, record


@pytest.mark.live
def test_a_program_that_comes_to_new_code_is_not_stopped_for_its_service_thread(
    program: Callable[..., Path],
    tracer: None,  # noqa: ARG001
    tmp_path: Path,
) -> None:
    warming = program("warming.c", "-pthread")
    recorded = record(tmp_path / "trace", [warming], "--stop-when-spinning", "1", "--then", "kill")
    main = recorded.stdout.split()[0]
    assert re.search(rf"\bthreads? .*\b{main}\b.* spins?, recording ended", recorded.stderr), recorded.stderr
    assert_consistent(tmp_path / "trace")
