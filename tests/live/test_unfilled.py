# SPDX-License-Identifier: MIT
"""Memory of the patient whose pages nobody fills: a look waits for none of them, and lets the
patient go on.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dead_mount import mounted
from harness import (
    ROOT,
    compiled,
    flagfinder,
    live_or_skip,
    needs_root,
    run,
    started,
    wait_for_rounds,
)

PROGRAM = ROOT / "tests" / "live" / "programs" / "unfilled.c"
USUAL = 60  # s that a look may take at most

pytestmark = [pytest.mark.live, pytest.mark.timeout(300), needs_root("its faults are answered")]


@contextlib.contextmanager
def _polling(tmp_path: Path, *words: object) -> Iterator[tuple[subprocess.Popen[str], int, int]]:
    """The process, and the addresses that it prints."""
    program = compiled(tmp_path / "unfilled", PROGRAM, "-pthread")
    with started([program, *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline().split()
        if not line:
            live_or_skip("userfaultfd is not allowed here")
        time.sleep(0.3)
        yield process, int(line[0], 16), int(line[1], 16)


def _goes_on(process: subprocess.Popen[str]) -> None:
    wait_for_rounds(process)
    states = [
        (task / "stat").read_text().rsplit(")", 1)[1].split()[0]
        for task in Path(f"/proc/{process.pid}/task").iterdir()
    ]
    assert not {"t", "T"} & set(states), states


def _tables(pid: int) -> int:
    """How much the tables of its pages take, those of pages of zeroes too."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmPTE"))


@pytest.mark.parametrize("verb", [["spin"], ["spin", "--in-place"], ["why"]], ids="-".join)
def test_a_stack_that_nobody_fills(tmp_path: Path, verb: list[str]) -> None:
    with _polling(tmp_path, "stack") as (process, *_):
        looked = flagfinder(*verb, process.pid, timeout=USUAL)
        assert "never" in looked.stdout, looked.stdout + looked.stderr
        _goes_on(process)


@pytest.mark.parametrize("verb", ["spin", "why"])
def test_a_file_whose_server_hands_out_no_page(tmp_path: Path, verb: str) -> None:
    with (
        mounted(compiled(tmp_path / "any", PROGRAM, "-pthread"), tmp_path) as mount,
        _polling(tmp_path, "file", mount.app) as (process, *_),
    ):
        mount.withholds()
        looked = flagfinder(verb, process.pid, timeout=USUAL)
        assert "never" in looked.stdout, looked.stdout + looked.stderr
        _goes_on(process)


def _engine(code: str, *words: object) -> str:
    command = [sys.executable, "-P", "-c", f"import sys\nfrom flagfinder import _core\n{code}"]
    ran = run([*command, *map(str, words)], timeout=USUAL)
    assert ran.returncode == 0, ran.stderr
    return str(ran.stdout)


def test_a_core_says_which_pages_it_lacks(tmp_path: Path) -> None:
    with _polling(tmp_path, "stack") as (process, missing, _):
        code = "print(*_core.write_core(int(sys.argv[1]), sys.argv[2]), sep='\\n')"
        notes = _engine(code, process.pid, tmp_path / "core")
        assert "24 pages are not in the core" in notes and f"{missing:#x}-" in notes, notes
        _goes_on(process)
    looked = flagfinder("core", tmp_path / "core", timeout=USUAL)
    assert "never" in looked.stdout, looked.stdout + looked.stderr


def test_arguments_that_nobody_fills(tmp_path: Path) -> None:
    """The kernel reads them in the process when /proc is asked for them."""
    with _polling(tmp_path, "arguments", "x" * (4 << 12)) as (process, *_):
        code = "_core.write_core(int(sys.argv[1]), sys.argv[2])"
        _engine(code, process.pid, tmp_path / "core")
        looked = flagfinder("why", process.pid, timeout=USUAL)
        assert "never" in looked.stdout, looked.stdout + looked.stderr
        _goes_on(process)


def test_pages_that_are_missing_are_neither_read_nor_written(tmp_path: Path) -> None:
    with _polling(tmp_path, "stack") as (process, missing, there):
        code = (
            "memory, first = _core.ProcessMemory(int(sys.argv[1])), int(sys.argv[2])\n"
            "print(len(memory.read(first, 1 << 20)), memory.there(first, first + (40 << 12)))"
        )
        read = _engine(code, process.pid, there)
        assert read == f"{missing - there} [({there}, {missing})]\n"
        started_at = int(
            Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
        )
        code = (
            "pid, start, at = map(int, sys.argv[1:])\n"
            "try:\n    _core.poke(pid, start, at, 4, 1)\n"
            "except Exception as error:\n    print(error)"
        )
        for address, why in ((missing, "has no memory"), (there, "a handler or a server")):
            assert why in _engine(code, process.pid, started_at, address)
        _goes_on(process)


def test_a_look_gives_the_patient_no_pages(tmp_path: Path) -> None:
    source = tmp_path / "untouched.c"
    source.write_text(
        "#include <stdio.h>\n#include <sys/mman.h>\nvolatile int never;\n"
        "int main(void) {\n"
        "\tchar *at = mmap(0, 1 << 24, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n"
        '\tprintf("%p\\n", (void *)at);\n\tfflush(stdout);\n\twhile (!never);\n}\n'
    )
    program = compiled(tmp_path / "untouched", source)
    with started([program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        at = int(process.stdout.readline(), 16)
        before = _tables(process.pid)
        code = (
            "memory = _core.ProcessMemory(int(sys.argv[1]))\n"
            "print(memory.read(int(sys.argv[2]), 1 << 24) == bytes(1 << 24))"
        )
        assert _engine(code, process.pid, at) == "True\n"
        assert _tables(process.pid) == before
