# SPDX-License-Identifier: MIT
"""Files that hold memory, arguments or names of programs: their owner's only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from flagfinder import _core


def create_private(path: Path) -> BinaryIO:
    """Creates a file to write, or empties it, with mode 0600; under sudo a new one belongs to the
    calling user.
    """
    return os.fdopen(_core.create_private(os.fspath(path)), "wb")


@contextmanager
def whole_private(path: Path) -> Iterator[BinaryIO]:
    """Such a file while it is written. If that fails it is removed: a part would be taken for the
    whole.
    """
    file = create_private(path)
    try:
        with file:
            yield file
    except BaseException:
        if path.is_file():
            path.unlink()
        raise


def write_private(path: Path, content: bytes) -> None:
    """Writes such a file, or none."""
    with whole_private(path) as file:
        file.write(content)
