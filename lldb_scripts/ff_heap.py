# SPDX-License-Identifier: MIT
"""What a call to the allocator that was stepped over tells: words as
``core/export/src/stepping.rs`` takes them.
"""

from __future__ import annotations

import lldb

ALLOCATED, FREED = 3, 4
MASK = (1 << 64) - 1
# enum ff_alloc_kind; which argument is the size.
ALLOCATORS = {
    "malloc": (1, "rdi"), "_Znwm": (1, "rdi"), "_Znam": (1, "rdi"), "calloc": (2, ""),
    "realloc": (3, "rsi"), "aligned_alloc": (4, "rsi"), "memalign": (4, "rsi"),
}  # fmt: skip
LIBERATORS = ("free", "_ZdlPv", "_ZdlPvm", "_ZdaPv", "_ZdaPvm")


def arguments(name: str, frame: lldb.SBFrame) -> tuple[str, int, int] | None:
    """At the call: the function's name and what it was given; None: it is no allocator's."""
    if name not in ALLOCATORS and name not in LIBERATORS:
        return None
    first, second = (
        frame.FindRegister(register).GetValueAsUnsigned() for register in ("rdi", "rsi")
    )
    return name, first, second


def words(taken: tuple[str, int, int], caller: int, frame: lldb.SBFrame) -> tuple[int, ...]:
    """Behind the allocating call, which returned to ``caller``."""
    name, first, second = taken
    if name in LIBERATORS:
        return (FREED, first, caller) if first else ()
    kind, which = ALLOCATORS[name]
    size = first * second if not which else first if which == "rdi" else second
    address = frame.FindRegister("rax").GetValueAsUnsigned()
    if not address:
        return ()
    return ALLOCATED, address, size & MASK, caller, first if name == "realloc" else 0, kind
