# SPDX-License-Identifier: MIT
"""A program that waits behind a gate."""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack

import pytest

from flagfinder.shared.gated import gated


@pytest.mark.parametrize("open_files", [0, 20])
def test_a_program_starts_when_it_is_released_however_many_files_are_open(open_files: int) -> None:
    with ExitStack() as files:
        for _ in range(open_files):
            files.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        with gated(["sh", "-c", "kill -PIPE $$; echo survives"], stdout=subprocess.PIPE) as program:
            assert program is not None
            assert program.process.poll() is None
            program.release()
            output, _ = program.process.communicate(timeout=20)
    assert (output, program.process.returncode) == (b"", -13)
