# SPDX-License-Identifier: MIT
"""Files of flagfinder's that are written whole, or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from flagfinder.shared.private_file import whole_private, write_private


def test_a_file_that_can_not_be_written_to_its_end_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    with pytest.raises(OSError, match="No space"), whole_private(path) as file:
        file.write(b"a part")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert not path.exists()
    write_private(path, b"all")
    assert path.read_bytes() == b"all"


def test_a_fifo_that_can_not_be_written_stays(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(KeyboardInterrupt), whole_private(fifo):
        raise KeyboardInterrupt
    assert fifo.is_fifo()
