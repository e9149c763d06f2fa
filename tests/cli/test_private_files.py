# SPDX-License-Identifier: MIT
"""What holds memory or arguments of programs is its owner's only, and under sudo the caller's."""

from __future__ import annotations

import os
import pwd
import shlex
import stat
from pathlib import Path

import pytest
from harness import FLAGFINDER, ROOT, assert_four_parts, flagfinder, live_or_skip, run

from .conftest import Pair


def access(path: Path) -> tuple[int, int]:
    """Owner and mode."""
    status = path.stat()
    return status.st_uid, stat.S_IMODE(status.st_mode)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """An event graph, of an import: that needs no privilege."""
    if os.geteuid() != 0:
        live_or_skip("recording events needs CAP_BPF and CAP_PERFMON; run as root")
    (tmp_path / "old").mkdir()
    events, graph = tmp_path / "old" / "run.events", tmp_path / "old" / "run.graph"
    events.touch(mode=0o644)
    recorded = flagfinder("events", "record", "-o", events, "--", "sh", "-c", "sleep 0.1")
    assert recorded.returncode == 0, recorded.stderr
    assert flagfinder("graph", "build", events, "-o", graph).returncode == 0
    return graph


def test_a_part_of_an_answer_is_no_file(tmp_path: Path) -> None:
    path = tmp_path / "answer.json"
    command = shlex.join([*FLAGFINDER, "doctor", "--json-file", str(path)])
    done = run(["sh", "-c", f"ulimit -f 0; {command}"], timeout=60)
    assert done.returncode == 2
    assert_four_parts(done.stderr, "File too large")
    assert not path.exists()


def test_an_export_that_finds_no_room_leaves_a_device_and_no_file(
    pair: Pair, tmp_path: Path
) -> None:
    if os.geteuid() != 0:
        live_or_skip("only root makes devices")
    full = tmp_path / "full"
    os.mknod(full, stat.S_IFCHR | 0o666, os.makedev(1, 7))
    for form in ("drcov", "tenet", "perfetto"):
        done = flagfinder("trace", "export", pair.normal, "--format", form, "-o", full)
        assert done.returncode == 2
        assert_four_parts(done.stderr, "No space left")
        assert full.exists()
    command = [*FLAGFINDER, "trace", "export", str(pair.normal), "-o", str(tmp_path / "a.drcov")]
    assert run(["sh", "-c", f"ulimit -f 0; {shlex.join(command)}"], timeout=60).returncode == 2
    assert files(tmp_path) == []


def test_traces_and_exports(pair: Pair, tmp_path: Path) -> None:
    assert access(pair.normal) == access(pair.spin) == (os.geteuid(), 0o600)
    old = tmp_path / "out.drcov"
    old.touch(mode=0o644)
    for suffix in ("drcov", "tenet", "perfetto-trace", "parquet"):
        done = flagfinder("trace", "export", pair.normal, "-o", tmp_path / f"out.{suffix}")
        assert done.returncode == 0, done.stderr
    assert {access(path) for path in files(tmp_path)} == {(os.geteuid(), 0o600)}


def test_events_graphs_and_exports(graph: Path, tmp_path: Path) -> None:
    for suffix in ("perfetto-trace", "graphml", "parquet"):
        done = flagfinder("graph", "export", graph, "-o", tmp_path / f"out.{suffix}")
        assert done.returncode == 0, done.stderr
    flagfinder("report", graph, "-o", tmp_path / "page.html")
    assert {access(path) for path in files(tmp_path)} == {(os.geteuid(), 0o600)}


def test_under_sudo_they_are_the_caller_s(pair: Pair, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        live_or_skip("root only can give files to another user")
    nobody = pwd.getpwnam("nobody")
    settings = {"SUDO_UID": str(nobody.pw_uid), "SUDO_GID": str(nobody.pw_gid)}
    commands: list[list[str | Path]] = [
        ["events", "record", "-o", tmp_path / "run.events", "--", "sleep", "0.1"],
        ["graph", "build", tmp_path / "run.events", "-o", tmp_path / "run.graph"],
        ["trace", "export", pair.normal, "-o", tmp_path / "run.parquet"],
    ]
    for command in commands:
        done = run([*FLAGFINDER, *command], timeout=120, env=settings, cwd=ROOT)
        assert done.returncode == 0, done.stderr
    assert {access(path) for path in files(tmp_path)} == {(nobody.pw_uid, 0o600)}


def test_a_path_that_can_t_be_created_is_told(pair: Pair, tmp_path: Path) -> None:
    for suffix in ("drcov", "perfetto-trace"):
        done = flagfinder(
            "trace", "export", pair.normal, "-o", tmp_path / "missing" / f"out.{suffix}"
        )
        assert done.returncode == 2 and "No such file or directory" in done.stderr
