# SPDX-License-Identifier: MIT
"""The schemas in docs/formats: what the types give, and strict enough to find what is wrong."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
import schemas

from flagfinder.interpreters.python import (
    PythonCode,
    PythonExit,
    PythonFrame,
    PythonLoop,
    PythonValue,
)

ERROR = {
    "schema": "flagfinder.error/1",
    "error": {"what": "it failed", "found": "", "fix": "", "still_works": ""},
    "exit_code": 2,
}


def test_the_files_are_what_the_types_give() -> None:
    assert not list(schemas.stale()), "run `python3 tests/schemas.py`"


@pytest.mark.parametrize("name", schemas.REPORTS)
def test_it_is_a_schema(name: str) -> None:
    written = json.loads(schemas.path_of(name).read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(written)
    assert written["title"] == f"flagfinder.{name}/1"


def test_what_is_as_described_passes() -> None:
    schemas.validate(ERROR)


WRONG: dict[str, dict[str, Any]] = {
    "a-key-less": {key: ERROR[key] for key in ("schema", "error")},
    "a-key-more": {**ERROR, "hint": ""},
    "another-type": {**ERROR, "exit_code": "2"},
    "inside": {**ERROR, "error": {"what": "it failed", "found": "", "fix": ""}},
}


@pytest.mark.parametrize("fields", WRONG.values(), ids=WRONG)
def test_what_is_not_fails(fields: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        schemas.validate(fields)


def test_a_closed_set_is_closed() -> None:
    fields = {"schema": "flagfinder.report/1", "class": None, "file": None}
    schemas.validate(fields)
    with pytest.raises(jsonschema.ValidationError):
        schemas.validate({**fields, "class": "LongSleep"})


def test_python_code_is_as_the_schema_of_spin_says() -> None:
    """It is made in Python, from other types."""
    loop = PythonLoop(
        function="wait",
        file="app.py",
        line=1,
        end_line=2,
        lines=(1,),
        kind="waits",
        source=("while not done:",),
        exits=(PythonExit(1, "test", "done", {"done": "job.done"}, True),),
        values=(PythonValue("done", "False", "0x10"),),
        confidence=0.8,
    )
    code = PythonCode(
        looks=12, seen=12, gil=0, frames=(PythonFrame("wait", "app.py", 1),), loop=loop, note=None
    )
    raw = json.loads(json.dumps(code.to_raw()))
    assert PythonCode.from_raw(raw) == code
    defs = schemas.schema_of("spin")["$defs"]
    jsonschema.Draft202012Validator({"$ref": "#/$defs/Python", "$defs": defs}).validate(raw)
