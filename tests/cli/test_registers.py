# SPDX-License-Identifier: MIT
"""`registers` runs no program that a trace names, unless it is told to."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from harness import assert_four_parts, flagfinder

from .conftest import Pair

HOSTILE = "two\nlines\x1b[31m"


@pytest.fixture
def without_values(pair: Pair, tmp_path: Path) -> Path:
    """A trace of the spinning run that has no values; its program is ``tmp_path / "app"``."""
    program, trace = tmp_path / "app", tmp_path / "flow.trace"
    shutil.copy2(pair.program, program)
    options = ("-o", trace, "--level", "flow", "--stop-when-spinning", "1")
    recorded = flagfinder("record", *options, "--", program, "spin", HOSTILE)
    assert recorded.returncode == 0, recorded.stderr
    return trace


def test_the_program_does_not_run_unasked(pair: Pair, without_values: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    (tmp_path / "app").write_text(f"#!/bin/sh\ntouch {ran}\n")
    for options in ((), ("--json",), ("-q",)):
        done = flagfinder("registers", *options, without_values, "--before-divergence", pair.normal)
        assert not ran.exists(), "a trace started a program"
        assert done.returncode == 69
        assert not done.stdout or json.loads(done.stdout)["schema"] == "flagfinder.error/1"
        assert_four_parts(done.stderr, "has no values before the divergence")
        assert "still works:" in done.stderr and "--record-again" in done.stderr


def test_on_demand_it_runs_and_says_what(pair: Pair, without_values: Path, tmp_path: Path) -> None:
    done = flagfinder(
        "registers", "-q", without_values, "--before-divergence", pair.normal, "--record-again"
    )
    assert done.returncode == 0, done.stderr
    assert "rip" in done.stdout or "rax" in done.stdout
    first = done.stderr.splitlines()[0]
    assert f"{tmp_path}/app spin $'two\\x0alines\\x1b[31m'" in first
    assert "\x1b" not in done.stderr


def test_diff_names_a_next_command_that_works(pair: Pair, without_values: Path) -> None:
    done = flagfinder("diff", pair.normal, without_values)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("Next: flagfinder diff") and "registers" not in last
    assert flagfinder(*last.split()[2:]).returncode == done.returncode
