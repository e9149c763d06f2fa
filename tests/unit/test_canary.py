# SPDX-License-Identifier: MIT
"""A tracer is refused when the check program sees anything but what it sees untraced."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harness import live_or_skip

from flagfinder.record import canary
from flagfinder.record.recorder import RecordOptions
from flagfinder.record.tracer_build import Tracer
from flagfinder.shared.errors import UnavailableError

PROGRAM = '#!/bin/sh\nprintf "strings ok\\n${FF_BROKEN:-zmm ok}\\n" >"$1"\n'


class FakeTracer:
    """Runs the program itself, with or without a fault; counts how often."""

    def __init__(self, environment: dict[str, str], exit_code: int = 0) -> None:
        self.environment = environment
        self.exit_code = exit_code
        self.runs = 0

    def __call__(
        self, command: Sequence[str], path: Path, options: RecordOptions, tracer: Tracer
    ) -> SimpleNamespace:
        assert path.name and options.level and tracer.key
        self.runs += 1
        subprocess.run(command, env=self.environment, check=True, timeout=20)
        return SimpleNamespace(exit_code=self.exit_code)


@pytest.fixture
def tracer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tracer:
    monkeypatch.setenv("FF_CACHE_DIR", str(tmp_path / "cache"))
    program = tmp_path / "ff_canary"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    return Tracer(tmp_path, "key")


def test_a_sound_tracer_is_asked_once(tracer: Tracer, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeTracer({})
    monkeypatch.setattr(canary, "run_tracer", fake)
    canary.check_canary(tracer, lambda _line: None)
    assert fake.runs == 2  # once a level
    canary.check_canary(tracer, lambda _line: None)
    assert fake.runs == 2


def test_another_build_is_asked_again(tracer: Tracer, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeTracer({})
    monkeypatch.setattr(canary, "run_tracer", fake)
    canary.check_canary(tracer, lambda _line: None)
    canary.check_canary(Tracer(tracer.directory, "other"), lambda _line: None)
    assert fake.runs == 4


@pytest.mark.parametrize(
    ("fake", "word"),
    [
        (FakeTracer({"FF_BROKEN": "zmm garbage"}), "zmm garbage"),
        (FakeTracer({"FF_BROKEN": "zmm ok\\nmore"}), "3 of 2"),
        (FakeTracer({}, exit_code=139), "139"),
    ],
    ids=["line", "count", "crash"],
)
def test_differences_are_told(
    tracer: Tracer, monkeypatch: pytest.MonkeyPatch, fake: FakeTracer, word: str
) -> None:
    monkeypatch.setattr(canary, "run_tracer", fake)
    for _ in range(2):  # a bad result is never remembered
        with pytest.raises(UnavailableError) as caught:
            canary.check_canary(tracer, lambda _line: None)
        assert word in caught.value.found
        assert caught.value.fix and caught.value.still_works


@pytest.fixture
def under_sudo(tracer: Tracer, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `sudo` by nobody."""
    if os.geteuid() != 0:
        live_or_skip("root only can hand a folder to another user")
    monkeypatch.setenv("SUDO_UID", str(pwd.getpwnam("nobody").pw_uid))
    assert tracer.key


@pytest.mark.usefixtures("under_sudo")
def test_under_sudo_the_caller_gets_a_folder_of_its_own(
    tracer: Tracer, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def look(
        command: Sequence[str], path: Path, options: RecordOptions, tracer: Tracer
    ) -> SimpleNamespace:
        theirs = Path(command[1]).parent
        seen.extend(
            (folder.stat().st_uid, stat.S_IMODE(folder.stat().st_mode))
            for folder in (theirs, theirs.parent)
        )
        assert path.parent == theirs.parent, "the trace is root's own"
        return FakeTracer({})(command, path, options, tracer)

    monkeypatch.setattr(canary, "run_tracer", look)
    canary.check_canary(tracer, lambda _line: None)
    assert seen[:2] == [(pwd.getpwnam("nobody").pw_uid, 0o700), (0, 0o711)]


@pytest.mark.usefixtures("under_sudo")
def test_links_in_the_caller_s_folder_are_not_followed(
    tracer: Tracer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret\n")

    def plant(
        command: Sequence[str], _path: Path, _options: RecordOptions, _tracer: Tracer
    ) -> SimpleNamespace:
        Path(command[1]).symlink_to(secret)
        return SimpleNamespace(exit_code=0)

    monkeypatch.setattr(canary, "run_tracer", plant)
    with pytest.raises(OSError, match="no regular file"):
        canary.check_canary(tracer, lambda _line: None)
    assert secret.read_text() == "a secret\n"
