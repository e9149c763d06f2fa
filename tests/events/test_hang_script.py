# SPDX-License-Identifier: MIT
"""`diagnose --emit`: the debuggers stop fresh runs where the culprit waited, or where it began to
compute.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from event_recorder import Recorder
from harness import flagfinder, live_or_skip, run

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]
COMMANDS = {
    "gdb": ["gdb", "-q", "-nx", "-batch", "-x", "{script}", "--args"],
    "lldb": ["lldb-22", "--no-lldbinit", "--batch", "-o", "command script import {script}", "--"],
}


def emitted(recorder: Recorder, debugger: str, mode: str, directory: Path) -> str:
    """What the debugger says over the script from a recording of the mode."""
    recorded = recorder.record("hangs", mode, options=("--stacks", "all"))
    graph = recorded.path.with_suffix(".graph")
    assert flagfinder("graph", "build", recorded.path, "-o", graph).returncode == 0
    done = flagfinder("diagnose", graph, "--auto", "--emit", debugger)
    assert done.returncode == 0, done.stderr
    script = directory / f"stop_in_{debugger}.py"
    script.write_text(done.stdout)
    command = [word.format(script=script) for word in COMMANDS[debugger]]
    if shutil.which(command[0]) is None:
        live_or_skip(f"{command[0]} is not installed")
    ran = run([*command, recorder.program("hangs"), mode], timeout=120)
    return ran.stdout + ran.stderr


def offset_in_page(program: Path, symbol: str) -> int:
    listed = run(["nm", program], timeout=30).stdout
    found = re.search(rf"^([0-9a-f]+) \w {symbol}$", listed, re.MULTILINE)
    assert found, listed
    return int(found[1], 16) & 0xFFF


@pytest.mark.parametrize("debugger", ["gdb", "lldb"])
def test_a_culprit_that_waits_is_stopped_before_its_wait(
    recorder: Recorder, debugger: str, tmp_path: Path
) -> None:
    output = emitted(recorder, debugger, "circle", tmp_path)
    assert "where the culprit waited" in output, output
    assert re.search(r"\brip\b", output) and re.search(r"#0", output), (
        "registers and stack are shown"
    )
    assert re.search(r"\bcross\b", output), "the stack is the culprit's"
    found = re.search(r"the futex is (0x[0-9a-f]+) at (0x[0-9a-f]+); it goes on when", output)
    assert found, output
    assert int(found[2], 16) & 0xFFF == offset_in_page(recorder.program("hangs"), "first")
    assert int(found[1], 16) != 0, "the lock is held"
    assert re.search(r"[Ww]atchpoint \d+", output), output


@pytest.mark.parametrize("debugger", ["gdb", "lldb"])
def test_a_culprit_that_computes_is_stopped_where_it_goes_on(
    recorder: Recorder, debugger: str, tmp_path: Path
) -> None:
    output = emitted(recorder, debugger, "lock", tmp_path)
    assert "came back from its wait, and computed" in output, output
    assert re.search(r"\bsignal_late\b", output), "the stack is the culprit's"
    assert "no flag is known" in output


def test_without_stacks_there_is_no_script(recorder: Recorder) -> None:
    recorded = recorder.record("hangs", "alone")
    graph = recorded.path.with_suffix(".graph")
    assert flagfinder("graph", "build", recorded.path, "-o", graph).returncode == 0
    done = flagfinder("diagnose", graph, "--auto", "--emit", "gdb")
    assert (done.returncode, done.stdout) == (2, "")
    assert "nothing to stop at" in done.stderr
