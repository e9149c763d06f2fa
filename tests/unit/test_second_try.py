# SPDX-License-Identifier: MIT
"""A second try of a test looks at something else than its first try did."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import harness
import pytest

TESTS = """
import itertools
import pytest
from harness import LastMade

numbers = itertools.count()

@pytest.fixture(scope="module")
def recorded():
    return LastMade()

@pytest.fixture
def number(request, recorded):
    return recorded.get(request, lambda: next(numbers))

cases = pytest.mark.parametrize(("case", "first"), [("a", 0), ("b", 2)], scope="module")

@cases
def test_before(case, first, number):
    assert number == first

@cases
@pytest.mark.flaky(reruns=1)
def test_wants_another(case, first, number):
    assert number == first + 1

@cases
def test_after(case, first, number):
    assert number == first + 1
"""


def test_recordings_are_shared_by_tests_and_made_anew_for_a_second_try(tmp_path: Path) -> None:
    (tmp_path / "test_numbers.py").write_text(TESTS)
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "pytest",
            "-q",
            "-c",
            "/dev/null",
            "--rootdir",
            tmp_path,
            tmp_path,
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "6 passed, 2 rerun" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("part", "error"), [(0.1, AssertionError), (0.9, harness.MachineTooBusyError)]
)
def test_a_missing_answer_is_the_machines_fault_only_if_it_is_busy(
    part: float, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "waiting_for_a_cpu", lambda: part)
    harness.assert_found(subprocess.CompletedProcess([], 0, "", ""))
    with pytest.raises(error):
        harness.assert_found(subprocess.CompletedProcess([], 1, "", ""))
    with pytest.raises(AssertionError):
        harness.assert_found(subprocess.CompletedProcess([], 69, "", ""))
