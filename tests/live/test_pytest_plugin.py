# SPDX-License-Identifier: MIT
"""`pytest --flagfinder-after`: a test that hangs fails with the story, and the run goes on."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import run
from sizes import in_turn

HANGS = {
    "attribute": """
class Worker:
    done = False

def test_hangs():
    worker = Worker()
    while not worker.done:
        pass
""",
    "lock": """
import threading, time

def hold(lock, held):
    with lock:
        held.set()
        time.sleep(1000)

def test_hangs():
    lock, held = threading.Lock(), threading.Event()
    threading.Thread(target=hold, args=(lock, held), daemon=True).start()
    held.wait()
    with lock:
        pass
""",
    "child": """
import subprocess, sys

def test_hangs():
    subprocess.run([sys.executable, "-c", "input('name? ')"], stdin=PIPE_READ)
""",
    # Python ends its wait for the child by a second wait for it.
    "context": """
import subprocess

def test_hangs():
    with subprocess.Popen(["sleep", "1000"]) as child:
        child.wait()
""",
    "swallowed": """
import time

def test_hangs():
    for _ in range(2):
        try:
            time.sleep(1000)
        except BaseException:
            pass
""",
    "setup": """
import pytest, time

@pytest.fixture
def slow():
    time.sleep(1000)

def test_hangs(slow):
    pass
""",
}
# Who must be in the story, besides the process that runs the test.
TOLD = {
    "attribute": "",
    "lock": "it sleeps",
    "child": "read on fd 0",
    "context": "(sleep)",
    "swallowed": "waits for a timer: ",
    "setup": "waits for a timer: ",
}
PIPE = "import os\nPIPE_READ, PIPE_WRITE = os.pipe()\n"


def pytest_in(folder: Path, *options: str, tests: dict[str, str]) -> tuple[int, str]:
    """A run of pytest on these modules, and all that it prints."""
    for name, text in tests.items():
        (folder / f"test_{name}.py").write_text(PIPE + text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    words = [
        sys.executable,
        "-P",
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:rerunfailures",
        *options,
    ]
    ran = run(words, timeout=120, cwd=folder)
    return ran.returncode, ran.stdout + ran.stderr


@pytest.mark.live
@pytest.mark.parametrize("name", in_turn(HANGS, of=3))
def test_a_hang_fails_with_the_story_and_the_run_goes_on(name: str, tmp_path: Path) -> None:
    tests = {name: HANGS[name], "z_other": "def test_good():\n    pass\n"}
    status, said = pytest_in(tmp_path, "--flagfinder-after=1", tests=tests)
    assert status == 1, said
    outcome = "1 error" if name == "setup" else "1 failed"
    assert f"1 passed, {outcome}" in said or f"{outcome}, 1 passed" in said, said
    assert "it runs for longer than 1 s" in said or name == "swallowed"
    story = said.partition("flagfinder why")[2]
    assert TOLD[name] in story, said
    assert "next: " not in story, "the test has ended"


@pytest.mark.live
@pytest.mark.soak
def test_workers_of_xdist_tell_their_own(tmp_path: Path) -> None:
    good = "import pytest\n@pytest.mark.parametrize('n', range(20))\ndef test_good(n):\n    pass\n"
    tests = {"lock": HANGS["lock"], "child": HANGS["child"], "z_other": good}
    status, said = pytest_in(tmp_path, "--flagfinder-after=2", "-n", "2", tests=tests)
    assert status == 1, said
    assert "2 failed, 20 passed" in said, said
    assert said.count(" flagfinder why ") == 2, said
    assert "it sleeps" in said
    assert "in hold\n    time.sleep(1000)" in said  # the thread that holds the lock
    assert TOLD["child"] in said


# No signal's handler runs within one call of code in C.
STUCK = """
import collections, subprocess

def test_hangs():
    subprocess.Popen(["sh", "-c", "sleep 1000; :", "MARK"])
    collections.deque(iter(int, 1), maxlen=0)
"""


def words_of_all() -> Iterator[list[bytes]]:
    """The command lines of all processes."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                yield (entry / "cmdline").read_bytes().split(b"\0")


@pytest.mark.live
def test_code_that_never_lets_go_ends_the_run_with_the_story(tmp_path: Path) -> None:
    mark = f"left-{os.getpid()}"
    status, said = pytest_in(
        tmp_path, "--flagfinder-after=1", tests={"stuck": STUCK.replace("MARK", mark)}
    )
    assert status == -9, said
    assert (
        "flagfinder: test_stuck.py::test_hangs is over time, and the run does not go on: it is "
        "ended" in said
    )
    assert "next: " not in said, said
    assert not [words for words in words_of_all() if mark.encode() in words]


@pytest.mark.live
@pytest.mark.soak
def test_under_xdist_only_the_worker_ends(tmp_path: Path) -> None:
    good = "import pytest\n@pytest.mark.parametrize('n', range(20))\ndef test_good(n):\n    pass\n"
    tests = {"stuck": STUCK, "z_other": good}
    status, said = pytest_in(tmp_path, "--flagfinder-after=2", "-n", "2", tests=tests)
    assert status == 1, said
    assert "1 failed, 20 passed" in said, said
    assert "crashed while running 'test_stuck.py::test_hangs'" in said, said
    assert "test_stuck.py::test_hangs is over time, and the run does not go on" in said
    assert "(sleep)" in said, "what the test started is told of, too"


def test_until_then_it_loads_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    quick = """
import os, sys
from pathlib import Path
import pytest

def test_quick():
    assert "flagfinder_pytest" in sys.modules
    assert "flagfinder" not in sys.modules
    Path("pid").write_text(str(os.getpid()))
    # A process that waits for all its children does not wait for the watchdog.
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
"""
    status, said = pytest_in(tmp_path, "--flagfinder-after=60", tests={"quick": quick})
    assert status == 0, said
    pid = (tmp_path / "pid").read_bytes()
    deadline = time.monotonic() + 60
    while [
        words
        for words in words_of_all()
        if pid in words and any(b"watchdog.py" in word for word in words)
    ]:
        assert time.monotonic() < deadline, "the watchdog is left"
        time.sleep(0.01)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "soon", "1e30"])
def test_what_is_no_time_is_refused(text: str, tmp_path: Path) -> None:
    status, said = pytest_in(
        tmp_path, f"--flagfinder-after={text}", tests={"good": "def test_good():\n    pass\n"}
    )
    assert status == 4, said
    assert "is no number of seconds above 0" in said
