# SPDX-License-Identifier: MIT
"""Which lldb is taken: its own word on its version counts, not its name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from harness import live_or_skip

from flagfinder.shared.errors import UnavailableError
from flagfinder.shared.lldb_helper import choose_lldb, find_lldb, require_version


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("FF_LLDB", raising=False)
    return tmp_path


def install(path: Path, name: str, answer: str, status: int = 0) -> str:
    program = path / name
    program.write_text(f"#!/bin/sh\necho '{answer}'\nexit {status}\n")
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize(
    "answer", ["lldb version 18.1.8", "lldb version 22.0.0git (a rev)", "lldb version 18.1.3-1"]
)
def test_a_new_one_is_taken(path: Path, answer: str) -> None:
    assert find_lldb() is None
    lldb = install(path, "lldb", answer)
    assert choose_lldb("") == find_lldb() == lldb


@pytest.mark.parametrize(
    "answer", ["lldb version 14.0.6", "lldb version 17.0.6", "lldb-1500.0.22.8", "", "Segfault"]
)
def test_an_old_one_is_refused_with_what_it_said(path: Path, answer: str) -> None:
    lldb = install(path, "lldb", answer)
    with pytest.raises(UnavailableError) as refused:
        choose_lldb("Others work.")
    assert refused.value.what == "lldb 18 or newer is needed"
    assert lldb in refused.value.found
    assert (answer or "nothing") in refused.value.found
    assert refused.value.fix.startswith("apt install lldb-")
    assert refused.value.still_works == "Others work."
    assert find_lldb() is None


def test_a_newer_one_is_taken_for_an_older_one(path: Path) -> None:
    install(path, "lldb", "lldb version 14.0.6")
    newer = install(path, "lldb-19", "lldb version 19.1.1")
    assert choose_lldb("") == newer
    newest = install(path, "lldb-22", "lldb version 22.1.8")
    assert choose_lldb("") == newest


def test_a_name_is_no_version(path: Path) -> None:
    install(path, "lldb-22", "lldb version 14.0.6")
    lldb = install(path, "lldb", "lldb version 18.1.8")
    assert choose_lldb("") == lldb


def test_the_named_one_is_asked_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(path, "lldb", "lldb version 18.1.8")
    old = install(path, "mine", "lldb version 16.0.6")
    monkeypatch.setenv("FF_LLDB", old)
    with pytest.raises(UnavailableError, match=r"says 'lldb version 16\.0\.6'"):
        choose_lldb("")
    monkeypatch.setenv("FF_LLDB", "no-such-lldb")
    with pytest.raises(UnavailableError, match="there is no no-such-lldb"):
        choose_lldb("")


def test_the_one_around_us_is_asked() -> None:
    require_version("lldb version 18.0.0", "")
    with pytest.raises(UnavailableError, match="18 or newer is needed"):
        require_version("lldb version 14.0.6\n  clang revision x", "")


def test_the_real_one_is_new_enough() -> None:
    if not any(shutil.which(name) for name in ("lldb", "lldb-19", "lldb-22")):
        live_or_skip("lldb is not installed")
    assert Path(choose_lldb("")).is_absolute()
