# SPDX-License-Identifier: MIT
"""Registers at blocks, as text and as JSON fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from flagfinder.flags.registers import BlockRegisters, RegisterHistory
from flagfinder.report.code import code_text
from flagfinder.report.terminal import Terminal

if TYPE_CHECKING:
    from flagfinder.flags.fields import BlockRegistersFields, RegistersFields

_COLUMNS = 4


def history_fields(history: RegisterHistory) -> RegistersFields:
    """What ``registers --json`` prints; numbers as hex strings, unknown ones null."""
    return {"tid": history.tid, "blocks": [_block_fields(block) for block in history.blocks]}


def show_history(terminal: Terminal, history: RegisterHistory) -> None:
    """Each block: where it is, its registers at entry, its instructions."""
    terminal.result(
        Text(
            f"thread {history.tid}, the last {len(history.blocks)} blocks before the runs part",
            "bold",
        )
    )
    previous: dict[str, int | None] = {}
    for block in history.blocks:
        terminal.result(Text(f"block {block.index}  ", "bold").append_text(code_text(block.code)))
        names = list(block.registers)
        for start in range(0, len(names), _COLUMNS):
            row = Text("  ")
            for name in names[start : start + _COLUMNS]:
                value = block.registers[name]
                changed = name in previous and previous[name] != value
                text = "?" if value is None else f"{value:x}"
                row.append(f"{name:>4} ").append(f"{text:<18}", "bold" if changed else "default")
            terminal.result(row)
        for line in block.assembly:
            terminal.result(Text(f"      {line}", "dim"))
        previous = dict(block.registers)


def _block_fields(block: BlockRegisters) -> BlockRegistersFields:
    return {
        "index": block.index,
        "code": {
            "module": block.code.module,
            "offset": None if block.code.offset is None else f"{block.code.offset:#x}",
            "symbol": block.code.symbol,
            "source": block.code.source,
        },
        "registers": {
            name: None if value is None else f"{value:#x}"
            for name, value in block.registers.items()
        },
        "assembly": list(block.assembly),
    }
