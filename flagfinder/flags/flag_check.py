# SPDX-License-Identifier: MIT
"""Whether what a file says of a flag is as docs/formats says: it may come from anybody."""

from __future__ import annotations

from flagfinder.flags.code import parse_hex
from flagfinder.flags.fields import FlagFields

_LARGEST_WORD = 2**31


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
