# SPDX-License-Identifier: MIT
"""What the tracer writes is what the program did."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pool as p
import pytest
from harness import live_or_skip, record
from pool import Pool, Process, launch, trace

Program = Callable[..., Path]
SYSCALL = b"\x0f\x05"
EXIT_GROUP = 231


def _symbols(path: Path) -> dict[str, int]:
    listing = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
    return {
        words[2]: int(words[0], 16)
        for words in map(str.split, listing.splitlines())
        if len(words) == 3
    }


def _slots(process: Process, tid: int) -> Iterator[tuple[p.Block, list[int]]]:
    """Every block that the thread ran, with the values of its slots."""
    values = b"".join(chunk[3] for chunk in process.values[tid])
    at = 0
    for block in process.path_blocks(tid):
        found = []
        for slot in block.slots:
            found.append(int.from_bytes(values[at : at + slot.size], "little"))
            at += slot.size
        yield block, found


def test_values_are_what_was_loaded(tracer_dir: Path, program: Program) -> None:
    target = program("loads.c", "-static", "-nostdlib", "-no-pie")
    run = trace(tracer_dir, "values", [target])
    assert run.status == 7
    (tid,) = run.process.flow
    symbols = _symbols(target)
    found = {block.pc: values for block, values in _slots(run.process, tid)}
    q = [0x1111111111111111 * (i + 1) for i in range(9)]
    q[1] = 0x2222222222222285
    assert found[symbols["probe"]] == [
        q[0], 0x85, 0x85, q[2] & 0xFFFFFFFF, q[3], q[4], q[5], q[6],
        0x88, 0x99, q[8], q[8], q[8], q[0], q[0], 0x2285,
    ]  # fmt: skip
    assert found[symbols["crowded"]][:5] == [q[0], q[2], q[3], q[2], q[3]]
    data = symbols["ff_data"]
    assert sorted(found[symbols["strings"]]) == sorted([0, data + 4, data + 132, q[0] >> 32])
    start, valid, registers, _ = run.process.values[tid][0]
    assert valid == 0x2FFFF, "all but rip, which the block gives"
    assert registers[3] == data, "rbx at the checkpoint"
    assert start > 0


def test_same_blocks_at_both_levels(tracer_dir: Path, program: Program) -> None:
    target = program("loads.c", "-static", "-nostdlib", "-no-pie")
    paths = []
    for level in ("flow", "values"):
        process = trace(tracer_dir, level, [target]).process
        (tid,) = process.flow
        paths.append([(block.pc, block.code) for block in process.path_blocks(tid)])
    assert paths[0] == paths[1]


@pytest.mark.parametrize("level", ["flow", "values"])
def test_threads_and_allocations(level: str, tracer_dir: Path, program: Program) -> None:
    process = trace(tracer_dir, level, [program("family.c"), "threads"]).process
    assert len(process.flow) == 3
    starts = [struct.unpack_from("<II", start) for start in process.all_events(p.THREAD_START)]
    first = next(tid for tid, creator in starts if creator == 0)
    assert sorted(creator for _, creator in starts) == [0, first, first]
    assert sorted(process.all_events(p.THREAD_NAME)) == [b"first", b"second"]
    assert len(process.all_events(p.THREAD_EXIT)) == 3
    allocations = [struct.unpack("<QQQQII", event) for event in process.all_events(p.ALLOC)]
    freed = {struct.unpack_from("<Q", event)[0] for event in process.all_events(p.FREE)}
    ours = [address for address, size, *_ in allocations if size == 1234]
    assert len(ours) == 2
    assert set(ours) <= freed


def test_system_calls(tracer_dir: Path, program: Program) -> None:
    process = trace(
        tracer_dir, "values", [program("loads.c", "-static", "-nostdlib", "-no-pie")]
    ).process
    (tid,) = process.flow
    events = process.events(tid)
    assert [kind for kind, _ in events] == [
        p.THREAD_START, p.SYSCALL_ENTER, p.SYSCALL_EXIT, p.SYSCALL_ENTER, p.THREAD_EXIT,
    ]  # fmt: skip
    _, number, valid, code, address = struct.unpack_from("<QIIQQ", events[1][1])
    assert (number, valid, code) == (158, 0x2FFFF, 0x1002)
    registers = struct.unpack_from("<18Q", events[1][1], 64)
    assert (registers[0], registers[7], registers[6]) == (158, 0x1002, address)
    assert struct.unpack_from("<Qq", events[2][1])[1] == 0
    assert struct.unpack_from("<QI", events[3][1])[1] == 231


def test_signals_and_faults(tracer_dir: Path, program: Program) -> None:
    process = trace(tracer_dir, "values", [program("family.c"), "signals"]).process
    numbers = [struct.unpack_from("<QI", event)[1] for event in process.all_events(p.SIGNAL)]
    assert numbers.count(signal.SIGUSR1) == 50
    assert numbers.count(signal.SIGSEGV) == 50
    assert len(process.all_events(p.FAULT)) == 50
    assert len(process.all_events(p.TRANSFER)) == 100


@pytest.mark.parametrize("level", ["flow", "values"])
def test_a_call_put_off_for_a_signal_is_not_made_twice(
    level: str, tracer_dir: Path, program: Program
) -> None:
    traced = trace(tracer_dir, level, [program("family.c"), "ignored"])
    assert (traced.stdout, traced.status) == (b"ok\n", 0)
    (tid,) = traced.process.flow
    put_off = 0
    for (before, found), (kind, event) in itertools.pairwise(p.units(traced.process.flow[tid])):
        if isinstance(found, bytes):
            if before == p.SYSCALL_ENTER and struct.unpack_from("<QI", found)[1] != EXIT_GROUP:
                assert isinstance(event, bytes) and kind == p.SYSCALL_EXIT, "a call has no end"
            continue
        block = traced.process.blocks[found]
        if block.code.endswith(SYSCALL):
            assert isinstance(event, bytes), (
                "neither was the call made nor the block left before it"
            )
            assert kind in (p.SYSCALL_ENTER, p.FAULT)
            if kind == p.FAULT:
                put_off += 1
                assert struct.unpack_from("<QQ", event)[1] == block.pc + len(block.code) - len(
                    SYSCALL
                )
    assert put_off > 0


def test_a_killed_program_leaves_what_it_did(tracer_dir: Path, program: Program) -> None:
    pool = Pool("values", chunks=600)
    target = subprocess.Popen(
        launch(tracer_dir, pool, "values", [str(program("family.c")), "spin"]),
        stdout=subprocess.PIPE,
    )
    try:
        assert target.stdout is not None
        assert target.stdout.readline() == b"ok\n"
        time.sleep(0.2)
        target.send_signal(signal.SIGKILL)
        assert target.wait(timeout=30) == -signal.SIGKILL
        (process,) = pool.processes().values()
        (tid,) = process.flow
        last = process.path_blocks(tid)[-200:]
        assert len({block.id for block in last}) < 60, "the end of the flow is the spinning loop"
        yields = [e for kind, e in process.events(tid) if kind == p.SYSCALL_ENTER]
        assert struct.unpack_from("<QI", yields[-1])[1] == 24
    finally:
        target.kill()
        target.wait(timeout=30)
        pool.close()


def test_forked_child_has_its_own_streams(tracer_dir: Path, program: Program) -> None:
    run = trace(tracer_dir, "values", [program("family.c"), "fork"], "--follow-children")
    assert len(run.processes) == 2
    parent, child = (run.processes[key] for key in sorted(run.processes, key=lambda key: key[1]))
    (fork,) = parent.all_events(p.FORK)
    (child_pid,) = {pid for pid, image in run.processes if run.processes[pid, image] is child}
    assert struct.unpack_from("<QI", fork)[1] == child_pid
    (tid,) = child.flow
    assert child.path_blocks(tid), "the child's blocks are described in its own META"
    assert len(child.all_events(p.SYSCALL_ENTER)) >= 1


@pytest.mark.usefixtures("tracer")
def test_children_that_cannot_be_traced_run_with_their_rights_and_are_named(tmp_path: Path) -> None:
    """A set-user-ID program, and one of 32 bits that exits with 7."""
    if os.geteuid() != 0:
        live_or_skip("only root can make a set-user-ID program of another user")
    tmp_path.chmod(0o755)
    code = bytes.fromhex("b801000000bb07000000cd80")
    head = struct.pack(
        "<16sHHIIIIIHHHHHH", b"\x7fELF\1\1\1", 2, 3, 1, 0x8048054, 52, 0, 0, 52, 32, 1, 0, 0, 0
    )  # fmt: skip
    size = 84 + len(code)
    narrow, other = tmp_path / "narrow", tmp_path / "id"
    narrow.write_bytes(
        head + struct.pack("<8I", 1, 0, 0x8048000, 0x8048000, size, size, 5, 4096) + code
    )
    narrow.chmod(0o755)
    shutil.copy(shutil.which("id") or "id", other)
    os.chown(other, 65534, 65534)
    other.chmod(0o4755)
    command = ["sh", "-c", f"{narrow}; echo $?; {other} -u; true"]
    alone = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    recorded = record(tmp_path / "trace", command)
    assert recorded.stdout == alone, recorded.stderr
    for program in (narrow, other):
        assert f"{program} is not recorded: it " in recorded.stderr
    assert "nothing lost" not in recorded.stderr


def test_child_alone_is_not_recorded(tracer_dir: Path, program: Program) -> None:
    assert len(trace(tracer_dir, "values", [program("family.c"), "fork"]).processes) == 1


@pytest.mark.parametrize("options", [[], ["--follow-children"]])
def test_exec_begins_a_new_image(options: list[str], tracer_dir: Path, program: Program) -> None:
    run = trace(tracer_dir, "flow", [program("family.c"), "exec"], *options)
    assert len(run.processes) == 2
    assert len({pid for pid, _ in run.processes}) == 1
    first, second = (run.processes[key] for key in sorted(run.processes, key=lambda key: key[1]))
    assert [event[8:] for event in first.all_events(p.EXEC)] == [b"/bin/echo"]
    assert [os.path.basename(path) for path in second.paths] == ["echo"]  # noqa: PTH119  a path in the trace


def test_values_in_chosen_ranges_only(tracer_dir: Path, program: Program, tmp_path: Path) -> None:
    target = program("loads.c", "-static", "-nostdlib", "-no-pie")
    symbols = _symbols(target)
    ranges = tmp_path / "ranges"
    ranges.write_text(
        f"# a comment\n{target.name}+{symbols['strings']:#x}-{symbols['strings'] + 1:#x}\n"
    )
    process = trace(tracer_dir, "values", [target], "--values-in", str(ranges)).process
    assert {block.pc for block in process.blocks.values() if block.slots} == {symbols["strings"]}
