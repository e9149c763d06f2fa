# SPDX-License-Identifier: MIT
"""What the engine hands over for the timeline of a page. Imported for its types only."""

from __future__ import annotations

from flagfinder.shared.typed import TypedDict


class TimelineRowFields(TypedDict):
    """A thread; each of ``slices`` is kind, start (ns from the window's begin), ns, ns on a CPU,
    name and stack, these by their places in the timeline's lists. Kinds: 0 runs, 1 waits, 2 could
    run but had mostly no CPU, 3 several (the name is how many), 4 not recorded.
    """

    tid: int
    thread: str
    slices: list[list[int]]


class TimelineFields(TypedDict):
    """Each of ``arrows`` is from a row, to a row, when, kind and stack. ``left_out``: how many
    there are besides. ``stacks`` name their ``sites`` by place, innermost first.
    """

    rows: list[TimelineRowFields]
    arrows: list[list[int]]
    left_out: int
    kinds: list[str]
    names: list[str]
    stacks: list[list[int]]
    sites: list[str]
