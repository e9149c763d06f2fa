# SPDX-License-Identifier: MIT
"""`watch --backend frida -- PROGRAM` tells the same as perf, and the program does not notice.

For perf the same program waits in the same place: in the gate of Frida's library, before `main`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import FLAGFINDER, ROOT, assert_four_parts, compiled, flagfinder, live_or_skip, run
from watching import STARTED, Watcher, in_function, run_started, values

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]
PROGRAMS = ROOT / "tests" / "live" / "programs"
Events = list[dict[str, Any]]


def agent_library() -> str:
    asked = run(
        [
            sys.executable,
            "-P",
            "-c",
            "from flagfinder.record.stalker import library; print(library())",
        ],
        timeout=60,
    )
    return asked.stdout.strip()


@contextlib.contextmanager
def at_the_gate(program: Path) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """The program before its `main`; a byte lets it go on."""
    ours, theirs = socket.socketpair()
    environment = {
        **os.environ,
        "LD_PRELOAD": agent_library(),
        "FF_FRIDA_GATE": str(theirs.fileno()),
    }
    with ours, theirs:
        waiting = subprocess.Popen(
            [program, "normal"],
            env=environment,
            pass_fds=(theirs.fileno(),),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        assert ours.recv(1)
        try:
            yield waiting, ours
        finally:
            waiting.kill()
            waiting.wait()


def by_perf(program: Path, *words: str) -> Events:
    if os.geteuid() != 0:
        live_or_skip("watching needs CAP_BPF and CAP_PERFMON; run as root")
    with at_the_gate(program) as (waiting, gate):
        watcher = Watcher(waiting.pid, *words, "--backend", "perf")
        gate.send(b"\0")
        events, end = watcher.rest()
    assert end["lost"]["total"] == 0
    return events


# It is for users without any.
NO_PRIVILEGE = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []


def by_frida(program: Path, *words: str) -> Events:
    done = run(
        [
            *NO_PRIVILEGE,
            *FLAGFINDER,
            "watch",
            *words,
            "--backend",
            "frida",
            "--json-lines",
            "--",
            program,
            "normal",
        ],
        timeout=60,
    )
    header, *events, end = map(json.loads, done.stdout.splitlines())
    assert (header["backend"], end["reason"], end["lost"]["total"]) == (
        "frida",
        "target-ended",
        0,
    ), done.stderr
    return events


def told(events: Events) -> tuple[Counter[tuple[str, str]], dict[str, tuple[str, str]]]:
    """Each write with its code and what it left; each reader with the first and the last value that
    it saw: which it sees in between is up to the scheduler.
    """
    writes: Counter[tuple[str, str]] = Counter()
    readers: dict[str, tuple[str, str]] = {}
    for event in events:
        function, value = in_function(event), event["value"]
        if event["event"] == "data_flag_write":
            writes[function, value] += 1
        else:
            readers[function] = (readers.get(function, (value,))[0], value)
    return writes, readers


@pytest.mark.parametrize(
    ("sample", "word", "writes"),
    [
        ("global_flag", "config_ready", 1),
        ("bitmask", "subsystems", 3),
        ("two_flags", "reply_ready", 1),
    ],
)
def test_it_tells_the_same_as_perf(sample: str, word: str, writes: int, tmp_path: Path) -> None:
    program = compiled(tmp_path / sample, ROOT / "samples" / f"{sample}.c")
    ours = told(by_frida(program, sample, word, "--reads"))
    assert ours == told(by_perf(program, sample, word, "--reads"))
    assert ours[0].total() == writes
    assert ours[1]


def sites(program: Path) -> list[str]:
    """Those of `display.c` that read and write `need_display`, as words of the command line."""
    listing = run(["objdump", "-d", "--no-show-raw-insn", program], timeout=60).stdout
    words = []
    for function in ("set_needs_display", "needs_display", "draw"):
        body = listing[listing.index(f"<{function}>:") :].partition("\n\n")[0]
        accesses = re.findall(r"^\s*([0-9a-f]+):.*0x3c\(%rdi\)", body, re.MULTILINE)
        assert len(accesses) == 1, body
        words += ["--site", f"{program.name}+0x{accesses[0]}"]
    return words


def by_object(events: Events) -> list[list[tuple[str, str]]]:
    """What was done to each object, in the order in which they come up: code and value."""
    done: dict[str, list[tuple[str, str]]] = {}
    for event in events:
        done.setdefault(event["ref"], []).append((in_function(event), event["value"]))
    return list(done.values())


def test_hooks_tell_of_a_flag_in_every_object(tmp_path: Path) -> None:
    program = compiled(tmp_path / "display", PROGRAMS / "display.c")
    found = [by_object(watched(program, *sites(program))) for watched in (by_frida, by_perf)]
    for objects in found:
        assert len(objects) == 6
        for history in objects:
            writes = [
                (function, value) for function, value in history if function != "needs_display"
            ]
            assert writes == [("set_needs_display", "0x1"), ("draw", "0x0")] * 3
            assert {value for function, value in history if function == "needs_display"} == {
                "0x0",
                "0x1",
            }


def test_threads_that_block_signals_survive(writers: Path) -> None:
    _, events, _ = run_started(writers, ["masked"], "writers", "word32", "--backend", "frida")
    assert [value for _, _, value in values(events)] == ["0x1", "0x2"]


def test_the_program_goes_on_unwatched(writers: Path, tmp_path: Path) -> None:
    """After --until, and after the watch was killed: without hooks and watchpoints."""
    site = re.search(
        r"^\s*([0-9a-f]+):.*0x18\(%rdi\)$",
        run(["objdump", "-d", "--no-show-raw-insn", writers], timeout=60).stdout,
        re.MULTILINE,
    )
    assert site
    words = (
        "writers",
        "word32",
        "--site",
        f"writers+0x{site[1]}",
        "--until",
        "write",
        "--backend",
        "frida",
    )
    watch = subprocess.Popen(
        [
            *FLAGFINDER,
            "watch",
            *words,
            "-o",
            tmp_path / "events.jsonl",
            "-q",
            "--",
            writers,
            "spin",
            "0",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watch.stdin is not None
    assert watch.stdout is not None
    pid = 0
    for line in watch.stdout:
        if line.startswith("pid"):
            pid = int(line.split()[1])
        if line.startswith("ready"):
            break
    watch.stdin.write("go\ngo\n")
    watch.stdin.flush()
    assert watch.wait(timeout=STARTED) == 0
    last = json.loads((tmp_path / "events.jsonl").read_text().splitlines()[-1])
    assert (last["reason"], last["writes"]) == ("until", 1)
    watch.stdin.write("go\n")
    watch.stdin.close()
    deadline = time.monotonic() + STARTED
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "done 1" in watch.stdout.read()


def test_what_it_refuses(writers: Path) -> None:
    for words, found in (
        (("1", "app", "done", "--backend", "frida"), "running process"),
        (("app", "done", "--backend", "perf", "--", writers), "--backend perf starts no program"),
        (("app", "done", "--backend", "frida", "--"), "nothing behind --"),
        (("writers", "nope", "--backend", "frida", "--", writers, "sizes"), "nope"),
    ):
        refused = flagfinder("watch", *words)
        assert refused.returncode == 2
        assert_four_parts(refused.stderr, found)


def test_forked_children_start_threads(tmp_path: Path) -> None:
    """The agent is not in them: nothing may wait for it."""
    program = compiled(tmp_path / "forks", PROGRAMS / "forks.c")
    events = by_frida(program, "forks", "word")
    assert {in_function(event) for event in events} == {"write_word"}
    assert len({event["tid"] for event in events}) > 3
