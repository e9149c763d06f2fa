# SPDX-License-Identifier: MIT
"""Help, versions and usage errors, which need no tracer."""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from harness import FLAGFINDER, assert_four_parts, flagfinder, live_or_skip, run, started

from flagfinder.cli.command import _from_os
from flagfinder.live.patient import status_of

VERBS = """
record, trace, trace info, trace check, trace dump, trace export, diff, registers, find, spin, why,
guard, watch, poke, core, events, events record, events info, events top, mark, graph, diagnose,
report, critical-path, compare, overhead, doctor
"""


@pytest.mark.parametrize("verb", [verb.strip() for verb in VERBS.split(",")])
def test_every_help_has_examples(verb: str) -> None:
    done = flagfinder(*verb.split(), "--help")
    assert done.returncode == 0
    assert f"flagfinder {verb}" in done.stdout.split("examples:")[1]
    assert [line for line in done.stdout.splitlines() if len(line) > 100] == []


@pytest.mark.parametrize("verb", ["record", "events record", "overhead"])
def test_help_says_where_a_program_to_run_stands(verb: str) -> None:
    assert "-- PROGRAM" in flagfinder(*verb.split(), "--help").stdout.partition("\n\n")[0]


_PARSED = "from flagfinder.cli.command import build_parser as parser; parser({})"
_LARGE = {"numpy", "pyarrow", "matplotlib", "xml.sax"}
_OF_FEW = {"dataclasses", "logging", "ctypes", "rich", "socket", "flagfinder.flags.flags"}


@pytest.mark.parametrize(
    ("code", "left_out"),
    [
        (_PARSED.format(""), _LARGE),
        (_PARSED.format("['why', '1']"), _LARGE | _OF_FEW | {"flagfinder.interpreters.python"}),
        ("import flagfinder.cli", _LARGE | _OF_FEW | {"argparse", "pathlib"}),
    ],
    ids=["all", "why", "version"],
)
def test_what_takes_long_to_import_is_not_needed_to_read_a_command_line(
    code: str, left_out: set[str]
) -> None:
    code = f"import sys; {code}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert not left_out & set(done.stdout.split())


def test_version() -> None:
    assert flagfinder("--version").stdout.startswith("flagfinder ")


@pytest.mark.parametrize(
    "words",
    [
        ["no-such-verb"],
        ["diff"],
        ["diff", "one.trace"],
        ["record", "-o", "x", "--last", "lots", "--", "true"],
        ["record", "-o", "x", "--stop-when-spinning", "-1", "--", "true"],
        ["record", "-o", "x", "--until", "", "--", "true"],
        ["record", "-o", "x", "--tracer", "lldb", "--until", "ready", "--", "true"],
        ["mark"],
        ["diff", "one.trace", "two.trace", "--thread", "one"],
        ["find", "--normal", "'", "--spin", "true"],
        ["registers", "x", "--before-divergence", "y", "-n", "0"],
        ["watch", "1", "app", "done", "--backend", "frida"],
        ["spin", "-1"],
        ["spin", "4294967297"],
        ["why", ""],
        ["why", "-n", ""],
        ["guard", "--after", "1", "-o", "/etc/passwd", "--", "true"],
    ],
    ids=" ".join,
)
def test_usage_errors(words: list[str]) -> None:
    done = flagfinder(*words)
    assert done.returncode == 2
    assert "found:" in done.stderr and "fix:" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("verb", ["why", "spin"])
def test_a_thread_of_the_kernel_is_no_process_of_a_program(verb: str, tmp_path: Path) -> None:
    """Nor is a program of that name refused."""
    name = tmp_path / "kthreadd"
    shutil.copy("/bin/sleep", name)
    with started([name, "100"]) as process:
        assert flagfinder(verb, process.pid, "--timeout", "20").returncode in (0, 1)
    if status_of(2).get("Name") != "kthreadd":
        live_or_skip("no thread of the kernel can be seen here")
    done = flagfinder(verb, 2)
    assert done.returncode == 2
    assert_four_parts(done.stderr, "a thread of the kernel")


# `why` goes on with the process that is meant (tests/live/test_patient.py).
each_verb = pytest.mark.parametrize("words", ["spin", "poke", "watch", "events record -o x --pid"])


@each_verb
def test_a_thread_s_id_is_refused_and_its_process_named(words: str) -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        done = flagfinder(*words.split(), thread.native_id)
    finally:
        over.set()
        thread.join()
    assert done.returncode == 2
    assert_four_parts(done.stderr, f"{thread.native_id} is a thread of process {os.getpid()}")


@each_verb
def test_a_process_that_has_ended_is_refused_and_its_parent_named(words: str) -> None:
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        done = flagfinder(*words.split(), ended.pid)
    assert done.returncode == 2
    assert_four_parts(done.stderr, f"its parent, process {os.getpid()}, has not asked for")


def test_too_few_files_are_told() -> None:
    limited = ["sh", "-c", 'ulimit -n 8; exec "$@"', "sh", *FLAGFINDER, "why", os.getpid()]
    asked = run(limited, timeout=60)
    assert asked.returncode == 69
    assert_four_parts(asked.stderr, "may open 8 files only")


def test_errors_of_a_watch_have_four_parts() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    done = flagfinder("watch", gone.pid, "app", "word")
    assert done.returncode != 0
    assert_four_parts(done.stderr, "found:")


@pytest.mark.parametrize("words", ["doctor", "--help", "spin 4194305 --json"])
@pytest.mark.parametrize("closed", [">&-", ">/dev/full", ">&- <&- 2>&-", ">/dev/full 2>/dev/full"])
def test_a_result_that_can_not_be_printed_is_a_failure_and_no_traceback(
    words: str, closed: str
) -> None:
    done = run(["sh", "-c", f"{shlex.join(FLAGFINDER)} {words} {closed}"], timeout=60)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "2>/dev/full"])
def test_a_result_comes_also_without_stdin_and_stderr(closed: str) -> None:
    done = run(["sh", "-c", f"{shlex.join(FLAGFINDER)} doctor --json {closed}"], timeout=60)
    assert json.loads(done.stdout)["schema"] == "flagfinder.doctor/1"


@pytest.mark.parametrize("how", ["--color=always", "--color=never", "--json"])
@pytest.mark.parametrize(
    ("words", "code"), [(["doctor"], 0), (["guard", "--after=0.5", "--", "sleep", "1000"], 124)]
)
def test_a_reader_that_goes_away_changes_no_answer(words: list[str], code: int, how: str) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        command = [*FLAGFINDER, words[0], how, *words[1:]]
        done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, timeout=60)
    finally:
        os.close(write)
    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr and b"Exception ignored" not in done.stderr


@pytest.mark.parametrize("error", [BlockingIOError("no thread"), OSError(errno.EAGAIN, "no fork")])
def test_what_may_start_no_process_is_told_which_limit_to_raise(error: OSError) -> None:
    assert "pids.max" in _from_os(error).fix


def test_what_a_forgotten_separator_is_told() -> None:
    done = flagfinder("record", "-o", "x.trace", "./app", "in.txt")
    assert done.returncode == 2
    assert "record .. -- ./app in.txt" in done.stderr
    done = flagfinder("record", "-o", "x.trace", "--stop-when-spining", "2", "--", "true")
    assert "flagfinder record --help" in done.stderr


def test_without_a_verb_it_lists_them() -> None:
    done = flagfinder()
    assert done.returncode == 2
    assert "watch" in done.stdout


def test_debug_shows_the_traceback() -> None:
    assert "Traceback" in flagfinder("trace", "info", "--debug", "/no/such/file").stderr


def test_interrupted_output() -> None:
    """A reader that goes away is no error."""
    done = subprocess.run(
        f"{shlex.join(FLAGFINDER)} --help | head -1",
        shell=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
