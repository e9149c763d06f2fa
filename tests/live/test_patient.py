# SPDX-License-Identifier: MIT
"""The process that is meant is found by its name, a thread's id, or a child that has ended."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from harness import assert_four_parts, compiled, flagfinder, started

TWO_THREADS = """\
#include <pthread.h>
#include <unistd.h>
static void *nap(void *x) { pause(); return x; }
int main(void) { pthread_t t; pthread_create(&t, 0, nap, 0); pthread_join(t, 0); }
"""


def test_a_process_is_found_by_its_program_or_script(tmp_path: Path) -> None:
    name = f"patient-with-a-long-name-{os.getpid()}"
    program, script = tmp_path / name, tmp_path / f"{name}.py"
    shutil.copy("/bin/sleep", program)
    script.write_text("import time\ntime.sleep(1000)\n")
    # A word among the arguments is no name.
    with started(["tail", "-f", "/dev/null", program]), started([program, "1000"]) as sleeps:
        time.sleep(0.3)
        found = flagfinder("why", "-n", name, "--json")
        assert json.loads(found.stdout)["pid"] == sleeps.pid
        assert f"process {sleeps.pid} is called {name}: " in found.stderr
    with started([sys.executable, script]) as runs:
        time.sleep(0.5)
        found = flagfinder("why", "-n", script.name, "--json")
        assert json.loads(found.stdout)["pid"] == runs.pid


def test_of_several_the_one_is_meant_from_which_the_others_descend(tmp_path: Path) -> None:
    program = tmp_path / f"server-{os.getpid()}"
    shutil.copy(shutil.which("dash") or "/bin/sh", program)
    script = f"{program} -c 'sleep 1000; :' & wait"
    with started([program, "-c", script]) as server:
        time.sleep(0.3)
        found = flagfinder("why", "--name", program.name, "--json")
        assert json.loads(found.stdout)["pid"] == server.pid, found.stderr
        assert "1 more descends from it" in found.stderr
        with started([program, "-c", "sleep 1000; :"]) as other:
            time.sleep(0.3)
            refused = flagfinder("why", "-n", program.name)
            assert refused.returncode == 2
            assert_four_parts(refused.stderr, f"3 processes are called {program.name}")
            assert f"{other.pid}  " in refused.stderr
    assert_four_parts(flagfinder("why", "-n", program.name).stderr, "No process is called")


def test_a_thread_s_id_leads_to_its_process(tmp_path: Path) -> None:
    source = tmp_path / "two.c"
    source.write_text(TWO_THREADS)
    with started([compiled(tmp_path / "two", source, "-pthread")]) as process:
        time.sleep(0.3)
        threads = [int(task.name) for task in Path(f"/proc/{process.pid}/task").iterdir()]
        other = next(tid for tid in threads if tid != process.pid)
        found = flagfinder("why", other, "--json")
    report = json.loads(found.stdout)
    assert report["pid"] == process.pid
    assert report["links"][0]["waiter"]["tid"] == other
    assert f"{other} is a thread of process {process.pid}: the chain begins with it" in found.stderr


def test_a_process_that_has_ended_leads_to_its_parent() -> None:
    code = "import os, time; print(os.posix_spawn('/bin/true', ['true'], {}), flush=True); "
    with started(
        [sys.executable, "-c", f"{code}time.sleep(1000)"], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        ended = int(parent.stdout.readline())
        time.sleep(0.3)
        found = flagfinder("why", ended, "--json")
    assert json.loads(found.stdout)["pid"] == parent.pid, found.stderr
    assert f"the parent, process {parent.pid}, is asked instead" in found.stderr


@pytest.mark.parametrize("verb", ["why", "spin"])
def test_a_name_in_place_of_an_id_is_understood(verb: str) -> None:
    assert_four_parts(flagfinder(verb, "my-server").stderr, "flagfinder why -n my-server")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["4711"], "flagfinder why 4711"),
        (["whi", "4711"], "flagfinder why"),
        (["why", "4711", "--stcks"], "--stacks"),
    ],
)
def test_what_is_misspelt_is_answered(words: list[str], meant: str) -> None:
    assert_four_parts(flagfinder(*words).stderr, "Did you mean")
    assert meant in flagfinder(*words).stderr
