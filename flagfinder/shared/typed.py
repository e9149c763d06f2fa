# SPDX-License-Identifier: MIT
"""Names of ``typing`` that Python 3.10 does not have yet, and those that must know of them."""

import sys

if sys.version_info >= (3, 11):
    from typing import NotRequired, Self, TypedDict, get_type_hints, is_typeddict
else:
    from typing_extensions import NotRequired, Self, TypedDict, get_type_hints, is_typeddict

__all__ = ["NotRequired", "Self", "TypedDict", "get_type_hints", "is_typeddict"]
