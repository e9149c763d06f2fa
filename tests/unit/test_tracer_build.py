"""The tracer's build: keyed by its sources, complete or not there, explained when it fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagfinder import tracer_build
from flagfinder.errors import UnavailableError


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree whose build script makes an empty launcher, and a cache of its own."""
    root = tmp_path / "sources"
    (root / "pintools").mkdir(parents=True)
    (root / "include").mkdir()
    (root / "pintools" / "build.sh").write_text('echo compiling >&2\nmkdir -p "$1"\n: >"$1/ff_launch"\n')
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


def test_a_failing_build_shows_its_last_words(sources: Path) -> None:
    (sources / "pintools" / "build.sh").write_text("echo no such header; exit 3")
    with pytest.raises(UnavailableError) as caught:
        tracer_build.ensure_tracer(lambda _line: None)
    assert "status 3" in caught.value.found
    assert "no such header" in caught.value.found
    assert ".log" in caught.value.fix


@pytest.mark.usefixtures("sources")
def test_missing_tools_are_named_as_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracer_build.shutil, "which", lambda tool: None if tool == "cmake" else f"/bin/{tool}")
    with pytest.raises(UnavailableError) as caught:
        tracer_build.ensure_tracer(lambda _line: None)
    assert "cmake" in caught.value.fix


def test_a_given_directory_must_hold_a_tracer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FF_TRACER_DIR", str(tmp_path))
    with pytest.raises(UnavailableError) as caught:
        tracer_build.ensure_tracer(lambda _line: None)
    assert "ff_launch" in caught.value.found
