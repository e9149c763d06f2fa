# SPDX-License-Identifier: MIT
"""Whether JSON that a file holds has the types that it should: the file may come from anybody."""

from __future__ import annotations

import types
from typing import Any, Literal, Union, get_args, get_origin

from flagfinder.shared.typed import get_type_hints, is_typeddict


def fits(value: Any, kind: Any) -> bool:
    """Whether the value is of the type, as far as it goes: fields may be missing."""
    if is_typeddict(kind):
        fields = get_type_hints(kind).items()
        return isinstance(value, dict) and all(
            fits(value[name], of) for name, of in fields if name in value
        )
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return value in arguments
    if origin in (Union, types.UnionType):
        return any(fits(value, choice) for choice in arguments)
    if origin in (list, dict):
        items = value.values() if isinstance(value, dict) else value
        return isinstance(value, origin) and all(fits(item, arguments[-1]) for item in items)
    # To Python True is a number, too.
    return isinstance(value, (int, float) if kind is float else kind) and isinstance(
        value, bool
    ) == (kind is bool)
