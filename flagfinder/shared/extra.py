# SPDX-License-Identifier: MIT
"""Modules that come with an extra of the package: few commands need them, and they are large."""

from __future__ import annotations

import importlib
from types import ModuleType

from flagfinder.shared.errors import UnavailableError


def need_numpy() -> None:
    """To be called before the engine is asked for arrays, which it makes of numpy's."""
    need("numpy", "arrays", "There are no arrays without numpy", "All else works without it.")


def need(module: str, extra: str, what: str, otherwise: str) -> ModuleType:
    """The module. Raises UnavailableError where it is not installed: ``what`` can't be done then,
    ``otherwise`` says what works.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UnavailableError(
            what, str(error), f"Install it: pip install 'flagfinder[{extra}]'.", otherwise
        ) from None
