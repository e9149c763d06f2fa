"""`flagfinder spin` on samples that spin already. FF_REPEAT=N repeats; the bar is 5 of 5, and a median under 3 s."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import ROOT, announced_flags, flagfinder, kill_session, run

REPEAT = int(os.environ.get("FF_REPEAT", "1"))
PROGRAMS = run(["make", "-s", "-C", str(ROOT / "samples"), "list"], timeout=60).stdout.split()


@pytest.fixture
def spinning(
    request: pytest.FixtureRequest, samples: Path, tmp_path: Path
) -> Iterator[tuple[int, Path, dict[str, Any]]]:
    """A sample in spin mode for a second already: its pid, what it wrote to stderr, its truth."""
    name = request.param
    error = tmp_path / "stderr"
    with error.open("wb") as stderr:
        process = subprocess.Popen(
            [samples / name, "spin"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
        )
    time.sleep(1)
    truth = json.loads((ROOT / "samples" / f"{name.removeprefix('stripped/').split('@')[0]}.json").read_text())
    try:
        assert process.poll() is None, "spin mode ended"
        yield process.pid, error, truth
        assert process.poll() is None, "the program did not survive"
    finally:
        kill_session(process)


def cases(positive: bool) -> list[Any]:
    chosen = []
    for name in PROGRAMS:
        truth = json.loads((ROOT / "samples" / f"{name.split('@')[0]}.json").read_text())
        if ("kind" in truth) == positive:
            chosen += [pytest.param(n, id=f"{n}-{turn}") for n in (name, f"stripped/{name}") for turn in range(REPEAT)]
    return chosen


@pytest.mark.live
@pytest.mark.parametrize("spinning", cases(positive=True), indirect=True)
def test_true_flag_is_first(spinning: tuple[int, Path, dict[str, Any]]) -> None:
    pid, error, truth = spinning
    ran = flagfinder("spin", "--json", str(pid), timeout=60)
    assert ran.returncode == 0, ran.stderr + ran.stdout
    result = json.loads(ran.stdout)
    assert result["schema"] == "flagfinder.spin/1" and result["pid"] == pid
    thread = result["threads"][0]
    assert thread["class"] == "RepeatedYield"
    flag = thread["flags"][0]
    named = [(f["rank"], f["name"], f["confidence"]) for f in thread["flags"]]
    assert flag["rank"] == 1
    if truth["kind"] == "syscall":
        assert flag["kind"] == "syscall", named
        return
    address, size = announced_flags(error.read_text())[0]
    assert (int(flag["address"]["spin"], 16), flag["size"]) == (address, size), named
    assert int(flag["value"]["spin"], 16) == truth["value_spin"]


@pytest.mark.live
@pytest.mark.parametrize("spinning", cases(positive=False), indirect=True)
def test_negative_has_no_flag(spinning: tuple[int, Path, dict[str, Any]]) -> None:
    pid, _, _ = spinning
    ran = flagfinder("spin", "--json", str(pid), timeout=60)
    assert ran.returncode == 1, ran.stdout
    threads = json.loads(ran.stdout)["threads"]
    assert threads and not any(thread["flags"] for thread in threads)
    assert all(thread["reason"] for thread in threads)


@pytest.mark.live
@pytest.mark.parametrize("spinning", ["global_flag"], indirect=True)
def test_poke_ends_the_loop(spinning: tuple[int, Path, dict[str, Any]], tmp_path: Path) -> None:
    pid, _, _ = spinning
    found = flagfinder("spin", "--json", str(pid), timeout=60)
    report = tmp_path / "spin.json"
    report.write_text(found.stdout)
    refused = flagfinder("poke", str(pid), "--flag", f"{report}#1", timeout=60)
    assert refused.returncode == 2 and "--yes" in refused.stderr, "without a terminal nothing may be written"
    ran = flagfinder("poke", "--json", str(pid), "--flag", f"{report}#1", "--yes", timeout=60)
    assert ran.returncode == 0, ran.stderr
    done = json.loads(ran.stdout)
    assert (done["before"], done["written"], done["left"]) == ("0x0", "0x1", True)


@pytest.mark.live
def test_poke_after_which_the_program_ends_at_once(tmp_path: Path) -> None:
    source, program = tmp_path / "ends.c", tmp_path / "ends"
    source.write_text("volatile int done;\nint main(void) { while (!done) ; return 0; }\n")
    assert run(["gcc", source, "-o", program], timeout=60).returncode == 0
    for turn in range(3):
        process = subprocess.Popen([program])
        time.sleep(1)
        try:
            ran = flagfinder("poke", "--json", str(process.pid), "--yes", timeout=60)
            assert ran.returncode == 0, f"turn {turn}: {ran.stderr}"
            assert process.wait(timeout=30) == 0
        finally:
            process.kill()
        done = json.loads(ran.stdout)
        assert (done["before"], done["written"], done["left"], done["ended"]) == ("0x0", "0x1", True, True)
