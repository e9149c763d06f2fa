# SPDX-License-Identifier: MIT
"""The scripts of ``diff --emit``, run by the debuggers: they stop where the runs part and find a
fresh run's flag.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from harness import ROOT, announced_flags, flagfinder, live_or_skip, record, run, started
from sizes import in_turn

pytestmark = pytest.mark.live
LLDB = "lldb-22"
# On the heap through a pointer, in a shared library, in another thread's TLS.
PROGRAMS = ["heap_object", "shared_library", "tls_of_thread"]


@pytest.fixture(scope="module", params=in_turn(PROGRAMS))
def scripts(
    request: pytest.FixtureRequest,
    samples: Path,
    tracer: None,  # noqa: ARG001
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, dict[str, Path]]:
    """A sample, and the script for each debugger."""
    where, program = tmp_path_factory.mktemp("emit"), samples / request.param
    record(where / "normal.trace", [program, "normal"])
    record(
        where / "spin.trace",
        [program, "spin"],
        "--stop-when-spinning",
        "1",
        "--then",
        "kill",
        kill_after=15,
    )
    written = {}
    for debugger in ("gdb", "lldb"):
        done = flagfinder("diff", where / "normal.trace", where / "spin.trace", "--emit", debugger)
        assert done.returncode == 0, done.stderr
        written[debugger] = where / f"in_{debugger}.py"
        written[debugger].write_text(done.stdout)
    return program, written


def value_of(program: Path) -> int:
    """What the flag is in the spinning run, as the sample's truth says."""
    value: int = json.loads((ROOT / "samples" / f"{program.name}.json").read_text())["value_spin"]
    return value


def debug(debugger: str, script: Path, target: list[str | Path]) -> str:
    """Runs the debugger over the script; ``target`` is a program and its arguments, or ``-p`` and a
    process.
    """
    attach = target[0] == "-p"
    if debugger == "gdb":
        words = ["gdb", "-q", "-nx", "-batch", *(target if attach else ()), "-x", script]
        words += [] if attach else ["--args", *target]
    else:
        words = [LLDB, "--no-lldbinit", "--batch", *(target if attach else ())]
        words += ["-o", f"command script import {script}", *([] if attach else ["--", *target])]
    if shutil.which(words[0]) is None:
        live_or_skip(f"{words[0]} is not installed")
    done = run([str(word) for word in words], timeout=120)
    return done.stdout + done.stderr


def named(output: str) -> tuple[int, int]:
    """The address of the flag and its value, as the script printed them."""
    found = re.search(
        r"flagfinder: .* is (0x[0-9a-f]+) at (0x[0-9a-f]+); the loop ends when", output
    )
    assert found, output
    return int(found[2], 16), int(found[1], 16)


@pytest.mark.parametrize("debugger", ["gdb", "lldb"])
def test_a_fresh_run_is_stopped_where_the_runs_part(
    scripts: tuple[Path, dict[str, Path]], debugger: str
) -> None:
    program, written = scripts
    output = debug(debugger, written[debugger], [program, "spin"])
    assert "where the runs part" in output, output
    assert re.search(r"\brip\b", output) and re.search(r"#0", output), (
        "registers and stack are shown"
    )
    address, value = named(output)
    assert address == announced_flags(output)[0][0]
    assert value == value_of(program)
    assert re.search(r"[Ww]atchpoint \d+", output), "the flag is watched"


@pytest.mark.parametrize("debugger", ["gdb", "lldb"])
@pytest.mark.parametrize("scripts", ["heap_object", "tls_of_thread"], indirect=True)
def test_a_process_that_spins_already(
    scripts: tuple[Path, dict[str, Path]], debugger: str, tmp_path: Path
) -> None:
    program, written = scripts
    with (
        (tmp_path / "err").open("w+") as announced,
        started([program, "spin"], stderr=announced, stdout=announced) as spinning,
    ):
        for _ in range(100):
            if announced_flags((tmp_path / "err").read_text()):
                break
            with pytest.raises(subprocess.TimeoutExpired):
                spinning.wait(0.1)
        output = debug(debugger, written[debugger], ["-p", str(spinning.pid)])
        address, value = named(output)
        announced_flag = announced_flags((tmp_path / "err").read_text())[0]
        assert (address, value) == (announced_flag[0], value_of(program))
        assert spinning.poll() is None, "the process outlives the debugger"


@pytest.mark.usefixtures("tracer")
def test_runs_that_do_not_part_have_no_script(samples: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        record(tmp_path / f"{name}.trace", [samples / "heap_object", "normal"])
    done = flagfinder("diff", tmp_path / "one.trace", tmp_path / "two.trace", "--emit", "gdb")
    assert (done.returncode, done.stdout) == (2, "")
    assert "nothing to stop at" in done.stderr


@pytest.mark.parametrize("debugger", ["gdb", "lldb"])
@pytest.mark.usefixtures("tracer")
def test_a_script_runs_nothing_that_a_trace_holds(
    samples: Path, tmp_path: Path, debugger: str
) -> None:
    ran, program = tmp_path / "ran", tmp_path / "heap\x1b[31mobject"
    program.write_bytes((samples / "heap_object").read_bytes())
    program.chmod(0o755)
    code = f"import os\nos.system('touch {ran}')"
    attacks = [
        f"\n{code}\n",
        f"'''\n{code}\n'''",
        f'"""\n{code}\n"""',
        f"\\\n{code}",
        "\x1b]0;title\x07",
        "{command}",
    ]
    record(tmp_path / "normal.trace", [program, "normal", *attacks])
    stop = ("--stop-when-spinning", "1", "--then", "kill")
    record(tmp_path / "spin.trace", [program, "spin", *attacks], *stop, kill_after=15)
    done = flagfinder(
        "diff", tmp_path / "normal.trace", tmp_path / "spin.trace", "--emit", debugger
    )
    assert done.returncode == 0, done.stderr
    ast.parse(done.stdout)
    assert not set(done.stdout) & {"\x1b", "\x07"}
    script = tmp_path / "script.py"
    script.write_text(done.stdout)
    output = debug(debugger, script, [program, "spin"])
    assert not ran.exists(), "text of the trace was run"
    assert "where the runs part" in output, output
    said = [line for line in output.splitlines() if line.startswith("flagfinder:")]
    assert any("\\u001b[31mobject" in line for line in said), said
    assert not any("\x1b" in line for line in said), said
