# SPDX-License-Identifier: MIT
"""flagfinder names the memory location that a spinning thread waits for, from two recorded runs.

    import flagfinder
    flagfinder.record(["./app"], "normal.trace")
    spin = flagfinder.open_trace("spin.trace")
    normal = flagfinder.open_trace("normal.trace")
    report = flagfinder.find_flags(spin, [normal], flagfinder.diff(normal, spin))
    print(report.flag)

``docs/python.md`` shows more.
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

import flagfinder.shared.start  # noqa: F401  # before all others

if TYPE_CHECKING:
    from flagfinder.api import *  # noqa: F403


class _Package(ModuleType):
    """Shows the names of ``flagfinder.api``, which is imported when the first of them is asked for:
    a command needs few of them, and importing all takes longer than a short command.

    ``diff`` and ``record`` are folders of modules as well: the functions of these names win.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in ("diff", "record") and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> object:
        if name.startswith("_") and name != "__all__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module("flagfinder.api"), name)

    def __dir__(self) -> list[str]:
        public = importlib.import_module("flagfinder.api").__all__
        return sorted({*super().__dir__(), *public})


sys.modules[__name__].__class__ = _Package
