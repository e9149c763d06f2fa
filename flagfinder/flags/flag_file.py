# SPDX-License-Identifier: MIT
"""``FILE#RANK``: a flag of a file that ``diff --json``, ``spin --json`` or ``core --json`` printed.

The file may come from anybody: what is not as docs/formats says is refused before it is used.
Fields that are missing are left to the reader, as files of older releases have fewer.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flagfinder.flags.fields import FlagFields, ThreadNameFields
from flagfinder.flags.flag_check import has_sound_numbers
from flagfinder.flags.flags import Flag, flag_from_raw
from flagfinder.shared.errors import UsageError
from flagfinder.shared.fits import fits
from flagfinder.shared.record import dataclass


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
        """What messages call the flag."""
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
    if schema not in ("flagfinder.diff/1", "flagfinder.spin/1", "flagfinder.discover/1"):
        raise _unreadable(spec, f"its schema is {reprlib.repr(schema)}")
    candidates = list(_candidates(raw))
    for thread, flag in candidates:
        if flag.get("rank") != rank:
            continue
        pid, started = raw.get("pid"), raw.get("started")
        if not (
            fits(thread, ThreadNameFields)
            and fits(flag, FlagFields)
            and fits([pid, started], list[int | None])
        ):
            raise _unreadable(spec, f"its flag of rank {rank} is not as docs/formats says")
        if not has_sound_numbers(flag):
            raise _unreadable(spec, f"its flag of rank {rank} has numbers that no flag can have")
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
    elif raw["schema"] == "flagfinder.discover/1":
        lists = [(_first(flag.get("polled_by")), [flag]) for flag in _objects(raw.get("flags"))]
    else:
        lists = [(thread, thread.get("flags")) for thread in _objects(threads)]
    for thread, flags in lists:
        yield from ((thread, flag) for flag in _objects(flags))


def _objects(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _first(value: object) -> dict[str, Any]:
    return next(iter(_objects(value)), {})


def _unreadable(spec: str, found: str) -> UsageError:
    return UsageError(
        f"--flag {spec} can't be read",
        found,
        "Name a file that `flagfinder diff`, `spin` or `discover` printed with --json, as in "
        "--flag flags.json#1.",
    )
