# SPDX-License-Identifier: MIT
"""`flagfinder guard`: silent about a command that ends, and the story of one that hangs."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import NoReturn

import pytest
import schemas
from harness import (
    FLAGFINDER,
    assert_four_parts,
    compiled,
    flagfinder,
    need_python_3_11,
    run,
    started,
    wait_until,
)

from flagfinder.live.guard import EXIT_HUNG, Hang
from flagfinder.live.guard import guard as guarded
from flagfinder.live.tree import ask
from flagfinder.report.junit import junit_xml

PYTHON = "/usr/bin/python3"


def left_over(mark: str) -> list[int]:
    """Processes with this word among their arguments."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if mark.encode() in words:
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize(
    ("script", "status"), [("exit 0", 0), ("echo out; exit 7", 7), ("kill -9 $$", 137)]
)
def test_a_command_that_ends_is_let_alone(script: str, status: int, tmp_path: Path) -> None:
    output = tmp_path / "hang"
    ran = flagfinder(
        "guard", "--after", "60", "--idle", "30", "-o", output, "--", "sh", "-c", script, timeout=60
    )
    assert (ran.returncode, ran.stderr) == (status, "")
    assert ran.stdout == ("out\n" if "echo" in script else "")
    assert not output.exists()


def test_the_status_is_told_though_whoever_started_it_ignores_sigchld() -> None:
    code = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
    code += "os.execvp(sys.argv[1], sys.argv[1:])"
    guards = [*FLAGFINDER, "guard", "--after", "60", "--", "sh", "-c", "exit 7"]
    ran = run([sys.executable, "-c", code, *guards], timeout=60)
    assert ran.returncode == 7, ran.stderr


def test_a_hang_is_told_though_no_process_can_be_started_to_ask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused() -> NoReturn:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", refused)
    hangs: list[Hang] = []
    mark = "600.0815"
    assert guarded(["sleep", mark], after=0.2, hung=hangs.append) == EXIT_HUNG
    [note] = hangs[0].notes
    assert "Resource temporarily unavailable" in note, note
    assert not left_over(mark)


def test_the_command_sees_the_environment_that_was_given(tmp_path: Path) -> None:
    """Also what would act on flagfinder itself, such as Python's."""
    given = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path), "LD_BIND_NOW": "1"}
    command = [*FLAGFINDER, "guard", "--after", "60", "--", "env"]
    ran = subprocess.run(command, env=given, capture_output=True, text=True, timeout=60, check=True)
    assert dict(line.split("=", 1) for line in ran.stdout.splitlines()) == given


def test_the_command_sees_its_descriptors_and_the_end_of_whom_it_started() -> None:
    """A process whose parent has ended is gone once it has ended, as it is below init."""
    daemon = "sh -c 'sleep 1000 >&- 2>&- & echo $!'"
    script = f"p=$({daemon}); kill $p; while kill -0 $p 2>/dev/null; do sleep 0.1; done; echo >&3"
    read, write = os.pipe()
    command = [
        *FLAGFINDER,
        "guard",
        "--after",
        "20",
        "--",
        "sh",
        "-c",
        f"exec 3>/proc/self/fd/{write}; {script}",
    ]
    with started(command, pass_fds=[write]) as guards:
        os.close(write)
        assert guards.wait(timeout=60) == 0
    assert os.read(read, 2) == b"\n"
    os.close(read)


def test_a_second_signal_does_not_leave_the_command_alive() -> None:
    mark = f"guarded-twice-{os.getpid()}"
    deaf = "trap '' TERM; sleep 1000; sleep 1000; :"
    command = [*FLAGFINDER, "guard", "--after", "60", "--", "sh", "-c", deaf, mark]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as guard:
        wait_until(guard, lambda: len(left_over(mark)) > 1)
        guard.send_signal(signal.SIGTERM)
        time.sleep(0.7)
        guard.send_signal(signal.SIGINT)
        assert guard.wait(timeout=30) == 130
    assert not left_over(mark)


def test_a_signal_while_a_hung_command_is_ended_changes_nothing() -> None:
    mark = f"guarded-hung-{os.getpid()}"
    deaf = "trap '' TERM; sleep 1000; sleep 1000; :"
    command = [*FLAGFINDER, "guard", "--after", "1", "--", "sh", "-c", deaf, mark]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as guard:
        assert guard.stderr is not None
        assert b"hangs" in guard.stderr.readline()
        time.sleep(1)  # it ends the tree, which takes two seconds
        guard.send_signal(signal.SIGTERM)
        assert guard.wait(timeout=30) == 124
    assert not left_over(mark)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_the_guard_ends_the_command(number: signal.Signals) -> None:
    mark = f"guarded-{os.getpid()}-{number}"
    command = [*FLAGFINDER, "guard", "--after", "60", "--", "sh", "-c", "sleep 1000; :", mark]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as guard:
        wait_until(guard, lambda: len(left_over(mark)) > 1)
        guard.send_signal(number)
        assert guard.wait(timeout=30) == 130
    assert not left_over(mark)


@pytest.mark.live
def test_the_story_of_a_hang_is_written_and_the_tree_is_ended(tmp_path: Path) -> None:
    mark = f"guarded-{os.getpid()}"
    # The one that hangs hears no SIGTERM, and its parent is stopped.
    child = "trap '' TERM; sleep 1000; :"
    script = f"sh -c \"{child}\" {mark} & sh -c 'kill -STOP $$' {mark}; echo never"
    output = tmp_path / "hang"
    ran = flagfinder("guard", "--after", "2", "-o", output, "--", "sh", "-c", script, timeout=60)
    assert ran.returncode == 124
    assert "never" not in ran.stdout
    assert ran.stdout.startswith("stopped: process")
    report = json.loads((output / "why.json").read_text())
    schemas.validate(report)
    assert report["root"]["kind"] == "stopped"
    assert report["story"][0] in (output / "why.txt").read_text()
    assert "<svg" in (output / "why.html").read_text()
    assert (output / "why.txt").stat().st_mode & 0o077 == 0
    assert not left_over(mark)


@pytest.mark.live
def test_a_wait_for_another_process_is_told_before_one_that_only_sleeps() -> None:
    read, write = os.pipe()
    sleepers = [subprocess.Popen(["sleep", "1000"]) for _ in range(2)]
    reader = subprocess.Popen(["cat"], stdin=read)
    os.close(read)
    in_read = "0 "  # the number of the call
    try:
        wait_until(reader, lambda: Path(f"/proc/{reader.pid}/comm").read_text() == "cat\n")
        wait_until(
            reader, lambda: Path(f"/proc/{reader.pid}/syscall").read_text().startswith(in_read)
        )
        asked = ask([*(sleeper.pid for sleeper in sleepers), reader.pid])
    finally:
        os.close(write)
        for process in (*sleepers, reader):
            process.kill()
            process.wait()
    assert asked.reports[0].pid == reader.pid
    assert {report.root.kind for report in asked.reports[1:]} == {"timer"}


@pytest.mark.live
def test_a_script_that_polls_in_a_child_is_told_by_its_code() -> None:
    need_python_3_11(PYTHON)
    script = f"{PYTHON} {Path(__file__).parent / 'why' / 'polled.py'} attribute; :"
    ran = flagfinder("guard", "--after", "3", "--json", "--", "sh", "-c", script, timeout=60)
    assert ran.returncode == 124
    reports = json.loads(ran.stdout)["reports"]
    waits = {
        link["waits_for"]["name"]: link["owed_by"] for report in reports for link in report["links"]
    }
    (owed,) = (owed for name, owed in waits.items() if "polled.py" in name)
    assert owed is not None and str(owed["tid"]) in ran.stderr.split("BLAMED ")[1], reports


@pytest.mark.live
def test_a_command_is_idle_if_it_neither_computes_nor_reads_nor_writes() -> None:
    begin = time.monotonic()
    busy = "i=0; while [ $i -lt 30 ]; do i=$((i+1)); echo $i; sleep 0.1; done"
    ran = flagfinder(
        "guard", "--idle", "1", "--json", "--", "sh", "-c", f"{busy}; sleep 1000", timeout=60
    )
    assert ran.returncode == 124
    assert time.monotonic() - begin > 3, "it was not idle before"
    fields = json.loads(ran.stdout)
    schemas.validate(fields)
    assert (fields["exit_code"], fields["hung"]) == (124, True)
    assert [report["root"]["kind"] for report in fields["reports"]] == ["timer"]
    assert "29" in ran.stderr  # what the command prints goes there


@pytest.mark.live
def test_a_process_whose_parent_ended_is_asked_and_ended() -> None:
    mark = f"orphan-{os.getpid()}"
    script = f"(sh -c 'kill -STOP $$; :' {mark} &) ; sleep 1000"
    ran = flagfinder("guard", "--after", "1", "--json", "--", "sh", "-c", script, timeout=60)
    kinds = {report["root"]["kind"] for report in json.loads(ran.stdout)["reports"]}
    assert kinds == {"timer", "stopped"}
    assert not left_over(mark)


@pytest.mark.live
def test_github_is_told_in_one_line_and_hostile_names_are_no_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    # The name that it has from now on, at most 15 bytes, is in the story.
    name = r"\n::x::##[x]%0A"
    script = (
        f"exec(open('/proc/self/comm', 'w').write('{name}') and 'import time; time.sleep(1000)')"
    )
    ran = flagfinder(
        "guard", "--after", "3", "--", sys.executable, "-c", script, "##[y]", timeout=60
    )
    assert ran.returncode == 124
    assert "##[" not in ran.stderr, "wherever it stands in a line"
    error, stop, *told, go_on = ran.stdout.splitlines()
    assert error.startswith("::error title=The command hangs::waits for a timer")
    assert r"(\u000a::x::##[x]%250A)" in error, "its own per cents are escaped"
    assert r"(\u000a::x::##[x]%0A)" in " ".join(told)
    word = stop.removeprefix("::stop-commands::")
    assert word != stop
    assert go_on == f"::{word}::"
    assert len(word) == 32
    assert not any(word in line for line in told)


LOCKS = """\
import threading, time
ONE, OTHER = threading.Lock(), threading.Lock()
def forth():
    with ONE:
        time.sleep(0.2)
        with OTHER: pass
threading.Thread(target=forth).start()
with OTHER:
    time.sleep(0.2)
    with ONE: pass
"""


@pytest.mark.live
def test_github_shows_the_line_and_keeps_the_story(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source, summary = tmp_path / "src" / "work.py", tmp_path / "summary"
    source.parent.mkdir()
    source.write_text(LOCKS)
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    command = ["guard", "--after", "3", "--", sys.executable, source, "```"]
    ran = flagfinder(*command, timeout=60)
    error = ran.stdout.splitlines()[0]
    told = "title=The command hangs::deadlock: "
    assert error.startswith(f"::error file=src/work.py,line=10,{told}"), error
    assert "%0Athread " in error, "the second line of the story"
    before, title, fence, *story, end = summary.read_text().splitlines()
    assert (before, title) == ("before", "### The command hangs")
    assert (fence, end) == ("````text", "````"), "longer than any in the story"
    assert any("at forth() work.py:6" in line for line in story), story
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path / "elsewhere"))
    error = flagfinder(*command, timeout=60).stdout.splitlines()[0]
    assert error.startswith(f"::error {told}"), "the file is not the repository's"


@pytest.mark.live
def test_cores_of_all_processes_are_written_and_read(tmp_path: Path) -> None:
    output = tmp_path / "hang"
    script = "sh -c 'sleep 1001; :' & sh -c 'kill -STOP $$; :'; :"
    ran = flagfinder(
        "guard", "--after", "2", "--core", "-o", output, "--", "sh", "-c", script, timeout=60
    )
    assert ran.returncode == 124
    cores = sorted(output.glob("core.*"))
    assert len(cores) == 4, ran.stderr  # a stopped one too
    assert "4 core files" in ran.stderr
    assert all(core.stat().st_mode & 0o077 == 0 for core in cores)
    texts = [flagfinder("why", "--core", core, timeout=60).stdout for core in cores]
    told = [" ".join(text.split()) for text in texts]
    assert sum("(sleep)" in story and "it sleeps" in story for story in told) == 1
    assert sum("what keeps " in story for story in told) >= 2  # the shells that wait
    refused = flagfinder("guard", "--after", "2", "--core", "--", "true", timeout=60)
    assert refused.returncode == 2
    assert_four_parts(refused.stderr, "needs -o DIR")


@pytest.mark.live
def test_the_story_is_told_where_it_can_t_be_written() -> None:
    ran = flagfinder(
        "guard",
        "--after",
        "1",
        "-o",
        "/dev/null/hang",
        "--",
        "sh",
        "-c",
        "sleep 1000; :",
        timeout=60,
    )
    assert ran.returncode == 124
    assert ran.stdout.startswith("waits for a timer: ")
    assert "/dev/null/hang can't be written: Not a directory" in ran.stderr


@pytest.mark.parametrize(
    ("script", "tag", "kind", "message"),
    [
        ("exit 0", None, None, None),
        ("exit 7", "failure", "status", "exit code 7"),
        pytest.param(
            "sleep 1000; :", "failure", "hang", "it hangs: it ran for 2 s", marks=pytest.mark.live
        ),
        (None, "error", "flagfinder", "The command can't be started"),
    ],
)
def test_junit_has_a_testcase(
    script: str | None, tag: str | None, kind: str | None, message: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "junit.xml"
    command = ["/does/not/exist"] if script is None else ["sh", "-c", script, "\x1b]<&\ufffe"]
    flagfinder("guard", "--after", "2", "--junit", str(file), "--", *command, timeout=60)
    suite = xml.parse(file).getroot()[0]
    assert (suite.get("tests"), len(suite)) == ("1", 1)
    case = suite[0]
    assert script is None or str(script) in str(case.get("name"))
    counts = {name: suite.get(f"{name}s") for name in ("failure", "error")}
    assert counts == {name: str(int(name == tag)) for name in counts}
    if tag is None:
        assert len(case) == 0
        return
    problem = case[0]
    assert (problem.tag, problem.get("type")) == (tag, kind)
    assert str(problem.get("message")).startswith(str(message))
    if kind == "hang":
        assert "waits for a timer: process" in str(problem.text)
        assert "next: " not in str(problem.text), "its processes have ended"
    assert file.stat().st_mode & 0o077 == 0


def test_junit_tells_of_an_error_until_the_command_has_ended(tmp_path: Path) -> None:
    file = tmp_path / "junit.xml"
    command = [
        "flagfinder",
        "guard",
        "--after",
        "1000",
        "--junit",
        str(file),
        "--",
        "sh",
        "-c",
        "sleep 1000; :",
    ]
    with started(command) as process:
        wait_until(
            process, lambda: file.is_file() and file.read_bytes().endswith(b"</testsuites>\n")
        )
        assert "flagfinder was ended before the command" in file.read_text()


def test_what_junit_can_t_hold_is_replaced() -> None:
    written = junit_xml("app \x00\ufffe\u202e", 1.0, ("failure", "hang", "a\nb", "]]>\x1b<x>"))
    case = xml.fromstring(written)[0][0]
    assert case.get("name") == "app \\u0000\ufffd\\u202e"
    assert case[0].text == "]]>\\u001b<x>"


@pytest.mark.parametrize(
    ("words", "status", "found"),
    [
        (["--after", "1", "--", "/does/not/exist"], 127, "No such file"),
        (["--after", "1", "--", "/etc/passwd"], 126, "chmod +x /etc/passwd"),
        (["--after", "1", "--", "/etc"], 126, "not a line of a shell"),
        (["--", "true"], 2, "neither --after nor --idle"),
        (["--after", "1"], 2, "no command"),
    ],
)
def test_what_can_t_be_started_is_told(words: list[str], status: int, found: str) -> None:
    ran = flagfinder("guard", *words, timeout=60)
    assert ran.returncode == status
    assert_four_parts(ran.stderr, found)


TESTS = """\
import threading, unittest
class Cases(unittest.TestCase):
    def helper(self):
        threading.Event().wait()
    def test_never_ends(self):
        self.helper()
unittest.main()
"""


@pytest.mark.live
def test_the_test_that_hangs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    script = tmp_path / "cases.py"
    script.write_text(TESTS)
    ran = flagfinder("guard", "--after", "4", "--", sys.executable, script, timeout=60)
    assert "title=Cases.test_never_ends() cases.py%3A6 hangs::" in ran.stdout, ran.stdout
    assert "%0Atest: Cases.test_never_ends() cases.py:6%0A" in ran.stdout


CHECKS = """\
#include <unistd.h>
static int silent(void) { int ends[2]; char c; return pipe(ends) || read(ends[0], &c, 1); }
int main(int n, char **a) { return n > 1 ? 0 : silent(); }
"""
# By the runner: its files, how it is called, and what is told of the test.
RUNNERS = {
    "make": (
        {"Makefile": "check:\n\t@./checks fine\n\t@./checks\n"},
        ("make", "check"),
        "test: ./checks",
    ),
    "ctest": (
        {"CTestTestfile.cmake": 'add_test(fine "./checks" "x")\nadd_test(silent "./checks")\n'},
        ("ctest",),
        "/checks",
    ),
    "xdist": (
        {
            "test_it.py": "import queue\ndef test_fine(): pass\n"
            "def test_it_waits(): queue.Queue().get()\n"
        },
        (sys.executable, "-m", "pytest", "-q", "-n1", "-p", "no:cacheprovider", "."),
        "test: test_it_waits() test_it.py:3",
    ),
    "node": (
        {
            "it.test.js": "const { test } = require('node:test');\n"
            "const read = () => require('fs').readSync(require('child_process')\n"
            "  .execSync('sleep 1000'));\n"
            "test('is fine', () => {});\n"
            "test('reads a pipe', () => { read(); });\n"
        },
        ("node", "--test", "it.test.js"),
        "test: test('reads a pipe') it.test.js:5",
    ),
    "after the last": (
        {
            "test_it.py": "import threading\ndef test_it():\n"
            "    threading.Thread(target=threading.Event().wait).start()\n"
        },
        (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "."),
        "test: none: the last one is over, and Python waits for threads that go on",
    ),
}


@pytest.mark.live
@pytest.mark.parametrize("runner", RUNNERS)
def test_each_runner_s_test_is_named(
    runner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, command, told = RUNNERS[runner]
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("PYTEST_")]:
        monkeypatch.delenv(name)
    (tmp_path / "checks.c").write_text(CHECKS)
    compiled(tmp_path / "checks", "checks.c")
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    ran = flagfinder("guard", "--idle", "2", "-o", tmp_path / "hang", "--", *command, timeout=90)
    assert ran.returncode == 124, ran
    first = (tmp_path / "hang" / "why.txt").read_text()
    assert told in " ".join(first.split()), first
    assert runner not in ("make", "ctest") or "at silent() checks.c:2" in first
