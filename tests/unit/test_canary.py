"""A tracer is refused when the check program sees anything but what it sees untraced."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from flagfinder import canary
from flagfinder.errors import UnavailableError
from flagfinder.recorder import RecordOptions
from flagfinder.tracer_build import Tracer

PROGRAM = '#!/bin/sh\nprintf "strings ok\\n${FF_BROKEN:-zmm ok}\\n" >"$1"\n'


class FakeTracer:
    """Runs the program itself, with or without a fault; counts how often."""

    def __init__(self, environment: dict[str, str], exit_code: int = 0) -> None:
        self.environment = environment
        self.exit_code = exit_code
        self.runs = 0

    def __call__(self, command: Sequence[str], path: Path, options: RecordOptions, tracer: Tracer) -> SimpleNamespace:
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
def test_differences_are_told(tracer: Tracer, monkeypatch: pytest.MonkeyPatch, fake: FakeTracer, word: str) -> None:
    monkeypatch.setattr(canary, "run_tracer", fake)
    for _ in range(2):  # a bad result is never remembered
        with pytest.raises(UnavailableError) as caught:
            canary.check_canary(tracer, lambda _line: None)
        assert word in caught.value.found
        assert caught.value.fix and caught.value.still_works
