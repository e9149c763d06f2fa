# SPDX-License-Identifier: MIT
"""What the events of a watched good run tell of a word."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from flagfinder.chain.good_run import SeenWord, Wrote

if TYPE_CHECKING:
    from flagfinder.flags.fields import CodeFields


def wrote(tid: int, value: int | None, first: int, module: str | None = "app") -> Wrote:
    code = cast("CodeFields", {"module": module, "offset": hex(0x1000 + first), "symbol": None})
    return Wrote(tid, "writer", code, [], value, first, first)


def test_the_hook_tells_where_an_instruction_stands_that_runs_elsewhere() -> None:
    elsewhere, hooked = wrote(7, 1, 20, None), wrote(7, 1, 19)
    word = SeenWord(
        0x5000,
        writes={(1,): elsewhere, (2,): wrote(8, 0, 10)},
        early={(3,): hooked, (4,): wrote(9, 1, 1)},
    )
    first, second = word.written()
    assert (first.tid, first.code["module"]) == (8, "app")
    assert (second.code, second.first) == (hooked.code, 20)


def test_what_only_hooks_saw_counts_where_nothing_was_watched() -> None:
    assert (
        SeenWord(0x5000, early={(1,): wrote(7, 1, 5), (2,): wrote(7, 0, 3)}).written()[0].value == 0
    )
    assert SeenWord(0x5000).written() == []


def test_another_value_s_hook_tells_nothing() -> None:
    word = SeenWord(0x5000, writes={(1,): wrote(7, 2, 20, None)}, early={(2,): wrote(7, 1, 19)})
    assert word.written()[0].code["module"] is None
