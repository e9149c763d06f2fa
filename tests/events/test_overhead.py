# SPDX-License-Identifier: MIT
"""`overhead`: its statistics on known numbers, and a program on which the cost is plain."""

from __future__ import annotations

import json
import random

import pytest
from harness import flagfinder

from flagfinder.graph.overhead import interval


def test_a_difference_is_proven_only_beyond_the_noise() -> None:
    dice = random.Random(1)
    plain = [1 + dice.gauss(0, 0.02) for _ in range(10)]
    slower = [1.1 * (1 + dice.gauss(0, 0.02)) for _ in range(10)]
    overhead, low, high = interval(plain, slower)
    assert 0 < low < overhead < high
    assert low < 0.1 < high
    _, low, high = interval(plain, [1 + dice.gauss(0, 0.02) for _ in range(10)])
    assert low < 0 < high


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    dice = random.Random(2)
    held = 0
    for _ in range(1000):
        plain = [dice.lognormvariate(0, 0.05) for _ in range(8)]
        _, low, high = interval(plain, [1.03 * dice.lognormvariate(0, 0.05) for _ in plain])
        held += low < 0.03 < high
    assert 920 <= held <= 975


def test_drift_that_both_share_cancels_out() -> None:
    plain = [1 + 0.2 * number for number in range(6)]
    overhead, low, high = interval(plain, [seconds * 1.05 for seconds in plain])
    assert overhead == pytest.approx(0.05)
    assert high - low < 1e-9


@pytest.mark.live
@pytest.mark.timeout(120)
@pytest.mark.usefixtures("recorder")
def test_a_program_that_does_nothing_but_calls_pays() -> None:
    """With every call recorded, two million a second and more."""
    command = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=400000", "status=none"]
    ran = flagfinder("overhead", "--rounds", "4", "--syscalls", "target", "--json", "--", *command)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["schema"] == "flagfinder.overhead/1"
    assert (found["proven"], len(found["plain"]), len(found["recorded"])) == (True, 4, 4)
    assert found["low"] > 0
    assert found["events"] + found["lost"] > 4 * 1_600_000


@pytest.mark.live
@pytest.mark.usefixtures("recorder")
def test_a_program_that_fails_is_not_measured() -> None:
    assert flagfinder("overhead", "--", "false").returncode == 2
    assert flagfinder("overhead", "--rounds", "1", "--", "true").returncode == 2
