# SPDX-License-Identifier: MIT
"""A program that is not what `record` starts, but what that becomes by exec."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from harness import assert_consistent, diff, flagfinder, record

from .conftest import Pair


@pytest.fixture(scope="module")
def script(pair: Pair) -> Path:
    path = pair.program.with_name("start.sh")
    path.write_text(f'#!/bin/sh\nMODE=${{1:-spin}}\nexport MODE\nexec {pair.program} "$MODE"\n')
    path.chmod(0o755)
    return path


@pytest.fixture(params=["env", "script"])
def start(request: pytest.FixtureRequest, pair: Pair, script: Path) -> list[str | Path]:
    """The command to which the mode is to be added."""
    return ["env", "A=1", pair.program] if request.param == "env" else [script]


def assert_names_the_flag(answer: dict[str, Any]) -> None:
    assert answer["verdict"] == "data-flag", answer["reason"]
    assert answer["flags"][0]["symbol"] == "ready"


def test_the_program_behind_an_exec_counts(
    start: list[str | Path], pair: Pair, tmp_path: Path
) -> None:
    normal, spin = tmp_path / "normal.trace", tmp_path / "spin.trace"
    assert record(normal, [*start, "normal"]).exit_code == 0
    ended = record(spin, [*start, "spin"], "--stop-when-spinning", "1")
    assert (ended.exit_code, ended.ended_by_itself) == (0, True), ended.stderr
    for trace in (normal, spin):
        assert_consistent(trace)
    answer = diff(normal, spin)
    assert_names_the_flag(answer)
    assert not [note for note in answer["notes"] if "was started" in note]

    directly = diff(pair.normal, spin)
    assert_names_the_flag(directly)
    starter = "env" if "env" in start else "sh"
    notes = [note for note in directly["notes"] if "was started directly in the normal run" in note]
    assert len(notes) == 1 and starter in notes[0], directly["notes"]

    images = json.loads(flagfinder("trace", "info", "--json", spin).stdout)["processes"]
    assert len({image["pid"] for image in images}) == 1
    assert [image["image"] for image in images] == list(range(1, len(images) + 1))
    assert [image["replaced"] for image in images] == [True] * (len(images) - 1) + [False]
    assert images[-1]["path"] == str(pair.program)
    shown = flagfinder("trace", "info", spin).stdout
    assert f"image {len(images)}: {pair.program}" in shown
    assert "image 1, which called exec:" in shown
