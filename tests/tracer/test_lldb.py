# SPDX-License-Identifier: MIT
"""The lldb tracer: one thread stepped through a part of a run, into the same container as the
others'.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import (
    Recording,
    announced_flags,
    assert_consistent,
    assert_four_parts,
    children,
    command_into,
    compiled,
    diff,
    flagfinder,
    record,
)
from under_lldb import PATIENCE, batch, need_lldb, running, ticks

from flagfinder.shared.places import shipped

pytestmark = [pytest.mark.live, pytest.mark.timeout(500)]


@pytest.fixture(scope="module", autouse=True)
def lldb() -> None:
    need_lldb()


def by_lldb(trace: Path, command: list[str | Path], *options: str) -> Recording:
    recording = record(trace, command, "--tracer", "lldb", *options, timeout=200)
    assert_consistent(trace)
    return recording


@pytest.mark.parametrize("name", ["heap_object"])
def test_flags_of_samples(samples: Path, tmp_path: Path, name: str) -> None:
    program = samples / name
    normal = by_lldb(tmp_path / "normal.trace", [program, "normal"])
    assert normal.exit_code == 0, normal.stderr
    spin = by_lldb(tmp_path / "spin.trace", [program, "spin"], "--max-steps", "2500")
    assert (spin.exit_code, spin.ended_by_itself) == (0, True), spin.stderr
    flag = diff(normal.trace, spin.trace)["flags"][0]
    assert int(flag["address"]["spin"], 16) == announced_flags(spin.stderr)[0][0]


@pytest.mark.parametrize("kind", ["-static", "-static-pie"])
def test_a_static_program_is_stopped_at_its_first_instruction(
    kind: str, program: Callable[..., Path], tmp_path: Path
) -> None:
    """No dynamic loader runs before it."""
    recording = by_lldb(tmp_path / "trace", [program("self.c", kind), "0"], "--max-steps", "200")
    assert (recording.exit_code, recording.ended_by_itself) == (0, True), recording.stderr


def test_what_the_kernel_writes_is_the_threads_own(samples: Path, tmp_path: Path) -> None:
    """The loop reads what poll() wrote on its stack; poll() itself decides."""
    program = samples / "closed_poll"
    normal = by_lldb(tmp_path / "normal.trace", [program, "normal"])
    spin = by_lldb(tmp_path / "spin.trace", [program, "spin"], "--max-steps", "600")
    result = diff(normal.trace, spin.trace)
    assert (result["verdict"], result["flags"][0]["kind"]) == ("syscall-loop", "syscall"), result


@pytest.mark.usefixtures("tracer")
def test_a_process_that_spins_already(samples: Path, tmp_path: Path) -> None:
    """A normal run of DynamoRIO's, a spinning process that lldb attaches to and lets go."""
    program = samples / "static_flag"
    normal = record(tmp_path / "normal.trace", [program, "normal"])
    trace, log = tmp_path / "spin.trace", tmp_path / "spin.err"
    with running(program, "spin", log=log) as process:
        for _ in range(2):
            words = ["--tracer", "lldb", "--max-steps", "600", "--pid", process.pid]
            ran = flagfinder("record", "-o", trace, *words, timeout=120)
            assert ran.returncode == 0, ran.stderr
            assert "TracerPid:\t0" in Path(f"/proc/{process.pid}/status").read_text()
        assert_consistent(trace)
        before = ticks(process)
        deadline = time.monotonic() + PATIENCE
        while ticks(process) == before:
            assert process.poll() is None
            assert time.monotonic() < deadline, "it does not go on"
            time.sleep(0.05)
    flag = diff(normal.trace, trace)["flags"][0]
    assert int(flag["address"]["spin"], 16) == announced_flags(log.read_text())[0][0]


def test_flags_saved_while_it_is_stepped_hold_no_trap(tmp_path: Path) -> None:
    source, built = (
        Path(__file__).parents[1] / "live" / "programs" / "saved_flags.c",
        tmp_path / "saved_flags",
    )
    compiled(built, source, "-mno-red-zone")
    with running(built, "spin", log=tmp_path / "log") as process:
        words = ["--tracer", "lldb", "--max-steps", "500", "--pid", process.pid]
        for turn in range(4):  # one of four begins where flags are popped
            trace = tmp_path / f"{turn}.trace"
            ran = flagfinder("record", "-o", trace, *words, timeout=120)
            assert ran.returncode == 0, ran.stderr
            assert_consistent(trace)
        process.terminate()
        assert process.wait(timeout=PATIENCE) == 0, "a trap flag was left behind"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_keeps_what_is_recorded(
    samples: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """A signal to the recorder; the program is killed, as after the limit."""
    trace = tmp_path / "spin.trace"
    command = [*command_into(trace, "record", "--tracer", "lldb", "--max-steps", "1000000"), "--"]
    process = subprocess.Popen(
        [*command, samples / "global_flag", "spin"],
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    try:
        assert process.stderr is not None
        assert b"FLAG" in process.stderr.readline()  # main runs, so it is recorded
        started = children(process.pid)
        process.send_signal(number)
        _, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert_consistent(trace)
    assert not any(Path(f"/proc/{pid}").exists() for pid in started)


def test_commands_inside_lldb(program: Callable[..., Path], tmp_path: Path) -> None:
    """A process stopped at a breakpoint is recorded from there on; errors are errors of lldb's
    command.
    """
    waits, normal, spin = (
        program("waits.c", "-Wl,-z,now"),
        tmp_path / "normal.trace",
        tmp_path / "spin.trace",
    )
    by_lldb(normal, [waits, "normal"], "--from-break", "wait_for_it")
    ask = (
        "r = lldb.SBCommandReturnObject(); "
        "lldb.debugger.GetCommandInterpreter().HandleCommand('{}', r)"
    )
    tell = "; print(json.dumps([r.Succeeded(), r.GetError()]))"
    lines = [
        f"command script import {shipped('lldb_scripts', 'flagfinder_lldb.py')}",
        "script import json",
        *(
            f"script {ask.format(line)}{tell}"
            for line in ("flagfinder record -o x", "flagfinder poke")
        ),
        "help flagfinder",
        "breakpoint set --name wait_for_it",
        f"process launch --stderr {tmp_path / 'told'} -- spin",
        f"script {ask.format(f'flagfinder record -o {spin} --max-steps 0')}{tell}",
        f"script {ask.format(f'flagfinder record -o {spin} --max-steps 200')}{tell}",
        f"flagfinder registers {spin} --before-divergence {normal}",
        "process kill",
    ]
    ran = batch(waits, lines)
    results = [
        json.loads(line) for line in ran.stdout.splitlines() if line.startswith(("[true", "[false"))
    ]
    assert [succeeded for succeeded, _ in results] == [False, False, False, True], (
        ran.stdout + ran.stderr
    )
    for (_, error), part in zip(
        results, ("no stopped process", "record|registers|watch", "--max-steps"), strict=False
    ):
        assert part in error
    assert "flagfinder record -o FILE" in ran.stdout, "its help"
    assert "rax" in ran.stdout, "the registers"
    assert_consistent(spin)
    flag = diff(normal, spin)["flags"][0]
    assert (
        int(flag["address"]["spin"], 16) == announced_flags((tmp_path / "told").read_text())[0][0]
    )


def test_what_it_refuses(samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = samples / "global_flag"
    for words, found in (
        (["--from-break", "no_such_function", "--", program], "has no_such_function"),
        (
            ["--from-break", f"{program.name}+0x1{0:016x}", "--", program],
            "modules of the program has",
        ),
        (["--last", "1M", "--", program], "this tracer can't do that"),
        (["--pid", "1", "--", program], "either a program behind"),
        (["--pid", "999999999"], "there is no process"),
    ):
        ran = flagfinder("record", "--tracer", "lldb", "-o", tmp_path / "x.trace", *words)
        assert ran.returncode == 2
        assert_four_parts(ran.stderr, found)
    refused = flagfinder("record", "-o", tmp_path / "x.trace", "--max-steps", "5", "--", program)
    assert_four_parts(refused.stderr, "this tracer can't do that")
    monkeypatch.setenv("FF_LLDB", "no-such-lldb")
    missing = flagfinder("record", "--tracer", "lldb", "-o", tmp_path / "x.trace", "--", program)
    assert missing.returncode == 69
    assert_four_parts(missing.stderr, "no-such-lldb")
    assert not (tmp_path / "x.trace").exists()
