# SPDX-License-Identifier: MIT
"""Numbers that no verb can take, and options that would do nothing: exit 2 and four parts, before
anything begins.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import assert_four_parts, flagfinder, live_or_skip

from flagfinder.cli.command import main
from flagfinder.cli.common import PID, Number, Seconds, Size, core_file
from flagfinder.cli.record import _text
from flagfinder.cli.trace import _image
from flagfinder.cli.watch import _site
from flagfinder.cli.why import _kept

from .verbs import Files, command_line, leaves

pytestmark = pytest.mark.timeout(120)
NUMERIC = (Number, Size, Seconds)
OTHER = (None, Path, core_file, _image, _kept, _site, _text)
BAD = ["-1", str(-(2**63) - 1), str(2**64), "1e400", "inf", "nan", "0x", "", "x", "9" * 5000]


def numbers() -> Iterator[tuple[str, argparse.Action]]:
    """Each verb with each of its options and arguments that is a number."""
    for verb, parser in leaves():
        for action in parser._actions:
            if isinstance(action.type, NUMERIC):
                yield verb, action


# Their extremes are tried apart, as they start what may run on.
STARTS_PROGRAMS = ("record", "find", "events record", "overhead")
LONG = {
    ("events top", "duration", "high"),
    ("watch", "duration", "high"),
    ("spin", "budget", "high"),
    ("registers", "blocks", "high"),
    ("trace dump", "limit", "high"),
    ("trace export", "instructions", "high"),
    ("why", "apart", "high"),
}


def given(verb: str, action: argparse.Action, text: str, files: Files) -> list[str]:
    """A command line of ``verb`` with ``text`` for that number."""
    words = command_line(verb, files)
    if not action.option_strings:
        return [text if word == str(files.pid) else word for word in words]
    option = max(action.option_strings, key=len)
    end = words.index("--") if "--" in words else len(words)
    if option in words[:end]:
        place = words.index(option)
        return [*words[:place], f"{option}={text}", *words[place + 2 :]]
    # What makes the option mean something.
    needed = {
        ("record", "--pid"): ["--tracer", "lldb"],
        ("record", "--max-steps"): ["--tracer", "lldb"],
        ("record", "--thread"): ["--tracer", "lldb", "--pid", str(files.pid)],
        ("events record", "--stack-budget"): ["--stacks", "all"],
        ("trace export", "--instructions"): ["--format", "tenet"],
    }.get((verb, option), [])
    if option == "--for":  # between looks at all processes
        return [verb, "--all", f"{option}={text}"]
    if "--pid" in [option, *needed]:
        words = words[:end]
    return [*words[:end], *needed, f"{option}={text}", *words[end:]]


def test_every_type_of_an_option_is_known() -> None:
    """`type=int` takes numbers that the engine's types can't: a new option uses the types of
    `cli/common.py`.
    """
    for verb, parser in leaves():
        for action in parser._actions:
            assert isinstance(action.type, NUMERIC) or action.type in OTHER, (
                verb,
                action.dest,
                action.type,
            )


@pytest.mark.parametrize(
    ("verb", "action"),
    [pytest.param(v, a, id=f"{v} {a.option_strings or a.dest}") for v, a in numbers()],
)
def test_numbers_out_of_range_are_refused(
    verb: str, action: argparse.Action, files: Files, capfd: pytest.CaptureFixture[str]
) -> None:
    for text in BAD:
        assert main(given(verb, action, text, files)) == 2, text
        assert_four_parts(capfd.readouterr().err, text[:12])


@pytest.mark.parametrize(
    ("verb", "action", "which"),
    [
        pytest.param(
            v,
            a,
            which,
            id=f"{v} {a.option_strings or a.dest} {which}",
            marks=() if which == "high" and index % 3 == 0 else pytest.mark.soak,
        )
        for index, (v, a) in enumerate(numbers())
        for which in ("low", "high")
        if v not in STARTS_PROGRAMS
        and (v, a.dest, which) not in LONG
        and (a.type is not PID or which == "high")
    ],
)
def test_the_least_and_the_greatest_number_reach_the_engine(
    verb: str, action: argparse.Action, which: str, files: Files, capfd: pytest.CaptureFixture[str]
) -> None:
    """What the parser lets through, the engine takes or refuses in words."""
    kind: Any = action.type
    low = kind.low if isinstance(kind, Number) else 1e-9 if isinstance(kind, Seconds) else 1
    main(given(verb, action, str(low if which == "low" else kind.high), files))
    assert_foreseen(capfd.readouterr().err)


def assert_foreseen(said: str) -> None:
    for never in ("failed itself", "isn't understood", "no effect"):
        assert never not in said, said


@pytest.mark.parametrize(
    ("verb", "options"),
    [
        (
            "record",
            ["--last", str(2**62), "--stop-after", "31536000", "--stop-when-spinning", "31536000"],
        ),
        ("record", ["--last", "1", "--stop-after", "1e-9"]),
        ("find", ["--stop-when-spinning", "1e-9"]),
        (
            "events record",
            ["--size", str(2**62), "--duration", "31536000", "--mark-on-hang", "31536000"],
        ),
        ("events record", ["--size", "1"]),
        ("events record", ["--buffer", "1", "--duration", "1e-9"]),
    ],
)
def test_extremes_of_recorded_programs(verb: str, options: list[str], files: Files) -> None:
    words = command_line(verb, files)
    end = words.index("--") if "--" in words else len(words)
    assert_foreseen(flagfinder(*words[:end], *options, *words[end:]).stderr)


HUGE = hex(2**64)


@pytest.mark.parametrize(
    "words",
    [
        ["watch", "1", "--site", f"app+{HUGE}"],
        ["trace", "import", "x", "-o", "y", "--image", f"/bin/true@{HUGE}"],
        ["trace", "import", "x", "-o", "y", "--image", "/bin/true@-0x8"],
    ],
    ids=lambda words: words[-1],
)
def test_numbers_within_texts_are_refused_too(
    words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert_four_parts(capfd.readouterr().err, "is no address from 0 to")


def test_a_word_across_its_size_s_boundary_is_not_written(files: Files) -> None:
    words = ["poke", str(files.pid), "--address", "0x1001", "--size", "4", "--value", "1", "--yes"]
    refused = flagfinder(*words)
    if refused.returncode == 77:
        live_or_skip(refused.stderr)
    assert refused.returncode == 2
    assert_four_parts(refused.stderr, "no multiple of 4")
