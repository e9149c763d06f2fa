# SPDX-License-Identifier: MIT
"""`--flag FILE#RANK`: the file may come from anybody."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import assert_four_parts

from flagfinder.cli.command import main
from flagfinder.flags.flag_file import read_flag
from flagfinder.shared.errors import UsageError

CODE: dict[str, Any] = {
    "module": "app",
    "offset": "0x10",
    "symbol": None,
    "source": None,
    "near": None,
    "inlined": [],
    "build_id": None,
}
WRITER = {
    "run": "normal",
    "tid": 7,
    "thread": "app",
    "code": CODE,
    "value": "0x1",
    "stack": [CODE],
    "count": 1,
}
FLAG: dict[str, Any] = {
    "rank": 1,
    "confidence": 0.5,
    "standing": "by-code",
    "kind": "global",
    "name": "ready",
    "module": "app",
    "offset": "0x40",
    "symbol": "ready",
    "field": None,
    "address": {"normal": None, "spin": "0x5000"},
    "size": 4,
    "value": {"spin": "0x0", "exit": "0x1", "spin_symbol": None, "exit_symbol": None},
    "exit_when": "value != 0x0",
    "access_path": None,
    "readers": [CODE],
    "reader_stack": [CODE],
    "writers": [WRITER],
    "evidence": ["read each time"],
    "proof": {
        "outcome": "leaves",
        "instructions": 5,
        "reached": CODE,
        "with": {"0x5000": "0x1"},
        "why": "",
    },
}
SPIN: dict[str, Any] = {
    "schema": "flagfinder.spin/1",
    "pid": 7,
    "started": 99,
    "threads": [{"tid": 8, "name": "app", "flags": [FLAG]}],
}


def written(folder: Path, report: object) -> str:
    path = folder / "x.json"
    path.write_text(report if isinstance(report, str) else json.dumps(report))
    return f"{path}#1"


def test_a_report_is_read(tmp_path: Path) -> None:
    found = read_flag(written(tmp_path, SPIN))
    assert (found.pid, found.started, found.tid, found.thread) == (7, 99, 8, "app")
    flag = found.flag()
    assert (flag.spin_address, flag.value_exit, flag.offset, flag.writers[0].tid) == (
        0x5000,
        1,
        0x40,
        7,
    )
    spinning = {"tid": 8, "name": "app"}
    diff = {
        "schema": "flagfinder.diff/1",
        "threads": {"normal": None, "spin": spinning},
        "flags": [FLAG],
    }
    found = read_flag(written(tmp_path, diff).removesuffix("#1"))
    assert (found.pid, found.tid, found.name) == (None, 8, "ready")


def test_fields_that_came_later_may_be_missing(tmp_path: Path) -> None:
    flag = {
        name: value
        for name, value in FLAG.items()
        if name not in ("proof", "reader_stack", "field")
    }
    report = {**SPIN, "threads": [{"tid": 8, "name": "app", "flags": [flag]}]}
    assert read_flag(written(tmp_path, report)).flag().name == "ready"


NONE_OF_OURS = {
    "no JSON": "{",
    "deep": "[" * 100_000,
    "list": [],
    "no schema": {"flags": 3},
    "another schema": {"schema": ["x"]},
    "a number for flags": {"schema": "flagfinder.diff/1", "flags": 3},
    "a number for a thread": {"schema": "flagfinder.spin/1", "threads": [1]},
    "a flag of nothing but its rank": {
        "schema": "flagfinder.diff/1",
        "threads": [],
        "flags": [{"rank": 1}],
    },
    "a thread without a number": {**SPIN, "threads": [{"tid": "x", "flags": [FLAG]}]},
    "a process without a number": {**SPIN, "pid": [7]},
}


@pytest.mark.parametrize("report", NONE_OF_OURS.values(), ids=NONE_OF_OURS)
def test_what_is_no_report_is_refused(
    report: object, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    spec = written(tmp_path, report)
    assert main(["poke", "1", "--flag", spec, "--yes"]) == 2
    assert_four_parts(capfd.readouterr().err, "")
    assert main(["watch", "1", "--flag", spec, "--duration", "0.1"]) in (2, 77)
    said = capfd.readouterr().err
    assert_four_parts(said, "")
    assert "failed itself" not in said


def changed(value: Any, wrong: object) -> Iterator[Any]:
    """Copies of it, in each of which one part is ``wrong``."""
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    for place, part in list(parts):
        copied = copy.deepcopy(value)
        copied[place] = wrong
        yield copied
        if isinstance(part, dict | list):
            for inner in changed(part, wrong):
                copied = copy.deepcopy(value)
                copied[place] = inner
                yield copied


@pytest.mark.parametrize("wrong", [[[1]], True], ids=["list", "true"])
def test_no_part_of_a_flag_may_be_of_another_type(wrong: object, tmp_path: Path) -> None:
    for flag in changed(FLAG, wrong):
        report = {**SPIN, "threads": [{"tid": 8, "name": "app", "flags": [flag]}]}
        with pytest.raises(UsageError):
            read_flag(written(tmp_path, report))


@pytest.mark.parametrize(
    "part",
    [
        {"offset": "zz"},
        {"offset": "-0x8"},
        {"offset": hex(2**64)},
        {"size": -1},
        {"size": 2**64},
        {"address": {"normal": None, "spin": "here"}},
        {"value": {"spin": "0x0", "exit": "-0x1"}},
        {"readers": [{**CODE, "offset": "x"}]},
        {"writers": [{**WRITER, "code": {**CODE, "offset": "x"}}]},
    ],
    ids=str,
)
def test_texts_that_stand_for_numbers_are_numbers(part: dict[str, Any], tmp_path: Path) -> None:
    report = {**SPIN, "threads": [{"tid": 8, "name": "app", "flags": [{**FLAG, **part}]}]}
    with pytest.raises(UsageError, match="can't be read"):
        read_flag(written(tmp_path, report))
