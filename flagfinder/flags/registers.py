# SPDX-License-Identifier: MIT
"""Register values at the blocks before two runs part, from a trace with values.

The engine (``core/machine``) recomputes them from register checkpoints and loaded values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from flagfinder import _core
from flagfinder.diff.diff import Divergence
from flagfinder.flags.code import Code, parse_hex
from flagfinder.shared.record import dataclass
from flagfinder.trace.trace import Trace

if TYPE_CHECKING:
    from flagfinder.flags.fields import HistoryFields

REGISTERS = (
    *("rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp"),
    *("r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"),
)  # fmt: skip


@dataclass(frozen=True)
class BlockRegisters:
    """The general registers when control entered a block; a register that isn't known is None.

    ``index`` is the block's row in ``Thread.blocks()``. ``assembly`` has a line for each
    instruction, with the addresses and values it read and wrote where they are known.
    """

    index: int
    code: Code
    registers: Mapping[str, int | None]
    assembly: tuple[str, ...]


@dataclass(frozen=True)
class RegisterHistory:
    """The last blocks of thread ``tid`` up to the branch at which the runs part, oldest first."""

    tid: int
    blocks: tuple[BlockRegisters, ...]

    @property
    def is_known(self) -> bool:
        """Whether any register of any block is known: not so for a trace without values there."""
        return any(value is not None for block in self.blocks for value in block.registers.values())


def registers_before(
    spin: Trace, divergence: Divergence, blocks: int = 8
) -> RegisterHistory | None:
    """The registers at the last ``blocks`` blocks before the divergence; None when the runs don't
    part.

    Raises BadTraceError when the trace is damaged there.
    """
    text = _core.registers_before(spin.core, divergence.core, blocks)
    if text is None:
        return None
    raw: HistoryFields = json.loads(text)
    return RegisterHistory(
        raw["tid"],
        tuple(
            BlockRegisters(
                item["index"],
                Code.from_raw(item["code"]),
                {name: parse_hex(item["registers"][name]) for name in REGISTERS},
                tuple(item["assembly"]),
            )
            for item in raw["blocks"]
        ),
    )
