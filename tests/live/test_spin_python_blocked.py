# SPDX-License-Identifier: MIT
"""`flagfinder spin` on Python programs: threads that are blocked, and who holds them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from harness import flagfinder
from python_programs import PYTHON, of, program, running, spin, whens


@pytest.mark.live
@pytest.mark.parametrize(
    ("body", "when"),
    [
        ("lock = threading.Lock(); lock.acquire(); lock.acquire()", None),
        ("queue.Queue().get()", "self._qsize()"),
        ("while not job.done: time.sleep(100)", "job.done"),
    ],
    ids=["lock", "queue", "long sleep"],
)
def test_a_blocked_thread_has_its_stack(body: str, when: str | None, tmp_path: Path) -> None:
    """And the loop that it pauses in; but as nobody saw that go round, it is no answer."""
    script = tmp_path / "program.py"
    script.write_text(program(body))
    with running([PYTHON, script]) as process:
        threads = spin(process)
    code = of(process, threads)
    assert threads[0]["class"] == "LongWait"
    assert {"function": "wait", "file": str(script), "line": 9} in code["frames"]
    if when is None:
        assert code["loop"] is None
    else:
        assert whens(code) == [when] and code["loop"]["confidence"] is None


@pytest.mark.live
def test_who_holds_the_interpreters_lock(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import re, threading, time\n"
        "def search():\n    print('READY', flush=True)\n    re.match('(a+)+$', 'a' * 40 + 'b')\n"
        "threading.Thread(target=search).start()\ntime.sleep(1000)\n"
    )
    with running([PYTHON, script]) as process:
        ran = flagfinder("spin", "--json", str(process.pid), timeout=90)
    report = json.loads(ran.stdout)
    (other,) = [t for t in report["threads"] if t["tid"] != process.pid]
    assert other["python"]["frames"][1]["function"] == "search"
    if other["python"]["looks"] >= 6:
        assert any(
            f"thread {other['tid']} held the interpreter's lock (GIL)" in note
            for note in report["notes"]
        )
