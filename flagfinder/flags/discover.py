# SPDX-License-Identifier: MIT
"""The data flags of one healthy run.

The engine owns these types (``core/flags``); here they get Python types.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from flagfinder import _core
from flagfinder.flags.flags import Flag, Loop, ThreadName, flag_from_raw, loop_from_raw
from flagfinder.shared.build import build, check_schema
from flagfinder.shared.record import dataclass, field
from flagfinder.trace.trace import Trace

if TYPE_CHECKING:
    from flagfinder.flags.fields import DiscoveredFields, DiscoverFields


@dataclass(frozen=True)
class Discovered:
    """A word that threads of process ``pid`` polled until another thread wrote it.

    ``flag.value_exit`` is a value with which a wait ended, ``flag.writers`` the stores of others
    that could end one. ``waits`` counts stays in loops that ended where the word is tested,
    ``rounds`` their rounds. ``polled_by`` are the threads that polled, ``loop`` is where.
    """

    pid: int
    flag: Flag
    loop: Loop | None
    waits: int
    rounds: int
    polled_by: tuple[ThreadName, ...]

    @classmethod
    def from_raw(cls, raw: DiscoveredFields) -> Discovered:
        """Reads a flag of ``flagfinder.discover/1``."""
        threads = tuple(build(ThreadName, thread) for thread in raw["polled_by"])
        return build(
            cls,
            raw,
            flag=flag_from_raw(raw),
            loop=loop_from_raw(raw["loop"]),
            polled_by=threads,
        )


@dataclass(frozen=True)
class Discovery:
    """What ``flagfinder discover`` found; the flag that ended the most waits comes first.

    ``ways_out`` counts the ways out of repeated rounds that were seen. In ``unexplained`` of them
    the last round read another value, but no store of another thread was recorded. ``raw`` is the
    JSON object it was made from.
    """

    flags: tuple[Discovered, ...]
    ways_out: int
    unexplained: int
    notes: tuple[str, ...]
    raw: DiscoverFields = field(repr=False, compare=False)

    @classmethod
    def from_raw(cls, raw: DiscoverFields) -> Discovery:
        """Reads what ``--json`` prints. Raises ValueError on another schema."""
        check_schema(raw, "flagfinder.discover/1")
        flags = tuple(Discovered.from_raw(one) for one in raw["flags"])
        return build(cls, raw, flags=flags, raw=raw)


def discover(trace: Trace, progress: Callable[[str, int, int], None] | None = None) -> Discovery:
    """Lists the words of ``trace`` that a thread polled until another one wrote them.

    ``progress`` is called as by ``diff``. Raises BadTraceError when the trace is damaged where it
    is needed.
    """
    return Discovery.from_raw(json.loads(_core.discover(trace.core, progress)))
