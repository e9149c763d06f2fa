# SPDX-License-Identifier: MIT
"""One worker of a pool has stopped, and the others spin while there is no work: `diff` names the
thread that waits for its answer, and not a worker that idles.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from harness import announced_flags, assert_consistent, compiled, diff, flagfinder, record
from sizes import param

pytestmark = pytest.mark.live

PROGRAMS = Path(__file__).parent / "programs"


def build(name: str, folder: Path) -> Path:
    """One of the programs."""
    return compiled(folder / name, PROGRAMS / f"{name}.c")


def recorded(folder: Path, *command: str | Path) -> tuple[Path, Path, tuple[int, int]]:
    """A good recording, one that hangs, and the word's address and size in that one."""
    normal = record(folder / "normal.trace", [*command, "normal"])
    assert normal.exit_code == 0, normal.stderr
    spin = record(folder / "spin.trace", [*command, "spin"], "--stop-when-spinning", kill_after=60)
    assert spin.ended_by_itself, "the recording did not end by itself"
    for recording in (normal, spin):
        assert_consistent(recording.trace)
    return normal.trace, spin.trace, announced_flags(spin.stderr)[0]


@pytest.mark.parametrize(
    "pool",
    [
        case
        for pool in ("slots", "rounds", "futures", "asleep")
        for case in param(pool, name=pool, usual=pool == "slots")
    ],
)
@pytest.mark.usefixtures("tracer")
def test_the_thread_that_waits_for_the_stopped_worker_is_named(pool: str, tmp_path: Path) -> None:
    normal, spin, (address, size) = recorded(tmp_path, build("pools", tmp_path), pool)
    found = diff(normal, spin)
    first = found["flags"][0]
    assert int(first["address"]["spin"], 16) - address in range(size), found["reason"]
    info = json.loads(flagfinder("trace", "info", "--json", spin).stdout)
    assert found["threads"]["spin"]["tid"] == info["processes"][0]["pid"], "main waits for it"


@pytest.mark.usefixtures("tracer")
def test_a_loop_that_only_a_called_function_leaves(tmp_path: Path) -> None:
    normal, spin, (address, _) = recorded(tmp_path, build("left_below", tmp_path))
    found = diff(normal, spin)
    assert found["verdict"] == "data-flag", found["reason"]
    assert int(found["flags"][0]["address"]["spin"], 16) == address
    assert "look" in found["divergence"]["branch"]["symbol"]
