# SPDX-License-Identifier: MIT
"""Which py-spy is run."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

import pytest

from flagfinder.interpreters import py_spy


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A py-spy in PATH, and none beside flagfinder."""
    program = tmp_path / "bin" / "py-spy"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setattr(sysconfig, "get_path", lambda _name: str(tmp_path / "scripts"))
    return program


def test_root_does_not_run_what_path_offers(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(py_spy.UnreadableError, match="pip install"):
        py_spy.find_py_spy()
    assert planted.exists()


def test_users_run_their_own(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert py_spy.find_py_spy() == str(planted)
