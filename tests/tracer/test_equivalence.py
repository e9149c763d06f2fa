# SPDX-License-Identifier: MIT
"""Three tracers, one deterministic program: what each of them records of it is the same, and so is
the flag.

The lldb tracer records a part only; of the others' recordings the same part is compared.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
from harness import announced_flags, assert_consistent, diff, live_or_skip, own_blocks, record

import flagfinder as ff
from flagfinder.shared.lldb_helper import find_lldb

pytestmark = pytest.mark.usefixtures("frida")

TRACERS = ("dynamorio", "frida", "lldb")
GETPPID = 110  # the only one that waits.c makes while it works


def calls(trace: Path) -> list[int]:
    """The numbers of the system calls of the first thread, from its first getppid on."""
    numbers: list[int] = ff.open_trace(trace).threads[0].syscalls().number.tolist()
    return numbers[numbers.index(GETPPID) :]


@pytest.mark.live
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("tracer")
def test_all_three_record_the_same(program: Callable[..., Path], tmp_path: Path) -> None:
    if find_lldb() is None:
        live_or_skip("there is no lldb")
    # Else the first call of each library function would run the program's code for binding it.
    waits = program("waits.c", "-Wl,-z,now")

    def recorded(name: str, mode: str, *options: str) -> Path:
        trace = tmp_path / f"{name}-{mode}.trace"
        recording = record(trace, [waits, mode], "--tracer", name, *options)
        assert recording.exit_code == 0, recording.stderr
        assert_consistent(trace)
        told[name, mode] = announced_flags(recording.stderr)[0][0]
        return trace

    told: dict[tuple[str, str], int] = {}
    normal = {name: recorded(name, "normal") for name in TRACERS[:2]}
    normal["lldb"] = recorded("lldb", "normal", "--from-break", "wait_for_it")
    spin = {name: recorded(name, "spin", "--stop-when-spinning", "1") for name in TRACERS[:2]}
    spin["lldb"] = recorded("lldb", "spin", "--from-break", "wait_for_it", "--max-steps", "200")
    part = recorded("lldb", "plain", "--from-break", "work", "--max-steps", "1500")

    blocks, made = own_blocks(part, waits), calls(part)
    assert len(blocks) > 100
    assert made
    for name in TRACERS[:2]:
        others = own_blocks(normal[name], waits)
        first = others.index(blocks[0])
        assert others[first : first + len(blocks)] == blocks, name
        assert list(islice(calls(normal[name]), len(made))) == made, name
    # Each one's normal run serves another one's spin.
    for good, bad in zip(TRACERS, (*TRACERS[1:], TRACERS[0]), strict=True):
        flag = diff(normal[good], spin[bad])["flags"][0]
        assert int(flag["address"]["spin"], 16) == told[bad, "spin"], (good, bad)
