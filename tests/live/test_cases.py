# SPDX-License-Identifier: MIT
"""Real programs recorded in both modes and diffed; expect.json beside each holds the truth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import driver
import pytest
import truth
from harness import assert_consistent, diff

from flagfinder.flags.flags import Report

SPINNING = ["--stop-when-spinning", "2", "--then", "kill"]


def record_case(
    source: Path, expect: dict[str, Any], variant: str, work: Path
) -> tuple[Path, Path, str]:
    """Builds, records normal and spin; the two traces and what the spin run wrote to stderr."""
    command = truth.build(source, expect, variant, work)
    normal, spin = work / "normal.trace", work / "spin.trace"
    if expect.get("driver") == "haproxy":
        driver.haproxy(normal, source, work / "run-normal", False, [])
        _, error = driver.haproxy(spin, source, work / "run-spin", True, SPINNING)
        return normal, spin, error
    env = expect.get("environment", {})
    code, error = driver.fed(normal, command, [], work, expect["normal"], env)
    assert code == 0 or "kill_after" in expect["normal"], (
        f"the normal run ended with {code}: {error}"
    )
    # A program with a busy thread looks as if it were spinning from its start: its case says how to
    # stop.
    stop = expect["spin"].get("options", SPINNING)
    _, error = driver.fed(spin, command, stop, work, expect["spin"], env)
    return normal, spin, error


@pytest.mark.live
# test_python_words records the same wait of Python.
@pytest.mark.parametrize(
    ("source", "variant"), truth.all_cases(usual=-1, turn=0, of=4, long=["python_attribute"])
)
@pytest.mark.usefixtures("tracer")
def test_true_flag_is_first(source: Path, variant: str, tmp_path: Path) -> None:
    expect = json.loads((source / "expect.json").read_text())
    normal, spin, error = record_case(source, expect, variant, tmp_path)
    for trace in (normal, spin):
        assert_consistent(trace)
    result = diff(normal, spin)
    for trace in (normal, spin):
        trace.unlink()
    assert result["verdict"] in expect["verdict"].split("|"), result["reason"]
    if "waits_until" in expect:
        assert Report.from_json(json.dumps(result)).waits_until == expect["waits_until"], (
            result.get("python")
        )
    truth.assert_true_flag(result["flags"], expect["flag"], error, tmp_path)
    if "writer_module" in expect["flag"]:
        writers = [w for w in result["flags"][0]["writers"] if w["run"] == "normal"]
        named = [Path(writer["code"]["module"]).name for writer in writers]
        assert any(name.startswith(expect["flag"]["writer_module"]) for name in named), writers
