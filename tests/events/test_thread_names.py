# SPDX-License-Identifier: MIT
"""`events record --threads PATTERN`: only what concerns threads of such names, kept apart in the
kernel.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from harness import flagfinder

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]
ROUNDS = 20
SCRIPT = f"""
import os, threading, time
def work(name):
    with open("/proc/thread-self/comm", "w") as comm:
        comm.write(name)
    # print() of several threads may mix.
    os.write(1, f"{{name}} {{threading.get_native_id()}}\\n".encode())
    for _ in range({ROUNDS}):
        time.sleep(0.002)
threads = [threading.Thread(target=work, args=(name,)) for name in ("needle-1", "hay-1", "pin")]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""
_SWITCH = re.compile(r" switch (\d+) -> (\d+) ")
_CALL = re.compile(r" (?:enter|return) (\d+) clock_nanosleep")


@pytest.mark.usefixtures("recorder")
@pytest.mark.parametrize("everything", [(), ("--all",)], ids=["target", "all"])
def test_only_threads_of_such_names_are_recorded(
    tmp_path: Path, everything: tuple[str, ...]
) -> None:
    path = tmp_path / "named.events"
    options = [
        "--threads",
        "*eedle-?",
        "--threads",
        "p?n",
        "--syscalls",
        "target",
        "-q",
        *everything,
    ]
    ran = flagfinder(
        "events", "record", "-o", path, *options, "--", "/usr/bin/python3", "-c", SCRIPT
    )
    assert ran.returncode == 0, ran.stderr
    tids = dict(line.split() for line in ran.stdout.splitlines())
    wanted = {tids["needle-1"], tids["pin"]}
    lines = flagfinder("events", "dump", path, "--limit", 100000).stdout.splitlines()
    switches = [match.groups() for match in map(_SWITCH.search, lines) if match]
    assert all(wanted.intersection(pair) for pair in switches)
    calls = [match[1] for match in map(_CALL.search, lines) if match]
    # Its call, and its return, in each round.
    assert {tid: calls.count(tid) for tid in calls} == dict.fromkeys(wanted, 2 * ROUNDS)
    # What a process is, is told of all.
    assert any(f" rename {tids['hay-1']} is now hay-1" in line for line in lines)
    checked = flagfinder("events", "check", path)
    assert checked.returncode == 0, checked.stdout
    summary = json.loads(flagfinder("events", "info", "--json", path).stdout)
    assert summary["thread_names"] == ["*eedle-?", "p?n"]


def test_patterns_that_are_too_long_are_a_usage_error(tmp_path: Path) -> None:
    long = [word for number in range(5) for word in ("--threads", f"pool-of-workers{number}")]
    ran = flagfinder("events", "record", "-o", tmp_path / "x", *long, "--", "/bin/true")
    assert ran.returncode == 2
    assert "64 letters" in ran.stderr
