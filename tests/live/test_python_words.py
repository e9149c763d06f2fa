"""`diff` on Python programs: of the interpreter's words, the one that holds what the program asks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from harness import announced_flags, assert_consistent, diff, record

WAITS = Path(__file__).parent / "programs" / "waits.py"


@pytest.mark.live
@pytest.mark.parametrize("kind", ["attribute", "number", "variable", "item", "length", "method"])
def test_the_word_that_python_asks_is_first(kind: str, tracer: None, tmp_path: Path) -> None:  # noqa: ARG001
    program = ["/usr/bin/python3", WAITS, kind]
    normal = record(tmp_path / "normal.trace", [*program, "normal"])
    spin = record(tmp_path / "spin.trace", [*program, "spin"], "--stop-when-spinning", "2", "--then", "kill")
    assert normal.exit_code == 0, normal.stderr
    for recording in (normal, spin):
        assert_consistent(recording.trace)
    result = diff(normal.trace, spin.trace)
    assert result["verdict"] == "data-flag", json.dumps(result["considered"])[:2000]
    flag = result["flags"][0]
    assert (flag["kind"], flag["size"]) == ("heap", 8), flag
    if kind == "length":
        assert (int(flag["address"]["spin"], 16), 8) == announced_flags(spin.stderr)[-1], flag
    elif kind == "number":
        # The slot: the object of a small number lies in the interpreter.
        assert int(flag["value"]["spin"], 16) != int(flag["value"]["exit"], 16), flag
        assert any(writer["run"] == "normal" for writer in flag["writers"]), flag
    else:
        assert flag["value"]["spin_symbol"] == "_Py_FalseStruct", flag
