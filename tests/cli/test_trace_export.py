# SPDX-License-Identifier: MIT
"""A recording in other tools' formats, read back by readers of our own or of theirs."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from harness import assert_consistent, assert_four_parts, flagfinder
from perfetto_reader import read_perfetto
from pyarrow import parquet

import flagfinder as api

from .conftest import Pair


def export(trace: Path, output: Path, *options: str) -> dict[str, int]:
    done = flagfinder("trace", "export", "--json", trace, "-o", output, *options)
    assert done.returncode == 0, done.stderr
    counts: dict[str, int] = json.loads(done.stdout)
    return counts


def spinner(pair: Pair) -> api.Thread:
    return max(api.open_trace(pair.spin).threads, key=lambda thread: thread.summary().blocks)


def test_drcov_holds_the_blocks_that_ran(pair: Pair, tmp_path: Path) -> None:
    counts = export(pair.spin, tmp_path / "spin.drcov")
    head, _, table = (tmp_path / "spin.drcov").read_bytes().partition(b"BB Table: ")
    lines = head.decode().splitlines()
    assert lines[0] == "DRCOV VERSION: 2"
    assert lines[2] == f"Module Table: version 2, count {counts['modules']}"
    assert lines[3] == "Columns: id, base, end, entry, path"
    modules = [[word.strip() for word in line.split(",", 4)] for line in lines[4:]]
    number, _, rows = table.partition(b" bbs\n")
    assert int(number) == counts["blocks"] == len(rows) // 8
    ran = {int(modules[m][1], 16) + start for start, _, m in struct.iter_unpack("<IHH", rows)}
    process = api.open_trace(pair.spin).processes[0]
    executed = np.unique(np.concatenate([thread.blocks() for thread in process.threads]))
    pcs, owner = process.block_table.pc[executed], process.block_table.module[executed]
    assert ran == set(pcs[owner >= 0].tolist())
    assert counts["blocks_left_out"] == int((owner < 0).sum())


def tenet_lines(path: Path) -> list[dict[str, str]]:
    """Register or kind of access -> text; of several reads of one line the last."""
    return [
        dict(part.split("=", 1) for part in line.split(","))
        for line in path.read_text().splitlines()
    ]


def test_tenet_shows_the_loop_read_the_flag(pair: Pair, tmp_path: Path) -> None:
    counts = export(pair.spin, tmp_path / "spin.tenet", "--instructions", "5000")
    thread = spinner(pair)
    assert counts["tid"] == thread.tid
    lines = tenet_lines(tmp_path / "spin.tenet")
    assert len(lines) == counts["instructions"] + 1
    assert 4900 < len(lines) <= 5000, "whole blocks"
    assert len([name for name in lines[0] if name[0] == "r"]) >= 15, (
        "the first line has the registers"
    )
    assert all("rip" in line for line in lines)
    flag = api.find_flags(api.open_trace(pair.spin), []).flag
    assert flag is not None and flag.spin_address is not None
    reads = [
        line["mr"] for line in lines if line.get("mr", "").startswith(f"{flag.spin_address:#x}:")
    ]
    assert len(reads) > 100
    assert {read.split(":")[1] for read in reads} == {"00000000"}


def test_tenet_comes_back_as_a_recording(pair: Pair, tmp_path: Path) -> None:
    exported = export(pair.spin, tmp_path / "spin.tenet", "--instructions", "100000")
    modules = api.open_trace(pair.spin).processes[0].modules
    named = [module for module in modules if module.path.startswith("/")]
    images = [word for module in named for word in ("--image", f"{module.path}@{module.base:#x}")]
    back = tmp_path / "back.trace"
    done = flagfinder("trace", "import", "--json", tmp_path / "spin.tenet", *images, "-o", back)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert counts["instructions"] == exported["instructions"] > 5000
    assert counts["outside_images"] == 0
    assert_consistent(back)
    mine, theirs = spinner(pair), api.open_trace(back).threads[0]
    loop = mine.process.block_table.pc[mine.blocks()[-500:]]
    assert set(loop.tolist()) <= set(theirs.process.block_table.pc[theirs.blocks()].tolist())
    # The same flag follows from it, on the way through text and back.
    flag = api.find_flags(api.open_trace(pair.spin), []).flag
    again = api.find_flags(api.open_trace(back), []).flag
    assert flag is not None and again is not None
    assert (again.symbol, again.spin_address, again.value_spin) == (
        "ready",
        flag.spin_address,
        flag.value_spin,
    )
    assert again.exit_when == flag.exit_when


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "empty"),
        ("not a trace\n", "KEY=VALUE"),
        ("rax=0x1\n", "rip"),
        ("rip=0x1000,mr=0x20\n", "ADDRESS:BYTES"),
        ("rip=0x1000,mr=0x20:0g\n", "ADDRESS:BYTES"),
        ("rip=0x1000,rax=lots\n", "number"),
    ],
)
def test_what_is_no_tenet_trace_is_refused(
    pair: Pair, tmp_path: Path, text: str, found: str
) -> None:
    (tmp_path / "bad.tenet").write_text(text)
    words = [
        "trace",
        "import",
        tmp_path / "bad.tenet",
        "--image",
        pair.program,
        "-o",
        tmp_path / "bad.trace",
    ]
    done = flagfinder(*words)
    assert done.returncode == 65, done.stderr
    assert_four_parts(done.stderr, found)
    assert not (tmp_path / "bad.trace").exists()


def test_code_outside_the_images_is_a_gap(pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "x.tenet").write_text("rax=0x1,rip=0x100000\nrax=0x2,rip=0x100004\nrip=0x100008\n")
    done = flagfinder(
        "trace",
        "import",
        "--json",
        tmp_path / "x.tenet",
        "--image",
        pair.program,
        "-o",
        tmp_path / "x.trace",
    )
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert (counts["instructions"], counts["outside_images"]) == (2, 2)
    assert api.open_trace(tmp_path / "x.trace").threads[0].summary().gaps == 2


def test_tables_hold_the_recording(pair: Pair, tmp_path: Path) -> None:
    export(pair.spin, tmp_path / "spin.parquet")
    thread = spinner(pair)
    name = f"{thread.process.pid}-{thread.tid}.parquet"
    flow = parquet.read_table(tmp_path / "spin.parquet" / f"flow-{name}")["block"].to_numpy()
    assert (flow == thread.blocks()).all()
    calls = parquet.read_table(tmp_path / "spin.parquet" / f"syscalls-{name}").to_pydict()
    yields = thread.syscalls()
    assert calls["number"] == yields.number.tolist()
    assert calls["arg0"] == yields.args[:, 0].tolist()
    values = parquet.read_table(tmp_path / "spin.parquet" / f"values-{name}")
    assert values.num_rows == len(thread.values().pc)


def test_perfetto_has_a_slice_for_each_call(pair: Pair, tmp_path: Path) -> None:
    counts = export(pair.normal, tmp_path / "normal.perfetto-trace")
    trace = api.open_trace(pair.normal)
    calls = sum(thread.summary().syscalls for thread in trace.threads)
    found = read_perfetto(tmp_path / "normal.perfetto-trace")
    assert counts["events"] >= calls
    assert sum("arguments" in one.notes for one in found.slices) == calls
    assert "exit_group" in {one.name for one in found.slices}
    assert trace.processes[0].path in found.processes.values()


def test_a_name_that_tells_no_format(pair: Pair, tmp_path: Path) -> None:
    done = flagfinder("trace", "export", pair.spin, "-o", tmp_path / "spin.bin")
    assert done.returncode == 2
    assert_four_parts(done.stderr, ".drcov")
    assert not (tmp_path / "spin.bin").exists()


def test_a_thread_that_is_not_there(pair: Pair, tmp_path: Path) -> None:
    done = flagfinder("trace", "export", pair.spin, "-o", tmp_path / "spin.tenet", "--tid", "1")
    assert done.returncode == 2
    assert_four_parts(done.stderr, str(spinner(pair).tid))


def test_a_dump_of_nothing_says_so_by_its_exit_code(pair: Pair) -> None:
    for options in ((), ("--json",)):
        assert flagfinder("trace", "dump", pair.spin, "--tid", "1", *options).returncode == 1
        assert flagfinder("trace", "dump", pair.spin, "--limit", "1", *options).returncode == 0
