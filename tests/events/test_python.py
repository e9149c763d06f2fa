# SPDX-License-Identifier: MIT
"""Samples of Python programs name the function that ran when they were taken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from harness import flagfinder

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]
PYTHON = "/usr/bin/python3"  # as Debian has it, without symbols
SHARE = 0.8  # of samples that a function must have where nothing else runs

PHASES = """
import hashlib, os, threading, time

def burn():
    for _ in range(20_000):
        sum(range(1000))

def first():
    burn()

class Job:
    def second(self):
        for number in range(4_000_000):
            number % 7

def unlocked():
    hashlib.pbkdf2_hmac("sha256", b"x", b"y", 600_000)

for work in (first, Job().second, unlocked):
    time.sleep(0.1)
    work()
thread = threading.Thread(target=first, name="other")
thread.start()
thread.join()
if not os.fork():
    first()
    os._exit(0)
os.wait()
"""


def longest(path: Path, program: Path, *options: str) -> list[dict[str, Any]]:
    """What vertices ran that were sampled ten times, in order of time."""
    command = ("events", "record", "-q", "-o", path, *options, "--", PYTHON, program)
    ran = flagfinder(*command)
    assert ran.returncode == 0, ran.stderr
    graph = path.with_suffix(".graph")
    assert flagfinder("graph", "build", path, "-o", graph).returncode == 0
    asked = flagfinder("graph", "query", graph, "--json", "--limit", "100000")
    vertices = json.loads(asked.stdout)["vertices"]
    return [vertex for vertex in vertices if vertex["ran"] and vertex["ran"]["samples"] >= 10]


def share(vertex: dict[str, Any], function: str) -> float:
    ran = vertex["ran"]
    of_it: int = sum(one["samples"] for one in ran["functions"] if one["function"] == function)
    return of_it / int(ran["samples"])


@pytest.mark.usefixtures("recorder")
@pytest.mark.parametrize("copies", [(), ("--stack-copy", "4K")])
def test_each_sample_has_the_function_of_its_time(tmp_path: Path, copies: tuple[str, ...]) -> None:
    program = tmp_path / "phases.py"
    program.write_text(PHASES)
    ran = longest(tmp_path / "run.events", program, "--stacks", "all", *copies)
    line = {
        name: PHASES[: PHASES.index(f"def {name}")].count("\n") + 1
        for name in ("burn", "second", "unlocked")
    }
    expected = [
        f"burn (python phases.py:{line['burn']})",
        f"Job.second (python phases.py:{line['second']})",
        f"unlocked (python phases.py:{line['unlocked']})",
        f"burn (python phases.py:{line['burn']})",  # of another thread
        f"burn (python phases.py:{line['burn']})",  # of another process
    ]
    functions = [vertex["ran"]["functions"] for vertex in ran]
    found = [vertex for vertex in ran if any(share(vertex, name) > SHARE for name in expected)]
    assert [
        next(name for name in expected if share(vertex, name) > SHARE) for vertex in found
    ] == expected, functions
    assert len({vertex["tid"] for vertex in found}) == 3
    assert len({vertex["pid"] for vertex in found}) == 2


@pytest.mark.usefixtures("recorder")
def test_the_story_of_a_page_names_the_python_function_that_ran(tmp_path: Path) -> None:
    """The first thread waits for one that computes."""
    program, path = tmp_path / "joins.py", tmp_path / "run.events"
    burn = "def burn():\n    for _ in range(30_000):\n        sum(range(1000))\n"
    thread = "thread = threading.Thread(target=burn)\nthread.start()\nthread.join()\n"
    program.write_text(f"import threading\n{burn}{thread}")
    assert longest(path, program, "--stacks", "all")
    page = tmp_path / "run.html"
    assert flagfinder("report", path.with_suffix(".graph"), "-o", page).returncode == 0
    story = page.read_text().split('<ol class="story">')[1].split("</ol>")[0]
    assert "It ran burn (python joins.py:2)" in story


@pytest.mark.usefixtures("recorder")
def test_where_python_code_blocks_is_told_too(tmp_path: Path) -> None:
    program = tmp_path / "waits.py"
    # The recorder sees a little later than the program starts where its interpreter has its frames.
    text = (
        "import time\ndef pause():\n    time.sleep(0.3)\ndef main():\n    for _ in range(5): "
        "pause()\nmain()\n"
    )
    program.write_text(text)
    path = tmp_path / "run.events"
    assert (
        flagfinder(
            "events", "record", "-q", "-o", path, "--stacks", "all", "--", PYTHON, program
        ).returncode
        == 0
    )
    dump = flagfinder("events", "dump", path)
    assert any("pause main <module>" in line for line in dump.stdout.splitlines())
    assert flagfinder("graph", "build", path, "-o", path.with_suffix(".graph")).returncode == 0
    asked = flagfinder("graph", "query", path.with_suffix(".graph"), "--json", "--limit", "100000")
    vertices = json.loads(asked.stdout)["vertices"]
    sleeps = [one["stack"][-3:] for one in vertices if one["ends_in"] == "clock_nanosleep"]
    assert [
        "pause (python waits.py:2)",
        "main (python waits.py:4)",
        "<module> (python waits.py:1)",
    ] in sleeps


@pytest.mark.usefixtures("recorder")
def test_without_stacks_there_is_no_python_code(tmp_path: Path) -> None:
    program = tmp_path / "phases.py"
    program.write_text(PHASES)
    ran = longest(tmp_path / "run.events", program, "--stacks", "off")
    assert ran
    assert not any(
        "(python " in one["function"] for vertex in ran for one in vertex["ran"]["functions"]
    )
