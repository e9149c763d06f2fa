# SPDX-License-Identifier: MIT
"""How often a test may fail that is known to fail now and then."""

from __future__ import annotations

import math
from types import SimpleNamespace

import expectations
import pytest
from expectations import FLAKY, KNOWN, Flaky


@pytest.mark.parametrize(
    ("measured", "tries"), [("1/150", 1), ("1/15", 2), ("1/4", 4), ("1/2", 7), ("3/3", math.inf)]
)
def test_a_flaky_test_is_tried_until_it_would_pass(measured: str, tries: float) -> None:
    assert Flaky.parse("a", measured, "why").tries == tries


@pytest.mark.parametrize(
    ("failures", "is_worse"), [(0, False), (5, False), (8, False), (9, True), (20, True)]
)
def test_more_failures_than_measured_are_too_many(failures: int, is_worse: bool) -> None:
    assert Flaky("a", 1 / 7, "why", runs=20, failures=failures).is_worse == is_worse


def test_each_try_of_a_flaky_test_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    flaky = Flaky("tests/a.py::test_b[*]", 0.01, "why")
    monkeypatch.setattr(expectations, "FLAKY", [flaky])
    monkeypatch.setattr(expectations, "second_tries", {})
    ends = [
        ("setup", "passed"),
        ("call", "rerun"),
        ("setup", "rerun"),
        ("call", "skipped"),
        ("call", "passed"),
    ]
    for when, outcome in ends:
        report = SimpleNamespace(nodeid="tests/a.py::test_b[c]", when=when, outcome=outcome)
        expectations.note(report)  # type: ignore[arg-type]
    assert (flaky.runs, flaky.failures) == (4, 3)
    assert expectations.too_many()
    assert expectations.second_tries == {}


def test_the_lists_name_tests_and_measures() -> None:
    assert all(0 < one.rate <= 1 and one.reason for one in FLAKY)
    assert all(way in ("run", "skip") and reason for _, way, reason in KNOWN)
    assert not {one.pattern for one in FLAKY} & {pattern for pattern, _, _ in KNOWN}
