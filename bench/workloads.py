# SPDX-License-Identifier: MIT
"""The programs that are recorded: real ones, sized to run 2 s and more untraced on a machine of
2024.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent

_SQL = (
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x<{size}) SELECT "
    "count(*), sum(x*x%7) FROM c;"
)
_PYTHON = """
def total(count):
    sum = 0
    for i in range(count):
        sum += i * i % 7
    return sum
print(total({size}))
"""
# Not the interpreter that runs this: that one may be any build, in any virtual environment.
PYTHON = "/usr/bin/python3"


@dataclass(frozen=True)
class Workload:
    """A program: ``command(size, scratch)`` is its command line. ``size`` is in what ``unit``
    says.
    """

    name: str
    size: int
    unit: str
    command: Callable[[int, Path], list[str]]


def compile_c(name: str, scratch: Path) -> Path:
    """Compiles ``bench/NAME.c``, once."""
    program = scratch / name
    if not program.exists():
        subprocess.run(
            ["cc", "-O2", "-mno-red-zone", "-pthread", str(HERE / f"{name}.c"), "-o", str(program)],
            check=True,
            timeout=60,
        )
    return program


def _gzip(size: int, scratch: Path) -> list[str]:
    text = scratch / f"text-{size}"
    if not text.exists():
        text.write_bytes(_text(size))
    return ["gzip", "-1", "-c", str(text)]


def _text(megabytes: int) -> bytes:
    """Words of a fixed vocabulary in random order: compresses about as prose does."""
    draw = random.Random(1)
    letters = "etaoinshrdlucmfwypvbgk"
    words = ["".join(draw.choices(letters, k=draw.randint(2, 9))) for _ in range(5000)]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    page = " ".join(draw.choices(words, weights, k=400_000)).encode()
    # Pages differ in their start, and a page is longer than gzip's window, so nothing repeats
    # within it.
    pages = megabytes * 1_000_000 // len(page) + 1
    starts = [draw.randrange(len(page)) for _ in range(pages)]
    return b"".join(page[start:] + page[:start] for start in starts)[: megabytes * 1_000_000]


def _sqlite(size: int, _scratch: Path) -> list[str]:
    return ["sqlite3", ":memory:", _SQL.format(size=size)]


def _python(size: int, _scratch: Path) -> list[str]:
    return [PYTHON, "-I", "-S", "-c", _PYTHON.format(size=size)]


def _threads(size: int, scratch: Path) -> list[str]:
    return [str(compile_c("threads", scratch)), str(size)]


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("gzip", 170, "MB of text, gzip -1", _gzip),
        Workload("sqlite", 10_000_000, "rows of a recursive query", _sqlite),
        Workload("python", 55_000_000, "rounds of an integer loop", _python),
        Workload(
            "threads", 6_000_000, "rounds in each of 2 threads that share 4 mutexes", _threads
        ),
    )
}
