# SPDX-License-Identifier: MIT
"""Of which repeating Python threads the code tells enough, so that no words are tried out."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from flagfinder.live.interpreters import python
from flagfinder.live.interpreters.py_spy import SeenFrame, SeenStack

TID = 7
LONG_AGO = 1_000_000_000


@pytest.mark.parametrize(
    ("loop", "lines", "is_told"),
    [
        ("while not done:", [2], True),
        ("for n in range(10**9):", [2], True),
        ("while True:", [2, 3], True),
        ("while True:", [3], False),
        ("while work():", [2, 3], False),
    ],
    ids=["waits", "comes to an end", "endless", "at one place", "asks another"],
)
def test_a_loop_whose_end_the_code_tells(
    loop: str, lines: list[int], is_told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "program.py"
    script.write_text(f"{loop}\n    pass\n    n = 1\n")
    os.utime(script, (LONG_AGO, LONG_AGO))  # older than this process, whose source it is said to be
    at = itertools.cycle(lines)

    def look(_pid: int, timeout: float) -> dict[int, SeenStack]:
        assert timeout > 0
        frame = SeenFrame("<module>", str(script), next(at), {})
        return {TID: SeenStack((frame,), has_gil=True)}

    monkeypatch.setattr(python, "look", look)
    with python.PythonReader(os.getpid()) as reader:
        assert reader.is_told(TID) is is_told
        assert not reader.is_told(TID + 1), "it was not seen"
