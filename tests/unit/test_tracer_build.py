# SPDX-License-Identifier: MIT
"""The tracer's build: keyed by its sources, complete or not there, explained when it fails."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from flagfinder.record import tracer_build
from flagfinder.shared import places
from flagfinder.shared.errors import UnavailableError


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree whose build script makes an empty launcher, and a cache of its own."""
    root = tmp_path / "sources"
    (root / "pintools").mkdir(parents=True)
    (root / "include").mkdir()
    (root / "pintools" / "build.sh").write_text(
        'echo compiling >&2\nmkdir -p "$1"\n: >"$1/ff_launch"\n'
    )
    monkeypatch.setattr(tracer_build, "sources_dir", lambda: root)
    monkeypatch.setenv("FF_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("FF_TRACER_DIR", raising=False)
    return root


@pytest.mark.usefixtures("sources")
def test_built_once_with_progress() -> None:
    lines: list[str] = []
    first = tracer_build.ensure_tracer(lines.append)
    assert (first.directory / "ff_launch").is_file()
    assert "compiling" in lines
    lines.clear()
    assert tracer_build.ensure_tracer(lines.append) == first
    assert lines == []


def test_a_changed_source_gets_another_build(sources: Path) -> None:
    before = tracer_build.ensure_tracer(lambda _line: None)
    (sources / "include" / "ff_protocol.h").write_text("/* new */")
    assert tracer_build.ensure_tracer(lambda _line: None).directory != before.directory


@pytest.mark.usefixtures("sources")
def test_an_interrupted_build_is_not_used() -> None:
    tracer = tracer_build.ensure_tracer(lambda _line: None)
    (tracer.directory / ".complete").unlink()
    lines: list[str] = []
    tracer_build.ensure_tracer(lines.append)
    assert "compiling" in lines


@pytest.mark.parametrize("user", [0, 1000])
def test_what_the_wheel_carries_is_used(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int
) -> None:
    """Where it lies; but root's programs may become other users', and root's home is closed to
    them.
    """
    monkeypatch.setattr(places, "PACKAGE", tmp_path / "home" / "package")
    monkeypatch.setattr(os, "geteuid", lambda: user)
    name = f"tracer-{tracer_build.source_key(sources)}"
    carried = tmp_path / "home" / "package" / "_built" / name
    carried.mkdir(parents=True)
    (tmp_path / "home").chmod(0o700)
    for file in ("ff_launch", ".complete"):
        (carried / file).write_text("carried")
    lines: list[str] = []
    tracer = tracer_build.ensure_tracer(lines.append)
    assert tracer.directory == (carried if user else tmp_path / "cache" / name)
    assert (tracer.directory / "ff_launch").read_text() == "carried"
    assert tracer_build.ensure_tracer(lines.append) == tracer
    assert lines == []


def test_a_failing_build_shows_its_last_words(sources: Path) -> None:
    (sources / "pintools" / "build.sh").write_text("echo no such header; exit 3")
    with pytest.raises(UnavailableError) as caught:
        tracer_build.ensure_tracer(lambda _line: None)
    assert "status 3" in caught.value.found
    assert "no such header" in caught.value.found
    assert ".log" in caught.value.fix


def is_running(status: Path) -> bool:
    """Whether the process is neither gone nor a zombie."""
    try:
        return "zombie" not in status.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_build_that_stands_still_is_ended(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all that it started, which would hold its output open."""
    started = tmp_path / "started"
    (sources / "pintools" / "build.sh").write_text(
        f"echo fetching; sleep 100 & echo $! >{started}; wait"
    )
    monkeypatch.setattr(tracer_build, "_LONGEST_BUILD", 1.0)
    with pytest.raises(UnavailableError) as caught:
        tracer_build.ensure_tracer(lambda _line: None)
    assert "not done after" in caught.value.found
    assert "fetching" in caught.value.found
    status = Path(f"/proc/{started.read_text().strip()}/status")
    deadline = time.monotonic() + 10
    while is_running(status) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_running(status)


@pytest.mark.usefixtures("sources")
def test_missing_tools_are_named_as_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda tool: None if tool == "cmake" else f"/bin/{tool}")
    with pytest.raises(UnavailableError) as caught:
        tracer_build.ensure_tracer(lambda _line: None)
    assert "cmake" in caught.value.fix


def test_a_given_directory_must_hold_a_tracer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FF_TRACER_DIR", str(tmp_path))
    with pytest.raises(UnavailableError) as caught:
        tracer_build.ensure_tracer(lambda _line: None)
    assert "ff_launch" in caught.value.found


def test_a_release_that_is_upgraded_in_place_gets_another_build(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What counts is the library, not the path that it stands in."""
    library = tmp_path / "release" / "lib64" / "release" / "libdynamorio.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"11.3")
    own = tracer_build.source_key(sources)
    monkeypatch.setenv("DYNAMORIO_HOME", str(tmp_path / "release"))
    before = tracer_build.source_key(sources)
    library.write_bytes(b"11.90")
    after = tracer_build.source_key(sources)
    assert len({own, before, after}) == 3
    (tmp_path / "release").rename(tmp_path / "moved")
    monkeypatch.setenv("DYNAMORIO_HOME", str(tmp_path / "moved"))
    assert tracer_build.source_key(sources) == after


@pytest.mark.parametrize(("says", "lost"), [("", ()), ("no-signal-dropped follow-exec", 2)])
def test_lost_patches_are_what_recordings_say(
    tmp_path: Path, says: str, lost: int | tuple[()]
) -> None:
    launcher = tmp_path / "ff_launch"
    launcher.write_text(f"#!/bin/sh\n[ $1 = --lost-patches ] && echo {says}\n")
    launcher.chmod(0o755)
    tracer = tracer_build.Tracer(tmp_path, "key")
    assert tracer.lost_patches == tuple(says.split())
    if lost:
        (said,) = tracer.fallbacks
        assert f"lacks {lost} patches" in said and says.replace(" ", ", ") in said
    else:
        assert tracer.fallbacks == ()
