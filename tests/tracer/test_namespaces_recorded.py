# SPDX-License-Identifier: MIT
"""Recording programs that make pid namespaces: sandboxes and containers.

In one, a process has another pid than outside, and two may have the same.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from harness import assert_consistent, live_or_skip, record

import flagfinder as ff

pytestmark = pytest.mark.live

UNSHARE = ["unshare", "--pid", "--fork"]
BUBBLEWRAP = ["bwrap", "--dev-bind", "/", "/", "--unshare-pid", "--proc", "/proc"]
# A device directory of its own hides the recorder's buffers.
CLOSED = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--unshare-pid", "--proc", "/proc"]


def runs_as_alone(tmp_path: Path, command: Sequence[str | Path]) -> str:
    """Records the command, which must end as it does unrecorded. Returns what it printed."""
    alone = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if alone.returncode in (1, 125, 126, 127):
        live_or_skip(f"{command[0]} can't run here: {alone.stderr}")
    recorded = record(tmp_path / "trace", command, "--follow-children")
    assert (recorded.exit_code, recorded.stdout) == (alone.returncode, alone.stdout), (
        recorded.stderr
    )
    assert_consistent(tmp_path / "trace")
    return recorded.stderr


@pytest.mark.usefixtures("tracer")
@pytest.mark.parametrize(
    "sandbox",
    [UNSHARE, [*UNSHARE, *UNSHARE], BUBBLEWRAP, CLOSED],
    ids=["unshare", "nested", "bwrap", "closed"],
)
def test_a_program_in_a_pid_namespace_ends_as_it_does_alone(
    sandbox: list[str], tmp_path: Path
) -> None:
    if shutil.which(sandbox[0]) is None:
        live_or_skip(f"{sandbox[0]} is not installed")
    runs_as_alone(tmp_path, [*sandbox, "sh", "-c", "echo here; sh -c 'exit 3'"])


@pytest.mark.usefixtures("tracer")
def test_equal_pids_in_two_namespaces_are_two_processes(
    program: Callable[..., Path], tmp_path: Path
) -> None:
    waits = program("waits.c")
    twice = f"unshare --pid --fork {waits} & unshare --pid --fork {waits}; wait; exit 3"
    runs_as_alone(tmp_path, ["sh", "-c", twice])
    trace = ff.open_trace(tmp_path / "trace")
    inner = [process for process in trace.processes if process.path == str(waits)]
    assert len({process.pid for process in inner}) == 2
    # Each calls itself 1.
    assert [thread.tid for process in inner for thread in process.threads].count(1) == 2
