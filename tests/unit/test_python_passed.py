# SPDX-License-Identifier: MIT
"""What a loop asks through a parameter that its function calls."""

from __future__ import annotations

import ast

import pytest

from flagfinder.interpreters.python_loop import find_loops

WAIT = "def wait_until(asks, seconds=0.1):\n    while not asks():\n        time.sleep(seconds)\n"


def asked(call: str, source: str = WAIT, function: str = "wait_until", at: int = 2) -> str:
    """What ends the loop at line ``at`` of the function that line 1 of ``call`` called."""
    (loop,) = find_loops(ast.parse(source), function, [at], (ast.parse(call), 1))
    return loop.exits[0].when


@pytest.mark.parametrize(
    ("call", "when"),
    [
        ("wait_until(lambda: job.done)", "job.done"),
        ("wait_until(asks=lambda: not jobs)", "not jobs"),
        ("polls.wait_until(event.is_set, 2)", "event.is_set()"),
        ("wait_until(is_up)", "is_up()"),
        ("wait_until(seconds=1)", "asks()"),
        ("wait_until(make_asks())", "asks()"),
        ("wait_until(*all_of_it)", "asks()"),
        ("wait_until(**all_of_it)", "asks()"),
        ("wait_until(lambda: seconds > 3)", "asks()"),
        ("wait_until(lambda: a) or wait_until(lambda: b)", "asks()"),
        ("other(lambda: job.done)", "asks()"),
    ],
)
def test_what_the_caller_hands_over_is_what_is_asked(call: str, when: str) -> None:
    assert asked(call) == when


def test_a_method_is_called_without_its_object() -> None:
    source = "class Driver:\n    def until(self, asks):\n        while not asks(self): pass\n"
    assert asked("driver.until(lambda d: d.ready)", source, "Driver.until", 3) == "d.ready"


def test_a_parameter_that_gets_another_value_is_not_what_was_handed_over() -> None:
    source = WAIT.replace("    while", "    asks = cached(asks)\n    while")
    assert asked("wait_until(lambda: job.done)", source, at=3) == "asks()"


def test_a_question_without_side_effects_stays_one() -> None:
    tree = ast.parse(WAIT)
    for call, pure in (("wait_until(lambda: job.done)", True), ("wait_until(lambda: f())", False)):
        (loop,) = find_loops(tree, "wait_until", [2], (ast.parse(call), 1))
        assert (loop.kind, loop.exits[0].pure) == ("waits", pure)
