# SPDX-License-Identifier: MIT
"""`watch` on real processes, with real breakpoints. Needs root (or CAP_BPF and CAP_PERFMON), and
lldb.

What all backends can is tested with all; `test_watch_backends.py` has what they do to the process.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import assert_four_parts, flagfinder
from sizes import in_turn
from watching import (
    callers,
    in_function,
    run_watched,
    target,
    values,
    watching,
)

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]
RING_BYTES = 64 << 20  # `hits` in bpf/watch.bpf.c
RECORD_BYTES = 1024  # struct ff_watch_hit is smaller


@pytest.mark.parametrize(("backend", "writes"), [("perf", 200), ("perf", 20_000), ("lldb", 50)])
def test_every_planted_write_is_seen_or_counted(writers: Path, backend: str, writes: int) -> None:
    threads = 8
    planted = ["planted", str(threads), str(writes)]
    _, events, end = run_watched(writers, planted, "writers", "word64", "--backend", backend)
    assert end["hits"] == threads * writes
    assert end["events"] + end["lost"]["total"] == threads * writes
    assert sum(end["lost"]["cpus"].values()) == end["lost"]["total"]
    assert len(events) == end["events"]
    seen: dict[int, list[int]] = {}
    for event in events:
        value = int(event["value"], 16)
        seen.setdefault(value >> 32, []).append(value & 0xFFFFFFFF)
        assert in_function(event) == "planted"
    assert sorted(seen) == list(range(1, threads + 1))  # threads that started after the watch
    for numbers in seen.values():
        assert numbers == sorted(set(numbers)), "one thread's writes come once and in order"
    if end["lost"]["total"] == 0:
        assert all(numbers == list(range(1, writes + 1)) for numbers in seen.values())
    # What fits into the ring is never lost, even if nobody empties it meanwhile.
    assert end["events"] >= min(threads * writes, RING_BYTES // RECORD_BYTES)


@pytest.mark.parametrize("reads", [[], ["--reads"]], ids=["writes", "reads"])
@pytest.mark.parametrize(
    ("word", "size", "first", "second"),
    in_turn(
        [
            ("word8", 1, 0x11, 0x51),
            ("word16", 2, 0x2222, 0x6262),
            ("word32", 4, 0x33333333, 0x73737373),
            ("word64", 8, 0x4444444444444444, 0x8484848484848484),
        ],
        turn=1,
    ),
)
def test_values_of_all_sizes(
    writers: Path,
    word: str,
    size: int,
    first: int,
    second: int,
    reads: list[str],
    backend: list[str],
) -> None:
    header, events, end = run_watched(writers, ["sizes"], "writers", word, *reads, *backend)
    assert header["backend"] == backend[-1]
    watch = header["watches"][0]
    assert (watch["size"], watch["value"]) == (size, "0x0")
    assert watch["data"]["symbol"] == word
    assert values(events) == [("w", "0x0", hex(first)), ("w", hex(first), hex(second))]
    assert {in_function(event) for event in events} == {"write_sizes"}
    assert callers(events[0])[:1] == ["main"]
    assert end["lost"]["total"] == 0


def test_updates_tell_what_they_found_and_left(writers: Path, backend: list[str]) -> None:
    _, events, _ = run_watched(writers, ["update"], "writers", "word32", *backend)
    assert values(events) == [
        ("w", "0x0", "0x5"),
        ("w", "0x5", "0x7"),
        ("w", "0x7", "0x8"),
        ("r", "0x8", "0x8"),  # a compare-and-exchange that failed
        ("w", "0x8", "0x14"),
        ("w", "0x14", "0x1e"),
        ("w", "0x1e", "0x1f"),
    ]


def test_updates_under_read_write_breakpoints(writers: Path, backend: list[str]) -> None:
    """What instructions don't prove is null or true, never wrong."""
    _, events, _ = run_watched(writers, ["update"], "writers", "word32", "--reads", *backend)
    kinds = "".join(event["event"].removeprefix("data_flag_")[0] for event in events)
    assert kinds == "wwrwrwww"
    truth = ["0x5", "0x7", "0x7", "0x8", "0x8", "0x14", "0x1e", "0x1f"]
    assert [event["value"] or true for event, true in zip(events, truth, strict=True)] == truth
    assert [event["value"] for event in events[1:6]] == truth[1:6]


def test_reads_are_told_from_writes_and_thinned(writers: Path, backend: list[str]) -> None:
    stops = backend[-1] == "lldb"  # a hit takes it milliseconds, 10 us where nobody stops
    spin = ["spin", "3000" if stops else "300"]
    _, events, end = run_watched(writers, spin, "writers", "word32", "--reads", *backend)
    spinning = [event for event in events if in_function(event) == "spin_until_set"]
    setting = [event for event in events if in_function(event) == "set_flag"]
    assert values(setting) == [("w", "0x0", "0x1")]
    assert {event["event"] for event in spinning} == {"data_flag_read"}
    before = [event for event in spinning if event["ts"] < setting[0]["ts"]]
    assert {event["value"] for event in before} == {"0x0"}
    assert spinning[-1]["value"] == "0x1"
    assert events == sorted(events, key=lambda event: event["ts"])
    # The events are few, though the reader spins all the time.
    assert len(events) < 20
    assert sum(event["reads"] for event in spinning) > (5 if stops else 1000)
    assert end["hits"] == sum(event.get("reads", 1) for event in events)


def test_writes_alone_leave_reads_alone(writers: Path, backend: list[str]) -> None:
    _, events, end = run_watched(writers, ["spin", "300"], "writers", "word32", *backend)
    assert values(events) == [("w", "0x0", "0x1")]
    assert end["hits"] == 1


def test_the_kernel_s_writes_are_seen(writers: Path) -> None:
    _, events, _ = run_watched(writers, ["kernel"], "writers", "word32")
    assert {event["syscall"] for event in events} == {0}
    assert events[-1]["value"] == "0x1234"
    assert {event["code"]["module"] for event in events} == {"libc.so.6"}
    assert "main" in callers(events[0])


def test_an_access_path_is_followed_through_the_process(
    writers: Path, attaching: list[str]
) -> None:
    header, events, _ = run_watched(writers, ["pool"], "--expr", "pool->current->state", *attaching)
    data = header["watches"][0]["data"]
    assert (data["symbol"], data["field"]) == ("the_pool", ".workers[2].state")
    assert values(events) == [("w", "0x0", "0x2a")]


def test_four_at_once(writers: Path, backend: list[str]) -> None:
    words = [word for index in range(4) for word in ("--expr", f"flags[{index}]")]
    _, events, _ = run_watched(writers, ["flags"], *words, *backend)
    assert [(e["watch"], e["value"]) for e in events] == [
        (1, "0x1"),
        (2, "0x2"),
        (3, "0x3"),
        (4, "0x4"),
    ]


def test_a_fifth_is_refused(writers: Path) -> None:
    words = [word for index in range(4) for word in ("--expr", f"flags[{index}]")]
    with target(writers, "flags") as running:
        refused = flagfinder("watch", str(running.pid), *words, "--expr", "flags[4]")
        assert refused.returncode == 2
        assert_four_parts(refused.stderr, "debug registers")
        # Four of ours are taken: another watch meets the kernel's ENOSPC.
        with watching(running.pid, *words):
            refused = flagfinder("watch", str(running.pid), "--expr", "flags[4]")
            assert refused.returncode == 2
            assert_four_parts(refused.stderr, "a CPU has none left")


def test_thread_local_of_one_thread(writers: Path, attaching: list[str]) -> None:
    with target(writers, "own") as running:
        running.until("tid")
        tid = running.printed["tid"]
        unnamed = flagfinder("watch", str(running.pid), "writers", "own")
        assert unnamed.returncode == 2
        assert_four_parts(unnamed.stderr, str(tid))
        with watching(running.pid, "writers", "own", "--thread", str(tid), *attaching) as watcher:
            running.go()
            running.until("done")
            watcher.stop()
            events, end = watcher.rest()
    assert end["reason"] == "interrupted"
    assert watcher.exit_code == 130
    assert watcher.header["watches"][0]["data"]["kind"] == "tls"
    assert values(events) == [("w", "0x1", "0x4d")]
    assert events[0]["tid"] == tid
