# SPDX-License-Identifier: MIT
"""Where each thread of a chain waits in its author's code, and all that threads have open."""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from harness import (
    FLAGFINDER,
    ROOT,
    compiled,
    flagfinder,
    live_or_skip,
    run,
    started,
    wait_until,
)
from planted import why

from flagfinder import _core
from flagfinder.shared.lldb_helper import find_lldb
from flagfinder.shared.places import shipped

LOCKS = """\
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <unistd.h>
static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER;
static sem_t work;
static pthread_barrier_t both;
static __attribute__((noinline)) void take(pthread_mutex_t *first, pthread_mutex_t *second) {
    pthread_mutex_lock(first);
    pthread_barrier_wait(&both);
    pthread_mutex_lock(second); /* line 11 */
    pthread_mutex_unlock(second);
}
static void *one(void *x) { take(&a, &b); return x; }
static void *two(void *x) { take(&b, &a); return x; }
static void *idle(void *x) { sem_wait(&work); return x; }
int main(void) {
    pthread_t threads[7];
    pthread_barrier_init(&both, 0, 2);
    pthread_create(&threads[0], 0, one, 0);
    pthread_create(&threads[1], 0, two, 0);
    for (int i = 2; i < 7; i++) pthread_create(&threads[i], 0, idle, 0);
    puts("ready");
    fflush(stdout);
    pthread_join(threads[0], 0); /* line 25 */
}
"""

# std keeps frame pointers, and the optimised code around it does not.
RECEIVES = """\
use std::sync::mpsc::{channel, Receiver, Sender};
fn pull(jobs: &Receiver<u32>) -> u32 {
    let job = jobs.recv().expect("a sender"); // line 3
    job + 1
}
fn work(jobs: Receiver<u32>, _keeps: Sender<u32>) {
    let mut sum = 0;
    while sum < 1000 { sum += pull(&jobs); }
    println!("{sum}");
}
fn main() {
    let (sender, jobs) = channel();
    let keeps = sender.clone();
    let worker = std::thread::spawn(move || work(jobs, keeps));
    sender.send(1).expect("a receiver");
    drop(sender);
    println!("ready");
    worker.join().expect("it ended"); // line 18
}
"""

PYTHON = """\
import threading, time
ONE, OTHER = threading.Lock(), threading.Lock()
def forth():
    turn = [7]
    with ONE:
        time.sleep(0.2)
        with OTHER: pass
def back():
    with OTHER:
        time.sleep(0.2)
        with ONE: pass
threads = [threading.Thread(target=work) for work in (forth, back)]
for thread in threads: thread.start()
print("ready", flush=True)
for thread in threads: thread.join()
"""


LIMITED = """\
import queue, threading
jobs, stopping = queue.Queue(), threading.Event()
def work():
    while not stopping.is_set():
        try:
            jobs.get(timeout=20)
        except queue.Empty:
            continue
worker = threading.Thread(target=work)
worker.start()
print("ready", flush=True)
worker.join()
"""


def build(folder: Path, *options: str) -> Path:
    source = folder / "locks.c"
    source.write_text(LOCKS)
    return compiled(folder / "locks", source, "-pthread", *options)


def told(report: dict[str, Any]) -> list[tuple[str | None, str | None, int | None]]:
    at = [link["at"] for link in report["links"]]
    return [(one["function"], one["file"] and Path(one["file"]).name, one["line"]) for one in at]


def locals_of(report: dict[str, Any], function: str) -> dict[str, str] | None:
    calls = [call for stack in report["stacks"] for call in stack["frames"]]
    found: dict[str, str] | None = next(
        call.get("locals") for call in calls if call["function"] == function
    )
    return found


@pytest.mark.parametrize("optimised", ["-O0", "-O2"])
def test_each_link_names_the_line_of_the_program(tmp_path: Path, optimised: str) -> None:
    program = build(tmp_path, "-g", optimised)
    with started([program]) as process:
        time.sleep(0.5)
        report = why(process.pid)
        text = flagfinder("why", process.pid).stdout
    assert report["root"]["kind"] == "deadlock", report["story"]
    assert told(report) == [
        ("main", "locks.c", 25),
        ("take", "locks.c", 11),
        ("take", "locks.c", 11),
    ]
    callers = [link["at"]["called_at"] for link in report["links"][1:]]
    assert {(one["function"], one["line"]) for one in callers} == {("one", 14), ("two", 15)}
    text = " ".join(text.split())
    assert "at take() locks.c:11, called at two() locks.c:15, waits for mutex" in text
    assert " of process " not in text


def test_without_lines_the_function_is_named(tmp_path: Path) -> None:
    with started([build(tmp_path, "-g0", "-O1")]) as process:
        time.sleep(0.5)
        report = why(process.pid)
    assert told(report) == [("main", None, None), ("take", None, None), ("take", None, None)]


def test_a_thread_in_the_systems_code_alone_is_nowhere() -> None:
    with started(["sleep", "1000"]) as process:
        time.sleep(0.3)
        report = why(process.pid)
    assert [link["at"] for link in report["links"]] == [None]
    assert report["root"]["at"] is None


def test_of_a_python_wait_that_the_clock_ends_the_loop_around_it_is_told(tmp_path: Path) -> None:
    script, out = tmp_path / "work.py", tmp_path / "stdout"
    script.write_text(LIMITED)
    with out.open("wb") as stdout, started([sys.executable, script], stdout=stdout) as process:
        wait_until(process, lambda: out.read_text() == "ready\n")
        report = why(process.pid)
    waits = "waits for `jobs.get()`, in a loop that ends when `stopping.is_set()`"
    assert any(f"at work() work.py:6 {waits}" in line for line in report["story"]), report["story"]


def test_python_s_own_lines_are_named_and_its_library_s_are_not(tmp_path: Path) -> None:
    script, out = tmp_path / "work.py", tmp_path / "stdout"
    script.write_text(PYTHON)
    with out.open("wb") as stdout, started([sys.executable, script], stdout=stdout) as process:
        wait_until(process, lambda: out.read_text() == "ready\n")
        time.sleep(0.5)
        report = why(process.pid, "--stacks")
        with_locals = why(process.pid, "--stacks", "--locals")
    assert told(report) == [
        ("<module>", "work.py", 15),
        ("forth", "work.py", 7),
        ("back", "work.py", 11),
    ]
    assert "at forth() work.py:7 waits for `with OTHER`, owed" in report["story"][1]
    names = [[call["function"] for call in stack["frames"]] for stack in report["stacks"]]
    waits = next(calls for calls in names if "forth" in calls)
    place = waits.index("forth")
    assert waits[place + 1] == "Thread.run", waits
    assert "_PyEval_EvalFrameDefault" not in waits, "Python's calls stand there"
    assert place > 0, "the machine's calls within stand in front"
    own = [
        call["function"] for stack in report["stacks"] for call in stack["frames"] if call["own"]
    ]
    assert set(own) == {"forth", "back", "<module>"}
    assert [locals_of(one, "forth") for one in (report, with_locals)] == [None, {"turn": "[7]"}]


def test_threads_that_wait_alike_are_shown_once(tmp_path: Path) -> None:
    with started([build(tmp_path, "-g", "-O1")]) as process:
        time.sleep(0.5)
        text = flagfinder("why", process.pid, "--stacks").stdout
    assert text.count("5 threads: ") == 1, text
    assert text.count("  idle() locks.c:16\n") == 1, text
    assert text.count("  take() locks.c:11\n") == 2, "their callers differ"


# How a debugger is called, what begins a command, where ours is, and what loads it.
IN_GDB = ROOT / "flagfinder" / "report" / "debuggers" / "in_gdb_session.py"
IN_LLDB = shipped("lldb_scripts", "flagfinder_lldb.py")
DEBUGGERS = {
    "gdb": (["gdb", "-nx", "-batch"], "-ex", f"source {IN_GDB}"),
    "lldb": (["--no-lldbinit", "--batch"], "-o", f"command script import {IN_LLDB}"),
}
in_debuggers = pytest.mark.parametrize("debugger", DEBUGGERS)


def inside(debugger: str, patient: Sequence[object], *says: str) -> tuple[str, str]:
    """What it prints to these commands, and what to stderr."""
    begin, option, loads = DEBUGGERS[debugger]
    if debugger == "lldb":
        begin = [find_lldb() or "lldb", *begin]
    if shutil.which(begin[0]) is None:
        live_or_skip(f"there is no {debugger}")
    commands = [word for one in (loads, *says) for word in (option, one)]
    path = f"{Path(FLAGFINDER[0]).parent}:{os.environ['PATH']}"
    ran = run([*begin, *patient, *commands], timeout=120, env={"PATH": path})
    return " ".join(ran.stdout.split()), ran.stderr


DEADLOCK = re.compile(r"deadlock: .* at take\(\) locks.c:11 wait for each other")


@in_debuggers
def test_a_debugger_has_the_command_and_keeps_the_process(debugger: str, tmp_path: Path) -> None:
    program = build(tmp_path, "-g", "-O1")
    turns, which = {"gdb": ("thread 2", "thread"), "lldb": ("thread select 2", "thread info")}[
        debugger
    ]
    with started([program]) as process:
        time.sleep(0.5)
        told, errors = inside(
            debugger, ["-p", process.pid], turns, "flagfinder why", which, "flagfinder diff"
        )
        assert process.poll() is None
    assert DEADLOCK.search(told), told + errors
    held_again = told.partition("next:")[2]
    assert re.search(r"Current thread is 2|thread #2: tid", held_again), "as it was"
    assert "why" in errors and "spin" in errors, "diff is none of a debugger's"


@in_debuggers
def test_a_debugger_has_the_command_for_a_core(debugger: str, tmp_path: Path) -> None:
    program, core = build(tmp_path, "-g", "-O1"), tmp_path / "core"
    with started([program]) as process:
        time.sleep(0.5)
        assert _core.write_core(process.pid, str(core)) == []
    told, errors = inside(debugger, ["-c", core], "flagfinder why")
    assert DEADLOCK.search(told), told + errors


# lldb executes no further command of a batch where a program got a signal that ends it.
AT = {
    ("gdb", "breakpoint"): ["break main", "run"],
    ("gdb", "step"): ["break main", "run", "stepi"],
    ("gdb", "signal"): ["break main", "run", "set $pc = 0", "continue"],
    ("lldb", "breakpoint"): ["b main", "run"],
    ("lldb", "step"): ["b main", "run", "si"],
}


@pytest.mark.parametrize(("debugger", "where"), AT)
def test_a_process_that_would_go_on_from_there_is_not_asked(
    debugger: str, where: str, tmp_path: Path
) -> None:
    """Or die of the signal; nor is a program without a process."""
    program = build(tmp_path, "-g", "-O1")
    told, errors = inside(debugger, [program], *AT[debugger, where], "flagfinder why")
    assert "and would go on from there" in errors, told + errors
    assert "waits for" not in told
    told, errors = inside(debugger, [program], "flagfinder why")
    assert re.search("neither a process|no stopped process", errors), errors


GENERATED = """\
"use strict";
const { execSync } = require('child_process');
function waits() { execSync('sleep 1000'); }
waits();
"""
# Its second line comes from line 10, the others from 20 and 21 of waits.ts; the first is its own.
SOURCE_MAP = b'{"version":3,"sources":["waits.ts"],"mappings":";AASA;AAUA;AACA"}'


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_place_in_a_compiled_script_is_one_of_its_source(
    is_compiled: bool, tmp_path: Path
) -> None:
    """So that no line of a file is named that the file may not have (jest, vitest)."""
    if shutil.which("node") is None:
        live_or_skip("node is not installed")
    script = tmp_path / "waits.js"
    url = f"data:application/json;charset=utf-8;base64,{base64.b64encode(SOURCE_MAP).decode()}"
    script.write_text(GENERATED + is_compiled * f"//# sourceMappingURL={url}\n")
    with started(["node", script]) as process:
        time.sleep(1)
        link = why(process.pid)["links"][0]
    where = (link["at"]["function"], Path(link["at"]["file"]).name, link["at"]["line"])
    assert where == (("waits", "waits.ts", 20) if is_compiled else ("waits", "waits.js", 3))


RUNS = """\
"use strict";
function spins() {
    let sum = 0;
    while (!globalThis.never) sum += 1;
    return sum;
}
function begins() { return spins(); }
console.log("ready");
begins();
"""


def test_a_function_of_javascript_that_runs_is_told(tmp_path: Path) -> None:
    if shutil.which("node") is None:
        live_or_skip("node is not installed")
    script = tmp_path / "runs.js"
    script.write_text(RUNS)
    with started(["node", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        report = why(process.pid)
    # It computes, or is seen to poll.
    at = (report["links"] or [report["root"]])[0]["at"]
    assert (at["function"], Path(at["file"]).name) == ("spins", "runs.js")
    called = at["called_at"]
    assert (called["function"], called["line"]) == ("begins", 7)


AWAITS = """\
"use strict";
const http = require("node:http");
async function lost() { await new Promise(() => {}); }
async function page() { await lost(); }
async function over() { await 1; }
async function main(isLost) {
    await over();
    if (isLost) await page();
}
http.createServer(() => {}).listen(0, "127.0.0.1", () => {
    main(process.argv[2] === "lost");
    setTimeout(() => console.log("ready"), 100);
});
"""


@pytest.mark.parametrize("which", ["lost", "over"])
def test_the_innermost_async_function_that_is_suspended_is_told(which: str, tmp_path: Path) -> None:
    if shutil.which("node") is None:
        live_or_skip("node is not installed")
    script = tmp_path / "awaits.js"
    script.write_text(AWAITS)
    with started(["node", script, which], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        report = why(process.pid)
    root = report["root"]
    if which == "over":
        assert root["kind"] == "input" and root["at"] is None, report["story"]
        return
    assert root["kind"] == "unknown", report["story"]
    assert root["what"].startswith("lost() at awaits.js:3 is suspended in `await`"), root
    assert (root["at"]["function"], root["at"]["line"]) == ("lost", 3)


def test_the_place_behind_frames_that_keep_a_frame_pointer(tmp_path: Path) -> None:
    if shutil.which("rustc") is None:
        live_or_skip("rustc is not installed")
    (tmp_path / "receives.rs").write_text(RECEIVES, encoding="utf-8")
    built = run(["rustc", "-O", "-g", "receives.rs"], timeout=120, cwd=tmp_path)
    assert built.returncode == 0, built.stderr
    with started([tmp_path / "receives"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        wait_until(process, lambda: len(why(process.pid)["links"]) > 1)
        joins, receives = why(process.pid)["links"][:2]
    assert (joins["at"]["line"], receives["at"]["line"]) == (18, 3)
    called = receives["waits_for"]["name"]
    assert called.startswith("std::sync::") and called.endswith("::recv()"), called
