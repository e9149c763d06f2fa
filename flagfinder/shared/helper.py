# SPDX-License-Identifier: MIT
"""Programs that we start to help us: each ends with us, however we end, and may be given a limit
for its memory.

Not for those that have to outlive us to put things right: a debugger that would leave its
breakpoints behind, a program that the user asked for.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable

from flagfinder import _core


def ends_with_us(memory: int | None = None) -> Callable[[], None]:
    """The ``preexec_fn`` of such a program; ``memory`` in bytes of address space.

    The kernel kills the program when the thread that started it ends: so that thread has to wait
    for it.
    """
    parent = os.getpid()

    def prepare() -> None:
        _core.end_with_parent()
        if os.getppid() != parent:  # we ended in between
            os._exit(1)
        if memory is not None:
            _, hard = resource.getrlimit(resource.RLIMIT_AS)
            most = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
            resource.setrlimit(resource.RLIMIT_AS, (most, most))

    return prepare
