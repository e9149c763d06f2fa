# SPDX-License-Identifier: MIT
"""The Frida tracer: what it records is what DynamoRIO records, and the program does not notice.

``TRACERS`` are compared with one another; another tracer of the same protocol is one more name
there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from harness import (
    Recording,
    announced_flags,
    assert_consistent,
    assert_four_parts,
    diff,
    flagfinder,
    own_blocks,
    record,
    run,
)

import flagfinder as ff
from flagfinder.record import stalker
from flagfinder.shared.errors import UnavailableError

pytestmark = pytest.mark.usefixtures("frida")

TRACERS = ("dynamorio", "frida")


def by_frida(trace: Path, command: list[str | Path], *options: str) -> Recording:
    recording = record(trace, command, "--tracer", "frida", *options)
    assert_consistent(trace)
    return recording


@pytest.mark.live
@pytest.mark.parametrize("name", ["global_flag", "array_element"])
def test_flags_of_samples(samples: Path, tmp_path: Path, name: str) -> None:
    program = samples / name
    normal = by_frida(tmp_path / "normal.trace", [program, "normal"])
    spin = by_frida(tmp_path / "spin.trace", [program, "spin"], "--stop-when-spinning", "1")
    assert normal.exit_code == 0, normal.stderr
    flag = diff(normal.trace, spin.trace)["flags"][0]
    assert int(flag["address"]["spin"], 16) == announced_flags(spin.stderr)[0][0]


@pytest.mark.live
@pytest.mark.soak  # test_equivalence compares all three, on another program
@pytest.mark.usefixtures("tracer")
def test_tracers_agree(program: Callable[..., Path], tmp_path: Path) -> None:
    """One deterministic program: the same blocks and calls; each one's normal run shows the flag of
    each one's spin.
    """
    waits = program("waits.c")
    plain, normal, spin = {}, {}, {}
    for name in TRACERS:
        options = ("--tracer", name)
        plain[name] = record(tmp_path / f"{name}-plain.trace", [waits], *options)
        normal[name] = record(tmp_path / f"{name}-normal.trace", [waits, "normal"], *options)
        stop = ("--stop-when-spinning", "1")
        spin[name] = record(tmp_path / f"{name}-spin.trace", [waits, "spin"], *options, *stop)
        assert (plain[name].exit_code, normal[name].exit_code) == (0, 0), normal[name].stderr
        for recording in (plain[name], normal[name], spin[name]):
            assert_consistent(recording.trace)
    blocks = [own_blocks(plain[name].trace, waits) for name in TRACERS]
    # Frida's agent takes the threads out of Stalker when the program calls exit: destructors are
    # not recorded.
    shortest = min(len(one) for one in blocks)
    assert shortest > 1000
    assert max(len(one) for one in blocks) - shortest < 20
    assert all(other[:shortest] == blocks[0][:shortest] for other in blocks[1:])
    calls = [own_calls(plain[name].trace) for name in TRACERS]
    assert calls[0]
    assert all(other == calls[0] for other in calls[1:])
    for good in TRACERS:
        for bad in TRACERS:
            flag = diff(normal[good].trace, spin[bad].trace)["flags"][0]
            assert int(flag["address"]["spin"], 16) == announced_flags(spin[bad].stderr)[0][0], (
                good,
                bad,
            )


def own_calls(trace: Path) -> list[tuple[int, int]]:
    """(number, result) of the calls that waits.c marks: from its first getppid to its last."""
    calls = ff.open_trace(trace).threads[0].syscalls()
    numbers = calls.number.tolist()
    getppid = 110
    first, last = numbers.index(getppid), len(numbers) - 1 - numbers[::-1].index(getppid)
    # Ids of processes differ from run to run.
    return [
        (number, 0 if number == getppid else result)
        for number, result in zip(
            numbers[first : last + 1], calls.result[first : last + 1].tolist(), strict=True
        )
    ]


@pytest.mark.live
def test_target_sees_what_it_sees_untraced(program: Callable[..., Path], tmp_path: Path) -> None:
    """Operands relative to rip beside implied registers, of which Gum's own rewriting takes one
    (rdx of `idiv`).
    """
    operands = program("rip_operands.c")
    untraced = run([operands], timeout=30)
    for level in ("flow", "values"):
        traced = by_frida(tmp_path / f"{level}.trace", [operands], "--level", level)
        assert (traced.exit_code, traced.stdout) == (0, untraced.stdout)


@pytest.mark.live
def test_every_thread_is_recorded(program: Callable[..., Path], tmp_path: Path) -> None:
    """Also those that start while another one is being followed: Gum's work on one must not cost
    the next one its stop.
    """
    trace = tmp_path / "crowd.trace"
    assert by_frida(trace, [program("crowd.c")]).exit_code == 0
    threads = ff.open_trace(trace).threads
    assert len(threads) == 17
    assert all(len(thread.blocks()) > 10 for thread in threads)


@pytest.mark.live
def test_killed_midway(program: Callable[..., Path], tmp_path: Path) -> None:
    waits = program("waits.c")
    killed = by_frida(tmp_path / "killed.trace", [waits, "die"])
    assert killed.exit_code == 128 + 9
    assert len(own_blocks(killed.trace, waits)) > 1000


def test_what_it_refuses(program: Callable[..., Path], tmp_path: Path) -> None:
    static = program("waits.c", "-static")
    for words, found in (
        (["--", static], "no dynamic loader"),
        (["--follow-children", "--", "true"], "it records one process"),
        (["--", tmp_path / "missing"], "there is no"),
        (["--pid", "1"], "may kill it"),
    ):
        ran = flagfinder("record", "--tracer", "frida", "-o", tmp_path / "x.trace", *words)
        assert ran.returncode == 2
        assert_four_parts(ran.stderr, found)


def test_without_frida(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(UnavailableError, match="Frida is not installed"):
        stalker.record(["true"], tmp_path / "x.trace", ff.RecordOptions(tracer="frida"), None)
