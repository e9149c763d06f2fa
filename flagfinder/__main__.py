# SPDX-License-Identifier: MIT
"""``python -m flagfinder`` is the ``flagfinder`` command."""

from flagfinder.cli import entry

entry()
