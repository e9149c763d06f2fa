# SPDX-License-Identifier: MIT
"""The modes of `--stacks`, and stacks that are too deep to be found by looking for code addresses.

The program sleeps in main > first > [through > again] > back > turns, 8 times > large_frame >
[sleeps] > nanosleep; brackets are a library's.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from event_recorder import PROGRAMS, Recorder
from harness import FLAGFINDER, command_into, compiled, flagfinder, run
from sizes import in_turn
from test_diagnose import build, vertices

pytestmark = [pytest.mark.live, pytest.mark.timeout(120), pytest.mark.usefixtures("recorder")]
DEEP = 8
WAITS = 3
CALLERS = ["sleeps", "large_frame", *["turns"] * DEEP, "back", "again", "through", "first", "main"]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("deep")
    source = PROGRAMS / "deep.c"
    options = ["-fno-optimize-sibling-calls", "-Wall", "-Werror"]
    compiled(folder / "libdeep.so", source, *options, "-DLIBRARY", "-fPIC", "-shared")
    linked = ["-L", folder, "-ldeep", f"-Wl,-rpath,{folder}"]
    return compiled(folder / "deep", source, *options, *linked)


def functions(program: Path, path: Path, mode: str, *options: str) -> list[str]:
    """Of the stack in which the program's thread sleeps in large_frame, innermost first."""
    command = [*command_into(path, "events record", "--stacks", mode, *options), "--", program]
    ran = run(command, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert flagfinder("events", "check", path).returncode == 0
    graph = path.with_suffix(".graph")
    assert flagfinder("graph", "build", path, "-o", graph).returncode == 0
    tid = ran.stdout.split()[1]
    vertices = json.loads(flagfinder("graph", "query", graph, "--tid", tid, "--json").stdout)[
        "vertices"
    ]
    sleeps = [vertex["stack"] for vertex in vertices if vertex["ends_in"] == "clock_nanosleep"]
    return [site.split("+")[0] for site in sleeps[-1]]


def test_all_callers_are_found_across_a_large_frame(program: Path, tmp_path: Path) -> None:
    words = functions(program, tmp_path / "words", "all", "--stack-budget", "31")
    assert "main" not in words, "64 words do not reach that far"
    copied = functions(
        program, tmp_path / "copy", "all", "--stack-budget", "31", "--stack-copy", "8K"
    )
    own = copied[copied.index("sleeps") :]
    assert own[: len(CALLERS)] == CALLERS


def test_sums_stand_at_all_callers_across_a_large_frame(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "top.json"
    ran = run(
        [*FLAGFINDER, "events", "top", "--json-file", path, "--stack-copy", "8K", "--", program],
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    stacks = [
        [site.split("+")[0] for site in row["stack"]]
        for row in json.loads(path.read_text())["waits"]
    ]
    own = [stack[stack.index("sleeps") :] for stack in stacks if "sleeps" in stack]
    assert [stack[: len(CALLERS)] for stack in own] == [CALLERS]


@pytest.mark.parametrize(
    ("mode", "budget", "CALLERS"),
    in_turn(
        [
            ("application", 8, ["large_frame"]),
            ("application-all", 4, ["large_frame", "turns", "turns", "turns"]),
            (
                "application-all",
                31,
                ["large_frame", *["turns"] * DEEP, "back", "first", "main", "_start"],
            ),
            ("library", 1, ["sleeps"]),
            ("library", 8, ["sleeps", "large_frame"]),
        ]
    ),
)
def test_a_mode_keeps_its_call_sites_within_the_budget(
    program: Path, tmp_path: Path, mode: str, budget: int, CALLERS: list[str]
) -> None:
    """The first one is where the thread is: in the C library, which is a code range, too."""
    found = functions(
        program, tmp_path / "run", mode, "--stack-budget", str(budget), "--stack-copy", "8K"
    )
    assert found[1:] == CALLERS


def test_library_is_less_than_all_without_copies(program: Path, tmp_path: Path) -> None:
    one_of_each = functions(program, tmp_path / "library", "library", "--stack-budget", "31")
    everything = functions(program, tmp_path / "all", "all", "--stack-budget", "31")
    assert one_of_each[1:2] == ["sleeps"]
    assert len(one_of_each) < len(everything)


def test_a_copy_that_is_too_large_is_refused(tmp_path: Path) -> None:
    command = [
        "events",
        "record",
        "-o",
        tmp_path / "x",
        "--stacks",
        "all",
        "--stack-copy",
        "17K",
        "--",
        "true",
    ]
    ran = flagfinder(*command)
    assert ran.returncode == 2
    assert "16384" in ran.stderr


def test_a_program_s_first_calls_have_their_callers(recorder: Recorder) -> None:
    recorded = recorder.record("first", options=("--stacks", "all"))
    graph = build(recorded)
    waits = [
        [site.split("+")[0] for site in vertex["stack"]]
        for vertex in vertices(graph, recorded.roles["main"])
        if vertex["ends_in"] == "clock_nanosleep"
    ]
    assert len(waits) >= WAITS
    assert all({"begin", "main"} <= set(stack) for stack in waits[:WAITS])


def test_an_uninterruptible_wait_has_its_place_in_the_kernel(tmp_path: Path) -> None:
    """Also without --stacks: of a thread that waits for a child to leave its memory (vfork)."""
    path = tmp_path / "run.events"
    code = "import subprocess; subprocess.run(['sleep', '0.2'])"
    command = [*command_into(path, "events record"), "--", "/usr/bin/python3", "-c", code]
    assert run(command, timeout=60).returncode == 0
    shown = json.loads(flagfinder("graph", "query", path, "--name", "python3", "--json").stdout)
    [stack] = [one["stack"] for one in shown["vertices"] if one["ends_in"] == "vfork"]
    assert 1 <= len(stack) <= 4
    assert all(site.endswith(" (kernel)") for site in stack), stack
    assert stack[0].startswith("kernel_clone"), stack
    slept = [one["stack"] for one in shown["vertices"] if one["ends_in"] == "wait4"]
    assert [] in slept, "who can be interrupted is told by the call"
