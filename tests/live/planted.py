# SPDX-License-Identifier: MIT
"""Hangs whose cause is known (`why/*.c`), for the tests of `why`."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import schemas
from harness import compiled, flagfinder, started, wait_until

SOURCES = Path(__file__).parent / "why"


@dataclass(frozen=True)
class Truth:
    """The process or thread to blame; None if there is no single one."""

    kind: str
    pid: int | None
    tid: int | None


def built(folder: Path) -> Path:
    """The program of all hangs."""
    return compiled(folder / "hangs", *sorted(SOURCES.glob("*.c")), "-Wall", "-Werror")


@contextlib.contextmanager
def planted(
    program: Path, name: str, folder: Path
) -> Iterator[tuple[subprocess.Popen[bytes], Truth]]:
    """The hang, once all of it stands."""
    out = folder / "stdout"
    with out.open("wb") as stdout, started([program, name, folder], stdout=stdout) as process:
        wait_until(process, lambda: out.read_text().endswith("\n"))
        kind, *ids = out.read_text().split()[1:]
        pid, tid = (int(number) or None for number in ids)
        time.sleep(0.3)  # in a moment it waits itself
        yield process, Truth(kind, pid, tid)
        assert process.poll() is None, "the program did not survive"


def assert_true(report: dict[str, Any], truth: Truth) -> None:
    root = report["root"]
    assert root["kind"] == truth.kind, report["story"]
    assert truth.pid in (None, root["pid"]), report["story"]
    assert truth.tid in (None, root["tid"]), report["story"]
    # Each link leads to the next.
    for link, following in zip(report["links"], report["links"][1:], strict=False):
        owed = link["owed_by"]
        assert (owed["pid"], owed["tid"]) == (
            following["waiter"]["pid"],
            following["waiter"]["tid"],
        )


def why(pid: int, *options: str) -> dict[str, Any]:
    """The report, which keeps what its schema and its exit code promise."""
    ran = flagfinder("why", "--json", *options, str(pid), timeout=60)
    assert ran.returncode in (0, 1), ran.stderr
    report: dict[str, Any] = json.loads(ran.stdout)
    schemas.validate(report)
    root = report["root"]
    assert (ran.returncode == 0) == (root["kind"] != "unknown" and not root["assumed"])
    assert 1 <= len(report["story"]) <= 6, report["story"]
    assert len(report["next"]) <= 1
    return report
