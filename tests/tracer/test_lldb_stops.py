# SPDX-License-Identifier: MIT
"""What stops a thread while lldb steps it: signals, breakpoints, the end of the program, a wish to
end.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import assert_consistent, command_into, own_blocks, run
from under_lldb import PATIENCE, batch, need_lldb, running, until

import flagfinder as ff
from flagfinder.shared.places import shipped

pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]


@pytest.fixture(scope="module", autouse=True)
def lldb() -> None:
    need_lldb()


def status(pid: int, field: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(f"{field}:"))


def stepping(pid: int, trace: Path, *options: str) -> list[str]:
    return [*command_into(trace, "record", "--tracer", "lldb", "--pid", pid, *options)]


def instructions(trace: Path, program: Path) -> int:
    """Of the program's own code."""
    return sum(count for _, _, count in own_blocks(trace, program))


def test_signals_are_handled_and_seen(program: Callable[..., Path], tmp_path: Path) -> None:
    alarmed, trace = program("alarmed.c"), tmp_path / "t.trace"
    with running(alarmed) as process:
        ran = run(stepping(process.pid, trace, "--max-steps", "1000"), timeout=120)
        assert ran.returncode == 0, ran.stderr
        assert status(process.pid, "TracerPid") == "0"
        process.terminate()
        assert process.wait(timeout=PATIENCE) == 0, "a result is not what it would have been"
    assert_consistent(trace)
    symbols = [
        line.split() for line in run(["nm", "-S", alarmed], timeout=PATIENCE).stdout.splitlines()
    ]
    start, size = next(
        (int(words[0], 16), int(words[1], 16)) for words in symbols if words[-1] == "on_alarm"
    )
    handled = [start <= offset < start + size for offset, _, _ in own_blocks(trace, alarmed)]
    assert any(handled)
    assert not all(handled)


@pytest.mark.parametrize("then", ["kill", "limit"])
def test_a_recording_ends_in_the_middle(
    program: Callable[..., Path], tmp_path: Path, then: str
) -> None:
    """With the program, which is killed; by the clock, which leaves it as it was."""
    alarmed, trace = program("alarmed.c"), tmp_path / "t.trace"
    with running(alarmed) as process:
        options = ["--max-steps", "1000000", *(["--stop-after", "2"] if then == "limit" else [])]
        recorder = subprocess.Popen(
            stepping(process.pid, trace, *options),
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        try:
            until(lambda: status(process.pid, "TracerPid") != "0")
            if then == "kill":
                time.sleep(2)
                process.kill()
            _, told = recorder.communicate(timeout=PATIENCE)
        finally:
            recorder.kill()
        assert recorder.returncode == 0, told
        if then == "limit":
            assert status(process.pid, "TracerPid") == "0"
            process.terminate()
            assert process.wait(timeout=PATIENCE) == 0
        else:
            assert process.wait(timeout=PATIENCE) == -signal.SIGKILL
    assert_consistent(trace)
    assert instructions(trace, alarmed) > 50


def test_breakpoints_and_interruptions_leave_nothing_behind(
    program: Callable[..., Path], tmp_path: Path
) -> None:
    """A breakpoint in what is stepped, and wishes of others to stop, end no recording; behind it
    the program runs up to the breakpoint.
    """
    waits, trace = program("waits.c", "-Wl,-z,now"), tmp_path / "t.trace"
    ask = (
        "r = lldb.SBCommandReturnObject(); "
        "lldb.debugger.GetCommandInterpreter().HandleCommand('{}', r)"
    )
    lines = [
        f"command script import {shipped('lldb_scripts', 'flagfinder_lldb.py')}",
        "script import json",
        "breakpoint set --name wait_for_it",
        "process launch --stderr /dev/null -- spin",
        "breakpoint set --name sched_yield",
        "script import threading",
        "script [threading.Timer(n / 40, lldb.process.SendAsyncInterrupt).start() for n in "
        "range(1, 9)]",
        f"script {ask.format(f'flagfinder record -o {trace} --max-steps 1000')}; "
        "print(json.dumps(r.Succeeded()))",
        "script [thread.join() for thread in threading.enumerate() if isinstance(thread, "
        "threading.Timer)]",
        "thread plan list",
        "continue",
        "script print(json.dumps(lldb.thread.GetStopReason() == lldb.eStopReasonBreakpoint))",
        "script print(json.dumps(lldb.frame.GetFunctionName()))",
        "process kill",
    ]
    ran = batch(waits, lines)
    told = [
        json.loads(line)
        for line in ran.stdout.splitlines()
        if line in ("true", "false") or line.startswith('"')
    ]
    assert told[:2] == [True, True], ran.stdout + ran.stderr
    assert "sched_yield" in told[2]
    active = re.split(
        "(?:Completed|Discarded) plan stack|continue", ran.stdout.partition("Active plan stack:")[2]
    )[0]
    assert "Base thread plan" in active
    assert "Walk" not in active, "the stepper's plan is left behind"
    assert_consistent(trace)
    (thread,) = ff.open_trace(trace).threads
    assert thread.summary().blocks > 1000 // 9
