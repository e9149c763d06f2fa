# SPDX-License-Identifier: MIT
"""Lines of the files of /proc."""

from __future__ import annotations

import os
from pathlib import Path


def proc_lines(path: str | os.PathLike[str]) -> list[str]:
    """Of a file that holds names: a name may hold every other end of a line. Raises OSError."""
    return Path(path).read_bytes().decode(errors="replace").split("\n")
