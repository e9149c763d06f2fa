# SPDX-License-Identifier: MIT
"""``diff`` and what stands around it, on one real pair of recordings."""

from __future__ import annotations

import json
from pathlib import Path

from harness import assert_four_parts, flagfinder, with_processes

import flagfinder as api

from .conftest import Pair


def test_the_contract(pair: Pair) -> None:
    done = flagfinder("diff", "--json", pair.normal, pair.spin)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["schema"] == "flagfinder.diff/1"
    assert answer["verdict"] == "data-flag"
    assert set(answer) >= {"reason", "threads", "loop", "divergence", "flags"}
    assert answer["loop"]["kind"] == "yield"
    flag = answer["flags"][0]
    assert (flag["kind"], flag["symbol"], flag["size"]) == ("global", "ready", 4)
    assert int(flag["value"]["spin"], 16) == 0
    assert int(flag["value"]["exit"], 16) == 7
    (owed,) = flag["owed"]
    assert owed["known"] == "seen"
    assert owed["code"]["symbol"].startswith("prepare")
    assert owed["tid"] != answer["threads"]["spin"]["tid"]
    writer = flag["writers"][0]
    assert writer["run"] == "normal"
    assert owed["normal"]["tid"] == writer["tid"]
    assert writer["code"]["symbol"].startswith("prepare")
    assert int(writer["value"], 16) == 7
    for code in (answer["divergence"]["branch"], flag["readers"][0]):
        assert set(code) >= {"module", "offset", "symbol", "source"}
        assert code["module"] == pair.program.name


def test_the_screen(pair: Pair) -> None:
    done = flagfinder("diff", pair.normal, pair.spin)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) <= 24
    for part in ("ready", "waiter.c:", "yields", "prepare"):
        assert part in done.stdout
    assert done.stderr.splitlines()[-1].startswith("Next: flagfinder registers")
    assert "\x1b" not in done.stdout


def test_color_on_demand(pair: Pair) -> None:
    assert "\x1b" in flagfinder("diff", "--color=always", pair.normal, pair.spin).stdout


def test_two_good_runs_do_not_part(pair: Pair) -> None:
    done = flagfinder("diff", "--json", pair.normal, pair.normal)
    assert done.returncode == 1
    assert json.loads(done.stdout)["verdict"] in ("no-divergence", "no-flag")


def test_a_second_normal_run(pair: Pair) -> None:
    done = flagfinder("diff", "--json", pair.normal, pair.spin, "--normal", pair.normal)
    assert json.loads(done.stdout)["flags"][0]["symbol"] == "ready"


def test_it_works_where_no_thread_may_be_started(pair: Pair) -> None:
    for words in (["diff", pair.normal, pair.spin], ["discover", pair.normal]):
        usual = flagfinder(*words)
        ran = with_processes(3, *words)  # the one that works, not those to which it gives parts
        assert ran.returncode == usual.returncode, ran.stderr
        assert ran.stdout.split(":")[0] == usual.stdout.split(":")[0], ran.stdout


def test_registers_agree_with_the_slice(pair: Pair) -> None:
    flag = json.loads(flagfinder("diff", "--json", pair.normal, pair.spin).stdout)["flags"][0]
    done = flagfinder("registers", "--json", pair.spin, "--before-divergence", pair.normal)
    assert done.returncode == 0, done.stderr
    blocks = json.loads(done.stdout)["blocks"]
    assert len(blocks) == 8
    assert any(value for block in blocks for value in block["registers"].values())
    # The flag is read rip-relative: the branch's own block and the slice must speak of the same
    # word.
    assert blocks[-1]["code"]["module"] == pair.program.name
    assert any(
        f"{int(flag['address']['spin'], 16):x}" in line.lower() for line in blocks[-1]["assembly"]
    )


def test_without_an_alignment_the_flag_s_test_is_where_they_part(pair: Pair) -> None:
    spin, normal = api.open_trace(pair.spin), api.open_trace(pair.normal)
    aligned = api.find_flags(spin, [normal], api.diff(normal, spin)).divergence
    unaligned = api.find_flags(spin, [normal], None).divergence
    alone = api.find_flags(spin, [], None).divergence
    assert aligned is not None and unaligned is not None and alone is not None
    assert unaligned.branch == alone.branch == aligned.branch
    assert unaligned.normal_target == aligned.normal_target is not None
    assert alone.normal_target is None, "no normal run was shown"


def test_find_does_the_whole_chain(tmp_path: Path, pair: Pair) -> None:
    done = flagfinder(
        "find", "--json", "-d", tmp_path, "--normal", f"{pair.program} "
                                                      "normal", "--spin", f"{pair.program} spin",
        "--level", "flow",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["flags"][0]["symbol"] == "ready"


def test_arrays(pair: Pair) -> None:
    trace = api.open_trace(pair.spin)
    spinner = max(trace.threads, key=lambda thread: thread.summary().blocks)
    blocks = spinner.blocks()
    table = spinner.process.block_table
    assert blocks.dtype == "uint32"
    assert len(blocks) == spinner.summary().blocks
    assert blocks.max() < len(table.pc)
    yields = spinner.syscalls()
    assert (yields.number == 24).sum() > 100
    assert yields.args.shape == (len(yields.number), 6)
    values = spinner.values()
    flag = api.find_flags(trace, [], None).flag
    assert flag is not None and flag.spin_address is not None
    read = values.value[values.address_known & (values.address == flag.spin_address)]
    assert len(read) > 100 and (read == 0).all()


def test_find_overwrites_nothing_unasked(pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "normal.trace").write_text("mine")
    words = (
        "find",
        "-q",
        "-d",
        tmp_path,
        "--normal",
        f"{pair.program} normal",
        "--spin",
        f"{pair.program} spin",
    )
    refused = flagfinder(*words)
    assert refused.returncode == 2
    assert_four_parts(refused.stderr, "normal.trace")
    assert (tmp_path / "normal.trace").read_text() == "mine"
    assert not (tmp_path / "spin.trace").exists()
    done = flagfinder(*words, "--overwrite", "--stop-when-spinning", "1")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "normal.trace").read_bytes() != b"mine"


def test_find_reports_a_good_run_that_failed(pair: Pair, tmp_path: Path) -> None:
    good = f"sh -c '{pair.program} normal; exit 3'"
    options = ("-d", tmp_path, "--stop-when-spinning", "1")
    done = flagfinder(
        "find", "--json", *options, "--normal", good, "--spin", f"{pair.program} spin"
    )
    notes = json.loads(done.stdout)["notes"]
    assert any("the good run ended with status 3" in note for note in notes), (notes, done.stderr)
