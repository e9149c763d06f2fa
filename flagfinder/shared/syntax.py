# SPDX-License-Identifier: MIT
"""Sources of Python as trees, for threads that read several programs at a time."""

from __future__ import annotations

import ast
import threading
import warnings

# To 3.11 CPython counts the depth of a tree for all threads together, and fails where two build one
# at the same time.
_ONE_AT_A_TIME = threading.Lock()


def tree_of(source: str | bytes) -> ast.Module:
    """Raises what ``ast.parse`` raises."""
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Python thinks of it is the program's affair
        return ast.parse(source)


def expression_of(source: str) -> ast.expr:
    """The same of an expression."""
    with _ONE_AT_A_TIME:
        return ast.parse(source, mode="eval").body
