# SPDX-License-Identifier: MIT
"""``FILE#RANK``: a flag of a file that ``diff --json``, ``spin --json`` or ``core --json`` printed.

The file may come from anybody: what is not as docs/formats says is refused before it is used.
Fields that are missing are left to the reader, as files of older releases have fewer.
"""

from __future__ import annotations

import json
import reprlib
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from flagfinder.flags.fields import FlagFields, ThreadNameFields
from flagfinder.flags.flags import Flag, flag_from_raw, parse_hex
from flagfinder.shared.errors import UsageError

_LARGEST_WORD = 2**31


@dataclass(frozen=True)
class FoundFlag:
    """A flag from a file. ``pid`` and ``tid`` are those of the process and thread that polled it,
    as far as known; ``started`` tells that process from a later one of its number.
    """

    spec: str
    raw: FlagFields
    pid: int | None
    started: int | None
    tid: int | None
    thread: str | None

    @property
    def name(self) -> str:
        """For people."""
        return str(self.raw.get("name"))

    def flag(self) -> Flag:
        """The whole flag. Raises UsageError when a field of it is missing."""
        try:
            return flag_from_raw(self.raw)
        except KeyError as missing:
            raise _unreadable(self.spec, f"the flag has no {missing}") from missing


def read_flag(spec: str) -> FoundFlag:
    """The flag of ``FILE#RANK``; without ``#RANK`` the first. Raises UsageError when there is
    none.
    """
    path, mark, rank_text = spec.rpartition("#")
    if not mark:
        path, rank_text = spec, "1"
    try:
        rank = int(rank_text)
        raw = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _unreadable(spec, str(error)) from error
    schema = raw.get("schema") if isinstance(raw, dict) else None
    if schema not in ("flagfinder.diff/1", "flagfinder.spin/1"):
        raise _unreadable(spec, f"its schema is {reprlib.repr(schema)}")
    candidates = list(_candidates(raw))
    for thread, flag in candidates:
        if flag.get("rank") != rank:
            continue
        pid, started = raw.get("pid"), raw.get("started")
        if not (
            _fits(thread, ThreadNameFields) and _fits(flag, FlagFields) and _fits([pid, started], list[int | None])
        ):
            raise _unreadable(spec, f"its flag of rank {rank} is not as docs/formats says")
        if not _has_sound_numbers(flag):
            raise _unreadable(spec, f"its flag of rank {rank} has numbers that none has")
        return FoundFlag(spec, flag, pid, started, thread.get("tid"), thread.get("name"))
    raise UsageError(
        f"{path} has no flag of rank {rank}",
        f"it has {len(candidates)} flags",
        f"Write --flag {path}#1 for the first; `jq '.flags[].name' {path}` lists them.",
    )


def _candidates(raw: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Any]]:
    """Each flag and the thread that polls it; only that both are objects is known of them."""
    threads = raw.get("threads")
    if raw["schema"] == "flagfinder.diff/1":
        spinning = threads.get("spin") if isinstance(threads, dict) else None
        lists = [(spinning if isinstance(spinning, dict) else {}, raw.get("flags"))]
    else:
        lists = [(t, t.get("flags")) for t in _list(threads) if isinstance(t, dict)]
    for thread, flags in lists:
        yield from ((thread, flag) for flag in _list(flags) if isinstance(flag, dict))


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _fits(value: Any, kind: Any) -> bool:
    """Whether the value is of the type, as far as it goes: fields may be missing."""
    if is_typeddict(kind):
        fields = get_type_hints(kind).items()
        return isinstance(value, dict) and all(_fits(value[name], of) for name, of in fields if name in value)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return value in arguments
    if origin in (Union, types.UnionType):
        return any(_fits(value, choice) for choice in arguments)
    if origin in (list, dict):
        items = value.values() if isinstance(value, dict) else value
        return isinstance(value, origin) and all(_fits(item, arguments[-1]) for item in items)
    # To Python True is a number, too.
    return isinstance(value, (int, float) if kind is float else kind) and isinstance(value, bool) == (kind is bool)


def _has_sound_numbers(flag: FlagFields) -> bool:
    """Whether texts that stand for numbers do, and none is beyond what a process has."""
    address, value = flag.get("address", {}), flag.get("value", {})
    texts = [flag.get("offset"), address.get("normal"), address.get("spin"), value.get("spin"), value.get("exit")]
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


def _unreadable(spec: str, found: str) -> UsageError:
    return UsageError(
        f"--flag {spec} can't be read",
        found,
        "Name a file that `flagfinder diff --json` or `flagfinder spin --json` printed, as in --flag flags.json#1.",
    )
