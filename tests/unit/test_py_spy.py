# SPDX-License-Identifier: MIT
"""Which py-spy is run."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from flagfinder.interpreters import py_spy
from flagfinder.interpreters.which import UnreadableError


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A py-spy in PATH, and none beside flagfinder."""
    program = tmp_path / "bin" / "py-spy"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setattr(sysconfig, "get_path", lambda _name: str(tmp_path / "scripts"))
    monkeypatch.setattr(py_spy, "PACKAGE", tmp_path / "a/b/c/d/flagfinder")
    return program


def test_root_does_not_run_what_path_offers(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(UnreadableError, match="pip install"):
        py_spy.find_py_spy()
    assert planted.exists()


@pytest.mark.parametrize("library", ["lib/python3.11/site-packages", "folder"])
@pytest.mark.usefixtures("planted")
def test_what_was_installed_with_the_package_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    """For a user (`pip install --user`), and in the one file of `make zipapp`."""
    installed = tmp_path / "a/b/c" / "user" / library
    home = installed if library == "folder" else installed.parents[2]
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "py-spy").touch()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(py_spy, "PACKAGE", installed / "flagfinder")
    assert py_spy.find_py_spy() == str(home / "bin" / "py-spy")


def test_users_run_their_own(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert py_spy.find_py_spy() == str(planted)


def test_it_has_a_limit_for_its_memory() -> None:
    script = "import resource; print(resource.getrlimit(resource.RLIMIT_AS))"
    status, output, _ = py_spy._run([sys.executable, "-I", "-c", script], 30.0)
    assert status == 0
    assert eval(output) == (2 << 30, 2 << 30)


def test_it_ends_with_us() -> None:
    """Also if we are killed."""
    script = (
        "from flagfinder.interpreters import py_spy\n"
        "py_spy._run(['sh', '-c', 'echo $$ >&3; exec sleep 60'], 60.0)"
    )
    ours, theirs = os.pipe()
    starting = [sys.executable, "-P", "-c", f"import os; os.dup2({theirs}, 3)\n{script}"]
    with subprocess.Popen(starting, pass_fds=[theirs]) as process:
        os.close(theirs)
        helper = os.pidfd_open(int(os.read(ours, 20)))
        process.kill()
    os.close(ours)
    ended, _, _ = select.select([helper], [], [], 30)
    os.close(helper)
    assert ended
