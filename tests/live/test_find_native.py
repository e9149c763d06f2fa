# SPDX-License-Identifier: MIT
"""`flagfinder find --native`: the bad run is asked, the good run is watched at its own speed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import schemas
from harness import (
    FLAGFINDER,
    assert_four_parts,
    compiled,
    flagfinder,
    live_or_skip,
    run,
    wait_for_rounds,
)

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]
SOURCE = Path(__file__).with_name("programs") / "native.c"
KINDS = {"global": "global", "heap": "heap", "stack": "stack"}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(
        tmp_path_factory.mktemp("native") / "native", SOURCE, "-Wall", "-Wextra", "-Werror"
    )


@contextmanager
def hanging(*words: object) -> Iterator[subprocess.Popen[bytes]]:
    """A bad run that polls already."""
    read, write = os.pipe()  # it reads that for ever
    process = subprocess.Popen([str(word) for word in words], stdin=read)
    os.close(read)
    try:
        wait_for_rounds(process)
        yield process
        assert process.poll() is None, "it did not survive"
    finally:
        os.close(write)
        process.kill()
        process.wait()


def found(normal: str, *bad: object) -> dict[str, Any]:
    ran = flagfinder("find", "--native", "--json", "--normal", normal, *bad, timeout=120)
    assert ran.returncode in (0, 1), ran.stderr
    report: dict[str, Any] = json.loads(ran.stdout)
    schemas.validate(report)
    return report


@pytest.mark.parametrize("kind", KINDS)
def test_who_wrote_the_word_in_the_good_run(kind: str, program: Path) -> None:
    with hanging(program, kind, "bad") as process:
        report = found(f"{program} {kind} good", "--pid", process.pid)
        tasks = {
            int(task.name): (task / "comm").read_text().strip()
            for task in task_folders(process.pid)
        }
    flag = report["flags"][0]
    assert (report["verdict"], flag["kind"], flag["value"]["spin"]) == (
        "data-flag",
        KINDS[kind],
        "0x0",
    )
    if kind != "global":
        assert flag["address"]["normal"] != flag["address"]["spin"]
    [owed] = flag["owed"]
    assert (owed["known"], owed["value"], owed["pid"], tasks[owed["tid"]]) == (
        "seen",
        "0x7",
        process.pid,
        "writer",
    )
    assert owed["code"]["symbol"].partition("+")[0] == "give"
    assert "read" in owed["after"]
    assert owed["normal"]["name"] == "writer" and owed["normal"]["pid"] != process.pid
    wrote = flag["writers"][0]
    assert (wrote["run"], wrote["thread"], wrote["value"], wrote["count"]) == (
        "normal",
        "writer",
        "0x7",
        1,
    )
    assert any((code["symbol"] or "").startswith("writer+") for code in wrote["stack"]), wrote[
        "stack"
    ]
    assert report["divergence"] is None


def task_folders(pid: int) -> Iterator[Path]:
    return Path(f"/proc/{pid}/task").iterdir()


def test_commands_are_started_and_ended_and_a_script_may_start_the_good_one(
    program: Path, tmp_path: Path
) -> None:
    script = tmp_path / "script.sh"
    script.write_text(f"#!/bin/sh\n/bin/true\n{program} heap good\n")
    script.chmod(0o755)
    bad = f"sh -c 'sleep 1000 | {program} heap bad'"
    report = found(str(script), "--spin", bad)
    [owed] = report["flags"][0]["owed"]
    assert (owed["known"], owed["name"], owed["value"]) == ("seen", "writer", "0x7")
    assert is_over(owed["pid"]), "the bad run was ended"


def is_over(pid: int) -> bool:
    """Nobody may ask for its status, once its parent is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except FileNotFoundError:
        return True


def test_a_word_that_the_good_run_never_writes(program: Path) -> None:
    with hanging(program, "heap", "bad") as process:
        report = found(f"{program} heap unwritten", "--pid", process.pid)
    flag = report["flags"][0]
    assert flag["writers"] == []
    assert all(owed["known"] != "seen" for owed in flag["owed"])
    assert any("never gave" in note for note in report["notes"]), report["notes"]


def test_a_good_run_of_another_program(program: Path) -> None:
    with hanging(program, "global", "bad") as process:
        ran = flagfinder(
            "find", "--native", "--normal", "true", "--pid", str(process.pid), timeout=120
        )
    assert ran.returncode == 2, ran.stderr
    assert_four_parts(ran.stderr, "the command ended without running native")


def test_a_bad_run_that_ends(program: Path) -> None:
    ran = flagfinder(
        "find", "--native", "--normal", f"{program} global good", "--spin", f"{program} global good"
    )
    assert ran.returncode == 2, ran.stderr
    assert_four_parts(ran.stderr, "its status was 0 before it was asked")


def test_the_good_run_dies_with_the_command(program: Path) -> None:
    """Ctrl-C while the good run is watched ends it, and leaves the process that was asked alone."""
    with hanging(program, "global", "bad") as process:
        words = ["find", "--native", "--normal", f"{program} global bad", "--pid", str(process.pid)]
        asked = subprocess.Popen(
            [*FLAGFINDER, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert asked.stderr is not None
        for line in asked.stderr:
            if "the good run is process" in line:
                pid = int(line.rsplit(maxsplit=1)[1])
                break
        asked.send_signal(signal.SIGINT)
        asked.communicate(timeout=60)
    assert asked.returncode == 130
    assert not Path(f"/proc/{pid}").exists()


def test_without_rights_nothing_is_started(program: Path) -> None:
    if shutil.which("setpriv") is None:
        live_or_skip("setpriv (util-linux) is not installed")
    drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"]
    words = [
        "find",
        "--native",
        "--normal",
        f"{program} global good",
        "--spin",
        f"touch {program}.started",
    ]
    ran = run([*drop, *FLAGFINDER, *words], timeout=60)
    assert ran.returncode == 77, ran.stderr
    assert_four_parts(ran.stderr, "this user lacks CAP_BPF and CAP_PERFMON")
    assert not Path(f"{program}.started").exists()
