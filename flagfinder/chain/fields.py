# SPDX-License-Identifier: MIT
"""What ``doctor --json`` prints. Imported for its types only."""

from __future__ import annotations

from flagfinder.shared.fields import CheckFields
from flagfinder.shared.typed import TypedDict


class DoctorFields(TypedDict):
    """``works``: nothing that a verb needs is known not to work."""

    works: bool
    checks: list[CheckFields]
