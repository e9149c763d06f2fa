# SPDX-License-Identifier: MIT
"""A program that reads words from its standard input and answers each with a line."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path


class AnsweringProgram:
    """Started in a session of its own; its first line is ``ready``."""

    def __init__(self, command: Sequence[str | Path]) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,
        )
        assert self._line() == "ready"
        self.pid = self.process.pid

    def answer_to(self, word: str) -> str:
        assert self.process.poll() is None, f"the program ended with {self.process.returncode}"
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        return self._line()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()
