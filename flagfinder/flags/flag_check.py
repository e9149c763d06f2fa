# SPDX-License-Identifier: MIT
"""Whether what a file says of a flag is as docs/formats says: it may come from anybody."""

from __future__ import annotations

import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from flagfinder.flags.fields import FlagFields
from flagfinder.flags.flags import parse_hex

_LARGEST_WORD = 2**31


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


def has_sound_numbers(flag: FlagFields) -> bool:
    """Whether texts that stand for numbers do, and none is beyond what a process has."""
    address, value = flag.get("address", {}), flag.get("value", {})
    texts = [
        flag.get("offset"),
        address.get("normal"),
        address.get("spin"),
        value.get("spin"),
        value.get("exit"),
    ]
    codes = [*flag.get("readers", []), *flag.get("reader_stack", [])]
    for writer in flag.get("writers", []):
        texts.append(writer.get("value"))
        codes += [*([writer["code"]] if "code" in writer else []), *writer.get("stack", [])]
    texts += [code.get("offset") for code in codes]
    try:
        sound = all(0 <= (parse_hex(text) or 0) < 2**64 for text in texts)
    except ValueError:
        return False
    return sound and 0 <= flag.get("size", 0) <= _LARGEST_WORD
