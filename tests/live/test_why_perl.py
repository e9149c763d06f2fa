# SPDX-License-Identifier: MIT
"""`flagfinder why` on Perl: where in the script each thread waits."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from harness import live_or_skip, run, started
from planted import SOURCES, why

SCRIPT = SOURCES / "waits.pl"
pytestmark = pytest.mark.live


def line(of: str) -> int:
    """The line that this comment ends."""
    lines = SCRIPT.read_text(encoding="utf-8").splitlines()
    return next(at for at, text in enumerate(lines, 1) if text.endswith(f"# {of}"))


@contextmanager
def waiting(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    perl = shutil.which("perl")
    if perl is None or run([perl, "-Mthreads", "-e", "1"], timeout=30).returncode:
        live_or_skip("there is no Perl with threads")
    with started([perl, SCRIPT, *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield process


def place(spot: dict[str, Any]) -> tuple[str | None, str, int | None]:
    return spot["function"], Path(spot["file"]).name, spot["line"]


def test_a_thread_of_perl_waits_at_a_line_of_the_script() -> None:
    with waiting() as process:
        report = why(process.pid, "--stacks")
    first, second = (link["at"] for link in report["links"][:2])
    assert place(first) == ("wait_for", "waits.pl", line("joins"))
    assert place(first["called_at"]) == (None, "waits.pl", line("calls wait_for"))
    assert place(second) == ("take", "waits.pl", line("takes"))
    assert place(second["called_at"]) == ("work", "waits.pl", line("calls take"))
    stacks = [[call for call in stack["frames"] if call["own"]] for stack in report["stacks"]]
    told = sorted([place(call)[0] or "" for call in calls] for calls in stacks)
    assert told == [["take", "work", ""], ["wait_for", ""]]


def test_a_loop_of_perl_computes_at_its_line() -> None:
    with waiting("spin") as process:
        root = why(process.pid)["root"]
    assert root["kind"] in {"computes", "unknown"}, root
    assert place(root["at"])[1:] == ("waits.pl", line("spins"))
