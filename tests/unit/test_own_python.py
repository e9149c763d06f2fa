# SPDX-License-Identifier: MIT
"""Parts of flagfinder that run as a Python of their own import nothing from the working folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from flagfinder.shared import start


@pytest.fixture(params=[(3, 10), (3, 11)], ids=["without -P", "with -P"])
def hostile(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A folder whose modules end whoever imports them."""
    monkeypatch.setattr(sys, "version_info", request.param)
    for name in ("flagfinder.py", "json.py"):
        (tmp_path / name).write_text("raise SystemExit('not mine')")
    return tmp_path


def said(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


def test_a_module(hostile: Path) -> None:
    command = start.python("-m", "flagfinder", "doctor", "--help")
    assert said(command, hostile).startswith("usage: flagfinder doctor")


def test_a_file_gets_its_words(hostile: Path) -> None:
    (hostile / "script.py").write_text("import json, sys\nprint(json.dumps(sys.argv[1:]))")
    assert said(start.python("script.py", "-m", "x"), hostile) == '["-m", "x"]\n'
