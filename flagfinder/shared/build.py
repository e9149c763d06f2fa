# SPDX-License-Identifier: MIT
"""Objects of the Python API from those of the engine's JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from flagfinder.shared.record import fields

T = TypeVar("T")


def check_schema(raw: Mapping[str, Any], schema: str) -> None:
    """Raises ValueError if ``raw`` is of another one."""
    if raw.get("schema") != schema:
        raise ValueError(f"expected schema {schema}, found {raw.get('schema')!r}")


def build(kind: type[T], raw: Mapping[str, Any], /, **given: object) -> T:
    """A dataclass of the fields of ``raw`` that have its fields' names, but for those ``given``.

    Lists become tuples. What may be None or is a tuple may be missing, as older files have fewer
    fields. Raises KeyError for anything else.
    """
    values = dict(given)
    for one in fields(kind):  # type: ignore[arg-type]
        if one.name in values:
            continue
        if str(one.type).startswith("tuple"):
            values[one.name] = tuple(raw.get(one.name) or ())
        else:
            is_optional = "None" in str(one.type)
            values[one.name] = raw.get(one.name) if is_optional else raw[one.name]
    return kind(**values)
