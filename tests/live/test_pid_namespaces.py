# SPDX-License-Identifier: MIT
"""`watch`, `spin` and `poke` where pid namespaces are: inside one, and from outside on a process in
one.

A process has another id in each namespace that shows it; the ids told must be those of the
command's own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from harness import FLAGFINDER, assert_four_parts, children, pid_namespace, run
from watching import Target, in_function, target, values, watching

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]


@pytest.fixture
def inside() -> Iterator[list[str]]:
    with pid_namespace() as prefix:
        yield prefix


def started(inside: list[str], *words: str | Path) -> Target:
    """Runs a program in the namespace; the id that it prints is the one in there."""
    command, *rest = [*inside, *map(str, words)]
    running = Target(Path(command), *rest)
    assert running.printed["pid"] not in (running.pid, *children(running.pid)), "the ids do differ"
    return running


def id_outside(process: int, inner: int) -> int:
    """The id here of a process's thread with this id in its own namespace."""
    for task in Path(f"/proc/{process}/task").iterdir():
        ids = next(
            line for line in (task / "status").read_text().splitlines() if line.startswith("NSpid:")
        )
        if int(ids.split()[-1]) == inner:
            return int(task.name)
    raise AssertionError(f"process {process} has no thread {inner}")


@pytest.mark.parametrize("reads", [[], ["--reads"]], ids=["writes", "reads"])
def test_watch_sees_the_process_of_its_own_namespace(
    writers: Path, inside: list[str], reads: list[str]
) -> None:
    with closing(started(inside, writers, "planted", "3", "50")) as running:
        pid = running.printed["pid"]
        backend = ["--backend", "perf"]
        with watching(
            pid, "writers", "word64", *reads, *backend, "--until", "150", under=inside
        ) as watcher:
            running.go()
            events, end = watcher.rest()
    assert (end["hits"], end["lost"]["total"]) == (150, 0)
    assert {in_function(event) for event in events} == {"planted"}
    threads = {event["tid"] for event in events}
    assert len(threads) == 3
    assert all(pid < tid < pid + 50 for tid in threads), (
        f"{threads}: as this namespace counts them, from {pid} on"
    )


def test_watch_sees_a_thread_s_own_variable_inside(writers: Path, inside: list[str]) -> None:
    with closing(started(inside, writers, "own")) as running:
        running.until("tid")
        pid, tid = running.printed["pid"], running.printed["tid"]
        words = ["writers", "own", "--thread", str(tid), "--backend", "perf", "--until", "1"]
        with watching(pid, *words, under=inside) as watcher:
            running.go()
            events, _ = watcher.rest()
    assert values(events) == [("w", "0x1", "0x4d")]
    assert events[0]["tid"] == tid


def test_watch_sees_a_hooked_instruction_inside(writers: Path, inside: list[str]) -> None:
    with closing(started(inside, writers, "objects")) as running:
        symbols = run(["nm", writers], timeout=60).stdout.splitlines()
        offset = next(line.split()[0] for line in symbols if line.endswith(" request_display"))
        code = run(["objdump", "-d", "--disassemble=request_display", writers], timeout=60).stdout
        store = next(
            line.split(":")[0].strip()
            for line in code.splitlines()
            if "mov" in line and "%rdi)" in line
        )
        assert int(store, 16) >= int(offset, 16)
        words = ["--site", f"writers+0x{store}", "--backend", "perf", "--until", "5"]
        with watching(running.printed["pid"], *words, under=inside) as watcher:
            running.go()
            events, _ = watcher.rest()
    assert [event["value"] for event in events] == [f"{n:#x}" for n in range(1, 6)]
    assert {event["tid"] for event in events} == {running.printed["pid"]}


def test_watch_from_outside_tells_ids_as_outside(writers: Path, inside: list[str]) -> None:
    with closing(started(inside, writers, "own")) as running:
        running.until("tid")
        [pid] = children(running.pid)
        tid = id_outside(pid, running.printed["tid"])
        words = ["writers", "own", "--thread", str(tid), "--backend", "perf", "--until", "1"]
        with watching(pid, *words) as watcher:
            running.go()
            events, _ = watcher.rest()
    assert values(events) == [("w", "0x1", "0x4d")]
    assert events[0]["tid"] == tid


def test_spin_and_poke_inside(writers: Path, inside: list[str]) -> None:
    with closing(started(inside, writers, "spin", "0")) as running:
        running.go()
        pid = str(running.printed["pid"])
        told = run([*inside, *FLAGFINDER, "spin", pid, "--json"], timeout=60)
        report = json.loads(told.stdout)
        assert report["pid"] == int(pid), told.stderr
        [thread] = [thread for thread in report["threads"] if thread["flags"]]
        assert thread["flags"][0]["symbol"] == "word32"
        assert int(pid) < thread["tid"] < int(pid) + 50
        poked = run([*inside, *FLAGFINDER, "poke", pid, "--yes"], timeout=60)
        assert poked.returncode == 0, poked.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["watch", "PID", "writers", "word32"],
        ["watch", "PID", "writers", "word32", "--backend", "lldb"],
        ["events", "record", "-o", "x.events", "--pid", "PID"],
        ["events", "record", "-o", "x.events", "--", "true"],
        ["spin", "PID"],
        ["poke", "PID"],
        ["doctor", "--pid", "PID"],
    ],
    ids=lambda words: "-".join(words[:2]),
)
def test_a_proc_of_another_namespace_is_refused(
    writers: Path, tmp_path: Path, words: list[str]
) -> None:
    """Without its own /proc, the ids that the user sees are not those that calls take: a stranger
    might be watched.
    """
    with target(writers, "sizes") as running:
        command = [str(running.pid) if word == "PID" else word for word in words]
        refused = run(
            ["unshare", "--pid", "--fork", *FLAGFINDER, *command], timeout=60, cwd=tmp_path
        )
    assert refused.returncode == 69, refused.stderr
    assert_four_parts(refused.stderr, "pid namespace")


@pytest.mark.parametrize("verb", ["watch", "events"])
def test_capabilities_of_a_user_namespace_do_not_count(
    writers: Path, tmp_path: Path, verb: str
) -> None:
    words = {
        "watch": ["watch", "1", "app", "flag", "--backend", "perf"],
        "events": ["events", "record", "--all"],
    }[verb]
    options = ["-o", str(tmp_path / "x")]
    tmp_path.chmod(0o777)
    cache = {"FF_CACHE_DIR": os.environ.get("FF_CACHE_DIR", "/var/cache/flagfinder")}
    refused = run(
        ["unshare", "--user", "--map-root-user", *FLAGFINDER, *words, *options],
        timeout=60,
        cwd=tmp_path,
        env=cache,
    )
    assert refused.returncode == 77, refused.stderr
    assert_four_parts(refused.stderr, "user namespace")
    del writers
