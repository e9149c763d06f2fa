# SPDX-License-Identifier: MIT
"""`diff` on Python programs: of the interpreter's words, the one that holds what the program
asks.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from harness import announced_flags, assert_consistent, diff, need_python_3_11, record
from sizes import in_turn

from flagfinder.flags.flags import Report

PYTHON = "/usr/bin/python3"
WAITS = Path(__file__).parent / "programs" / "waits.py"


KINDS = {
    "attribute": "job.done",
    "number": "job.number >= 3",
    "item": "state['done']",
    "length": "len(results) >= 1",
    "variable": "done",
    "method": "event.is_set()",
    "length_beside_ctypes": "len(results) >= 1",
}


@pytest.mark.live
@pytest.mark.parametrize("kind", in_turn(list(KINDS), of=7))
@pytest.mark.usefixtures("tracer")
def test_the_word_that_python_asks_is_first(kind: str, tmp_path: Path) -> None:
    need_python_3_11(PYTHON)
    program = [PYTHON, WAITS, kind]
    normal = record(tmp_path / "normal.trace", [*program, "normal"])
    spin = record(
        tmp_path / "spin.trace", [*program, "spin"], "--stop-when-spinning", "2", "--then", "kill"
    )
    assert normal.exit_code == 0, normal.stderr
    for recording in (normal, spin):
        assert_consistent(recording.trace)
    result = diff(normal.trace, spin.trace)
    assert Report.from_json(json.dumps(result)).waits_until == KINDS[kind], result.get("python")
    assert result["verdict"] == "data-flag", json.dumps(result["considered"])[:2000]
    flag = result["flags"][0]
    named = [(f["rank"], f["name"], f["address"]["spin"], f["confidence"]) for f in result["flags"]]
    assert (int(flag["address"]["spin"], 16), flag["size"]) == announced_flags(spin.stderr)[-1], (
        named
    )
    assert flag["kind"] == "heap", named
    if kind.startswith(("length", "number")):
        assert int(flag["value"]["spin"], 16) != int(flag["value"]["exit"], 16), flag
        if kind == "number":
            assert any(writer["run"] == "normal" for writer in flag["writers"]), flag
    else:
        assert flag["value"]["spin_symbol"] == "_Py_FalseStruct", flag
