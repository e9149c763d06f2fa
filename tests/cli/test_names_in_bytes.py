# SPDX-License-Identifier: MIT
"""Programs and files whose names are no UTF-8."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from harness import flagfinder


@pytest.fixture
def program(tmp_path: Path) -> str:
    name = tmp_path / os.fsdecode(b"caf\xe9")
    shutil.copy("/bin/true", name)
    return os.fspath(name)


@pytest.mark.live
@pytest.mark.parametrize("verb", [["record"], ["events", "record"]])
def test_a_program_whose_name_is_no_utf_8_is_recorded(
    verb: list[str], program: str, tmp_path: Path
) -> None:
    output = tmp_path / "recording"
    done = flagfinder(*verb, "-o", output, "--", program)
    assert done.returncode == 0, done.stderr
    shown = flagfinder("trace" if verb == ["record"] else "events", "info", output)
    assert "caf\ufffd" in shown.stdout


def test_an_event_file_whose_name_is_no_utf_8_is_refused(tmp_path: Path) -> None:
    output = os.fspath(tmp_path / os.fsdecode(b"events-\xe9"))
    done = flagfinder("events", "record", "-o", output, "--", "true")
    assert done.returncode == 2
    assert "is not UTF-8" in done.stderr and "fix:" in done.stderr


@pytest.mark.live
@pytest.mark.parametrize("verb", ["spin", "why"])
def test_a_live_process_whose_names_are_no_utf_8_is_looked_at(verb: str, tmp_path: Path) -> None:
    """Its file's name, and that of its thread: the kernel cuts it within a letter."""
    name = tmp_path / f"{os.fsdecode(b'caf' + bytes([0xE9]))}-{'é' * 8}"
    shutil.copy("/bin/sleep", name)
    with subprocess.Popen([name, "1000"]) as sleeper:
        try:
            done = flagfinder(verb, sleeper.pid)
        finally:
            sleeper.kill()
    assert "sleep" in done.stdout, done.stderr
