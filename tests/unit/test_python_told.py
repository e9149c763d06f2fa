# SPDX-License-Identifier: MIT
"""What the code of a repeating Python thread tells of its loop."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from flagfinder.interpreters import python
from flagfinder.interpreters.py_spy import SeenFrame, SeenStack

TID = 7
LONG_AGO = 1_000_000_000


def seen_in(source: str, lines: list[int], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look finds the thread in that program, at one of the lines in turn."""
    script = folder / "program.py"
    script.write_text(source)
    os.utime(script, (LONG_AGO, LONG_AGO))  # older than this process, whose source it is said to be
    at = itertools.cycle(lines)

    def look(_pid: int, timeout: float) -> dict[int, SeenStack]:
        assert timeout > 0
        frame = SeenFrame("<module>", str(script), next(at), {})
        return {TID: SeenStack((frame,), has_gil=True)}

    monkeypatch.setattr(python, "look", look)


@pytest.mark.parametrize(
    ("loop", "lines", "told"),
    [
        ("while not done:", [2], "known"),
        ("for n in range(10**9):", [2], "ends"),
        ("while True:", [2, 3], "known"),
        ("while True:", [3], None),
        ("while work():", [2, 3], None),
    ],
    ids=["waits", "comes to an end", "endless", "at one place", "asks another"],
)
def test_a_loop_whose_end_the_code_tells(
    loop: str,
    lines: list[int],
    told: python.Told | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen_in(f"{loop}\n    pass\n    n = 1\n", lines, tmp_path, monkeypatch)
    with python.PythonReader(os.getpid()) as reader:
        assert reader.told(TID) == told
        assert reader.told(TID + 1) is None, "it was not seen"


@pytest.mark.parametrize(
    ("asks", "lines", "likely"),
    [
        (
            "try:\n        lock()\n        break\n    except OSError:\n        sleep(1)",
            [6, 6, 3],
            True,
        ),
        (
            "try:\n        lock()\n        break\n    except OSError:\n        sleep(1)",
            [3, 3, 6],
            False,
        ),
        ("if lock(): break\n    sleep(1)", [3, 3, 3], True),
        ("work()\n    if lock(): break\n    sleep(1)", [4, 4, 4], False),
    ],
    ids=["mostly pauses", "mostly asks", "asks in a test", "works as well"],
)
def test_a_loop_that_pauses_between_questions_that_may_do_work(
    asks: str, lines: list[int], likely: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen_in(f"while True:\n    {asks}\n", lines, tmp_path, monkeypatch)
    loop = python.read_python(os.getpid(), [TID])[TID].loop
    assert loop is not None and loop.is_likely == likely and not loop.is_answer
    with python.PythonReader(os.getpid()) as reader:
        assert reader.told(TID) is None, "the engine is to look as well"
