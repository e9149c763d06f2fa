# SPDX-License-Identifier: MIT
"""Aligning two runs: where the run that spins leaves what the good run does, for good.

The engine owns the type (``core/diff``); its full content is ``Divergence.raw``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from flagfinder import _core
from flagfinder.trace.trace import Trace

if TYPE_CHECKING:
    from flagfinder.diff.fields import DivergenceFields


class Divergence:
    """How two runs relate: paired threads, the frame and branch in which they part.

    ``core`` is the engine's handle, for ``find_flags``.
    """

    def __init__(self, core: _core.Divergence) -> None:
        self.core = core

    @cached_property
    def raw(self) -> DivergenceFields:
        """Everything the alignment found, as the engine serialises it."""
        content: DivergenceFields = json.loads(self.core.to_json())
        return content


def diff(
    normal: Trace,
    spin: Trace,
    extra_normals: Sequence[Trace] = (),
    progress: Callable[[str, int, int], None] | None = None,
    thread: int | None = None,
) -> Divergence:
    """Aligns two recordings by structure. ``extra_normals`` subtract what also differs between good
    runs.

    ``thread`` is the id of the spin run's thread to look at; None: all that spin.
    ``progress`` is called with the stage, the blocks scanned in it and about how many there are (0:
    not known). Raises BadTraceError when a trace is damaged where it is needed.
    """
    return Divergence(
        _core.diff([trace.core for trace in (normal, *extra_normals)], spin.core, thread, progress)
    )
