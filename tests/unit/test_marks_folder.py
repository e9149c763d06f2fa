# SPDX-License-Identifier: MIT
"""A folder for marks that somebody else made, or can write to, is refused."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from harness import needs_root

from flagfinder.cli.command import main
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
        # Root's test is another user in part.
        assert marks.mark("here", everyones=True).recorders == [os.getpid()]
        assert inbox.take() == ["here"]


def test_what_a_killed_recorder_left_is_removed(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    own(folder)
    left, lives = folder / f"1{marks.END}", folder / f"2{marks.MARK}"
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as living,
    ):
        dead.bind(os.fspath(left))
        dead.close()
        living.bind(os.fspath(lives))
        with marks.MarkInbox():
            assert not left.exists() and lives.exists()


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
    assert marks.mark("here").recorders == []
    assert not folder.exists()


@needs_root("has recorders of two users")
def test_root_marks_only_its_own_recordings_unless_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As a recorder under sudo does, whose socket is the calling user's."""
    monkeypatch.setattr(mark_folder, "_ROOT", tmp_path / "root")
    monkeypatch.delenv("SUDO_UID", raising=False)
    path = tmp_path / "root" / f"{os.getpid()}{marks.MARK}"
    with marks.MarkInbox() as inbox:
        os.chown(path, OTHER, -1)
        assert main(["mark", "here"]) == 1
        assert (
            f"recorder {os.getpid()} of another user (root may, with --all"
            in capfd.readouterr().err
        )
        assert inbox.take() == []
        assert main(["mark", "here", "--all"]) == 0
        assert main(["mark", "there", "--recorder", str(os.getpid())]) == 0
        assert inbox.take() == ["here", "there"]
        os.chown(path, 0, -1)
        assert main(["mark", "mine"]) == 0
        assert inbox.take() == ["mine"]
