# SPDX-License-Identifier: MIT
"""A folder for marks that somebody else made, or can write to, is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from harness import needs_root

from flagfinder.shared import mark_folder, marks
from flagfinder.shared.errors import PermissionDeniedError

OTHER = 65534


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where marks go without XDG_RUNTIME_DIR; it is not there yet."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(mark_folder, "_SHARED", tmp_path)
    monkeypatch.setattr(mark_folder, "_ROOT", tmp_path / "root")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() or OTHER)
    return tmp_path / f"flagfinder-{os.geteuid()}"


def own(folder: Path) -> None:
    """Makes the folder belong to whom flagfinder takes for its user."""
    if os.getuid() == 0:
        os.chown(folder, OTHER, -1)


def refused(words: str) -> None:
    with pytest.raises(PermissionDeniedError, match=words) as caught, marks.MarkInbox():
        pass
    assert caught.value.fix and caught.value.still_works
    with pytest.raises(PermissionDeniedError, match=words):
        marks.mark("here")


def test_marks_reach_an_own_folder(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    own(folder)
    with marks.MarkInbox() as inbox:
        assert marks.mark("here") == [os.getpid()]
        assert inbox.take() == ["here"]


def test_one_that_others_can_write_to(folder: Path) -> None:
    folder.mkdir()
    own(folder)
    folder.chmod(0o777)
    refused("others may write to it")


def test_a_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    own(tmp_path / "elsewhere")
    folder.symlink_to("elsewhere")
    refused("no directory")


@needs_root("only root can make a folder of another user")
def test_one_of_another_user(folder: Path) -> None:
    folder.mkdir()
    refused("belongs to user 0")


def test_without_a_folder_there_are_no_marks_of_the_user(folder: Path) -> None:
    assert marks.mark("here") == []
    assert not folder.exists()
