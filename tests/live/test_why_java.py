# SPDX-License-Identifier: MIT
"""`flagfinder why` on Java: who has the monitor or lock that a thread waits for."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import flagfinder, live_or_skip, started, wait_until
from planted import SOURCES
from sizes import in_turn

NAMES = {
    "monitor": "the monitor of java.lang.Object",
    "lock": "java.util.concurrent.locks.ReentrantLock$",
}

# In which method, and in what line. An interpreter that enters a monitor has gone on already.
WAITS = {
    "monitor": ("hold", ("synchronized (other)", "not reached")),
    "lock": ("lock", ("other.lock();",)),
}


def why_of(
    how: str,
    tmp_path: Path,
    *more: str,
    program: str = "TwoLocks.java",
    stands: Callable[[], object] = lambda: None,
) -> dict[str, Any]:
    """What `why` tells of it, once ``stands`` has returned."""
    java = shutil.which("java")
    if java is None:
        live_or_skip("java is not installed")
    out = tmp_path / "stdout"
    command = [java, "-Xmx64m", SOURCES / program, how, *more]
    with (
        out.open("wb") as stdout,
        started(command, stdin=subprocess.PIPE, stdout=stdout) as process,
    ):
        wait_until(process, lambda: "started" in out.read_text())
        stands()
        time.sleep(1.5)  # each holds its own
        ran = flagfinder("why", "--json", str(process.pid), timeout=120)
    report: dict[str, Any] = json.loads(ran.stdout)
    return report


@pytest.mark.live
@pytest.mark.parametrize("how", in_turn(NAMES))
def test_two_threads_that_hold_each_others_lock(how: str, tmp_path: Path) -> None:
    report = why_of(how, tmp_path)
    assert report["root"]["kind"] == "deadlock", report["story"]
    links = {link["waiter"]["name"]: link for link in report["links"]}
    for waiter, owner in (("one", "two"), ("two", "one")):
        link = links[waiter]
        assert (link["owed_by"]["name"], link["known"]) == (owner, "seen"), report["story"]
        assert link["waits_for"]["name"].startswith(NAMES[how]), report["story"]
        function, statements = WAITS[how]
        line = SOURCES.joinpath("TwoLocks.java").read_text().split("\n")[link["at"]["line"] - 1]
        assert link["at"]["function"] == f"TwoLocks.{function}", report["story"]
        assert any(one in line for one in statements), report["story"]


@pytest.mark.live
@pytest.mark.parametrize("mode", ["-Xint", "-Xcomp"])
def test_stacks_have_java_s_calls_with_their_lines(mode: str, tmp_path: Path) -> None:
    """As the interpreter has them, and of compiled code. jstack tells the truth."""
    java, jstack = shutil.which("java"), shutil.which("jstack")
    if java is None or jstack is None:
        live_or_skip("no JDK is installed")
    out = tmp_path / "stdout"
    subprocess.run(["javac", "-d", tmp_path, SOURCES / "TwoLocks.java"], check=True)
    command = [java, mode, "-Xmx64m", "-cp", tmp_path, "TwoLocks", "monitor"]
    with (
        out.open("wb") as stdout,
        started(command, stdin=subprocess.PIPE, stdout=stdout) as process,
    ):
        wait_until(process, lambda: "started" in out.read_text())
        time.sleep(1.5)
        pid = str(process.pid)
        ran = flagfinder("why", "--json", "--stacks", pid, timeout=120)
        told = subprocess.run([jstack, pid], capture_output=True, text=True, check=True).stdout
    of_java = re.compile(r"at ([\w./$@]+)\((?:[^()/]*/)?\w+\.java:(\d+)\)")
    stacks = {one["name"]: one["frames"] for one in json.loads(ran.stdout)["stacks"]}
    for name in ("one", "two"):
        of_thread = told.partition(f'"{name}" ')[2].partition("\n\n")[0]
        truth = [
            (method.rpartition("/")[2], int(line)) for method, line in of_java.findall(of_thread)
        ]
        frames = [(one["function"], one["line"]) for one in stacks[name]]
        assert len(truth) > 1
        assert [one for one in frames if one in truth] == truth


@pytest.mark.live
def test_threads_of_the_machine_itself_do_not_hang(tmp_path: Path) -> None:
    """One of them wakes again and again and asks whether it is to stop."""
    report = why_of("read", tmp_path)
    waiters = [link["waiter"]["name"] for link in report["links"]]
    assert "one" in waiters, report["story"]
    assert not any(name.startswith("VM ") for name in waiters), report["story"]


@pytest.mark.live
def test_a_pools_thread_does_not_wait_for_the_worker_that_it_runs(tmp_path: Path) -> None:
    """The worker is a lock, which its thread has for as long as it is at work."""
    report = why_of("pool", tmp_path)
    assert report["root"]["kind"] != "deadlock", report["story"]
    waits = " ".join(link["waits_for"]["name"] for link in report["links"])
    assert "Worker" not in waits, report["story"]
    names = [link["waiter"]["name"] for link in report["links"]]
    assert "pool-1-thread" in " ".join([*names, report["root"]["what"]]), report["root"]


@pytest.mark.live
def test_a_task_that_its_own_pool_would_have_to_run(tmp_path: Path) -> None:
    """Threads of Java's library wait for a time, and are none of those that could end the wait."""
    report = why_of("nested", tmp_path)
    assert report["root"]["kind"] == "deadlock", report["story"]
    waits = {link["waiter"]["name"]: link["waits_for"]["name"] for link in report["links"]}
    assert waits["one"] == "the result of a FutureTask", report["story"]
    assert waits["pool-1-thread-1"].endswith("that no thread runs"), report["story"]
    known = {link["known"] for link in report["links"]}
    assert known == {"seen"} and not report["root"]["assumed"], report["story"]
    assert report["next"] == [f"flagfinder why {report['pid']} --stacks"]


@pytest.mark.live
def test_a_thread_that_the_collector_keeps_is_in_no_deadlock(tmp_path: Path) -> None:
    report = why_of("garbage", tmp_path)
    assert report["root"]["kind"] == "computes", report["story"]
    assert "it collects garbage" in report["root"]["what"], report["story"]


@pytest.mark.live
@pytest.mark.parametrize(
    ("how", "names", "known"),
    [
        ("static", ["Polled.done", "Polled.cancelled", "Polled.total"], "by-code"),
        ("field", ["Polled.state", "Polled.goal"], "by-code"),
        # Of the same class, and not known to be the same object.
        ("other", ["Polled.state", "Polled.goal"], "assumed"),
    ],
)
def test_who_writes_a_field_that_a_loop_polls(
    how: str, names: list[str], known: str, tmp_path: Path
) -> None:
    report = why_of(how, tmp_path, program="Polled.java")
    link = next(link for link in report["links"] if link["waits_for"]["kind"] == "flag")
    asked = link["waits_for"]["name"].split(" or ")
    assert (asked[0], set(asked)) == (names[0], set(names)), report["story"]
    assert link["at"]["function"].split(".")[0] == "Polled"
    if known == "assumed":
        assert (link["known"], report["root"]["kind"]) == (known, "unknown"), report["story"]
        return
    assert (link["known"], link["owed_by"]["name"]) == (known, "finisher"), report["story"]
    assert (report["root"]["kind"], report["root"]["assumed"]) == ("timer", False), report["story"]


@pytest.mark.live
@pytest.mark.parametrize("how", ["nobody", "works", "counts", "waits"])
def test_a_loop_that_works_polls_no_field_and_nobody_is_made_up(how: str, tmp_path: Path) -> None:
    report = why_of(how, tmp_path, program="Polled.java")
    flags = [link["waits_for"]["name"] for link in report["links"] if link["owed_by"]]
    assert not any("Polled" in name for name in flags), report["story"]
    told = " ".join(report["story"])
    assert ("Polled.state or Polled.goal" in told) == (how == "nobody"), told
    kinds = ("unknown",) if how == "nobody" else ("unknown", "computes")
    assert report["root"]["kind"] in kinds, told


# Says its port, and that it was asked; it never answers.
SERVER = """
import socket, time
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    connection, _ = server.accept()
    connection.recv(1)
    print("asked", flush=True)
    time.sleep(1000)
"""


@pytest.mark.live
def test_an_answer_that_another_thread_reads_is_owed_by_the_server(tmp_path: Path) -> None:
    """Beside the connection, that thread waits for what threads of its own process ask of it."""
    with started([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        # A machine with much to do takes seconds to load Java's client.
        report = why_of("http", tmp_path, port, stands=server.stdout.readline)
    owing = {link["waiter"]["name"]: link["owed_by"] for link in report["links"]}
    assert "HttpClient-1-Se" in owing, report["story"]
    assert owing["HttpClient-1-Se"]["pid"] == server.pid, report["story"]


# Of each way to wait: the kind of the root, and whether it is assumed (None: it is no deadlock; the
# test itself may be the root, which has the other end of stdin); who waits for whom; and where one
# of them stands.
OWED = {
    "future": ("input", None, ["java", "feed"], "Owed.feed"),
    "listeners": ("timer", True, ["java", "teller", "sleep"], "Owed.tell"),
    "room": ("timer", False, ["java", "writer", "compactor", "sleep"], "Owed.compact"),
    "crossed": ("deadlock", False, ["taker", "reader", "taker"], "Owed.take"),
    "ended": ("unknown", None, ["java"], "Owed.sum"),
    "barrier": ("unknown", None, ["java", "part-0"], "Owed.part"),
    "nested": ("deadlock", False, ["java", "pool-1-thread-1", "pool-1-thread-1"], "Owed.page"),
    "child": ("deadlock", False, ["java", "pool-1-thread-1", "sh"], "Owed.convert"),
    "sleeps": ("timer", False, ["java", "vacuum"], "Owed.hold"),
    "condition": ("input", None, ["java", "loader"], "Owed.signal"),
}


@pytest.mark.live
@pytest.mark.parametrize("how", in_turn(OWED))
def test_who_is_to_end_a_wait_that_names_no_owner(how: str, tmp_path: Path) -> None:
    """Who has the object at hand and comes to the call that ends such waits."""
    report = why_of(how, tmp_path, program="Owed.java")
    kind, is_assumed, chain, at = OWED[how]
    root = report["root"]
    if is_assumed is None:
        assert root["kind"] != "deadlock", report["story"]
    else:
        assert (root["kind"], root["assumed"]) == (kind, is_assumed), report["story"]
    owing = {link["waiter"]["name"]: link["owed_by"] for link in report["links"]}
    for waiter, owed_by in itertools.pairwise(chain):
        found = owing.get(waiter)
        assert found is not None and found["name"] == owed_by, report["story"]
    places = [link["at"]["function"] for link in report["links"] if link["at"]]
    assert at in places, report["story"]


@pytest.mark.live
def test_threads_at_rest_owe_nothing(tmp_path: Path) -> None:
    report = why_of("rest", tmp_path, program="Owed.java")
    assert report["root"]["kind"] in ("unknown", "deadlock"), report["story"]
    assert report["root"]["kind"] == "unknown" or report["root"]["assumed"], report["story"]


@pytest.mark.live
@pytest.mark.parametrize("how", ["stages", "alone"])
def test_a_stage_waits_for_the_task_before_it(how: str, tmp_path: Path) -> None:
    report = why_of(how, tmp_path, program="Stages.java")
    places = [link["at"]["function"] for link in report["links"] if link["at"]]
    known = [link["known"] for link in report["links"]]
    is_told = "by-reference" in known and "Stages.read" in places
    assert is_told == (how == "stages"), report["story"]
