# SPDX-License-Identifier: MIT
"""`flagfinder spin` on waits found in the field: what is checked in passing is not what is waited
for.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from harness import (
    announced_flags,
    assert_found,
    compiled,
    flagfinder,
    run,
    started,
    wait_for_rounds,
    wait_until,
)
from sizes import in_turn

SOURCE = Path(__file__).parent / "programs" / "waits.cpp"
CALLS = {"status_file": "read", "unsent": "ioctl", "seldom": "kill"}
WAITS = [
    "checked_index",
    "queue_ends",
    "sum_of_counts",
    "library_spinlock",
    "ring_of_a_kind",
    "precondition",
    "bounded_scan",
    "in_passing",
    "other_error",
    "map_value",
    "handed_out",
    "thrown",
    *CALLS,
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("waits") / "waits", SOURCE, "-std=c++17", "-O2")


@pytest.mark.live
@pytest.mark.parametrize("name", in_turn(WAITS))
def test_what_is_waited_for_is_first(name: str, program: Path, tmp_path: Path) -> None:
    error = tmp_path / "stderr"
    if name == "handed_out":
        stripped = tmp_path / "stripped"
        assert run(["strip", "-g", "-o", str(stripped), str(program)], timeout=60).returncode == 0
        program = stripped
    with (
        error.open("wb") as stderr,
        started([program, name, tmp_path / "status"], stderr=stderr) as process,
    ):
        wait_until(process, lambda: "FLAG" in error.read_text())
        wait_for_rounds(process, 3 if name == "seldom" else 50)
        ran = flagfinder("spin", "--json", str(process.pid), timeout=90)
        assert_found(ran)
        assert process.poll() is None, "the program did not survive"
    flags = json.loads(ran.stdout)["threads"][0]["flags"]
    named = [(f["rank"], f["name"], f["confidence"]) for f in flags]
    if name in CALLS:
        assert flags[0]["kind"] == "syscall" and flags[0]["symbol"] == CALLS[name], named
        return
    address, size = announced_flags(error.read_text())[0]
    assert (int(flags[0]["address"]["spin"], 16), flags[0]["size"]) == (address, size), named
    if name == "thrown":
        assert len(flags) == 1 and flags[0]["confidence"] > 0.5, named
    if name == "map_value":
        # No later element of what the pointer is known to point to: a node's head has none behind
        # it.
        assert not re.search(r"\[[1-9]\d*\][.\[]", flags[0]["name"]), named
    if name == "handed_out":
        # Where the C library alone has debug information, its allocator's variables are no names
        # for the object.
        assert flags[0]["access_path"] is None, named


@pytest.mark.live
@pytest.mark.parametrize(
    ("language", "options"),
    [("sh", []), ("sh", ["--budget", "10"]), ("perl", [])],
    ids=["sh", "sh-budget", "perl"],
)
def test_script_that_waits_for_a_file(language: str, options: list[str], tmp_path: Path) -> None:
    """What decides is data of the interpreter; that one question is answered in the same way each
    time tells.
    """
    awaited, begun = tmp_path / "awaited", tmp_path / "begun"
    script = {
        "sh": ["sh", "-c", f": > '{begun}'; until [ -e '{awaited}' ]; do :; done"],
        "perl": [
            "perl",
            "-e",
            f"open(F, '>', '{begun}'); select(undef, undef, undef, 0.001) until -e '{awaited}'",
        ],
    }
    with started(script[language], stdin=subprocess.DEVNULL) as process:
        wait_until(process, begun.exists)
        ran = flagfinder("spin", "--json", *options, str(process.pid), timeout=90)
        assert_found(ran)
        awaited.touch()
        assert process.wait(timeout=60) == 0
    first = json.loads(ran.stdout)["threads"][0]["flags"][0]
    assert first["kind"] == "syscall", first
    assert re.search("stat|access", first["symbol"]), first


@pytest.mark.live
def test_a_shell_that_sleeps_in_between_is_told_by_its_script(tmp_path: Path) -> None:
    """Its own code tells nothing, and it is not held."""
    script, begun = tmp_path / "wait.sh", tmp_path / "begun"
    script.write_text(f"touch '{begun}'\nwhile ! test -f ready; do\n  sleep 0.1\ndone\n")
    with started(["bash", script], cwd=tmp_path) as process:
        wait_until(process, begun.exists)
        ran = flagfinder("spin", "--json", str(process.pid), timeout=60)
        shown = flagfinder("spin", str(process.pid), timeout=60)
        assert_found(ran)
        (tmp_path / "ready").touch()
        assert process.wait(timeout=60) == 0
    [thread] = json.loads(ran.stdout)["threads"]
    asks = {"file": "wait.sh", "line": 2, "asks": ["while ! test -f ready"], "pause": "sleep 0.1"}
    assert (thread["script"], thread["flags"], thread["pause_ms"]) == (asks, [], 0)
    assert "asks `while ! test -f ready` (wait.sh:2) again and again" in shown.stdout
