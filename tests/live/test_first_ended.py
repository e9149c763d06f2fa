# SPDX-License-Identifier: MIT
"""A process whose first thread has ended (``pthread_exit`` in ``main``) is looked at as any other:
its folder in /proc shows neither memory nor program, those of its other threads do.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness import assert_found, compiled, flagfinder, started, wait_for_rounds, wait_until

pytestmark = pytest.mark.live
SOURCE = Path(__file__).parent / "programs" / "first_ended.c"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("first_ended") / "first_ended"
    return compiled(output, SOURCE, "-O1", "-pthread")


@contextmanager
def running(program: Path, mode: str) -> Iterator[subprocess.Popen[bytes]]:
    with started([program, mode]) as process:
        stat = Path(f"/proc/{process.pid}/stat")
        wait_until(process, lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z")
        yield process


def test_spin_names_the_word_and_poke_ends_the_loop(program: Path, tmp_path: Path) -> None:
    with running(program, "poll") as process:
        wait_for_rounds(process)
        ran = flagfinder("spin", "--json", str(process.pid), timeout=60)
        assert_found(ran)
        assert json.loads(ran.stdout)["threads"][0]["flags"][0]["symbol"] == "polled"
        report = tmp_path / "report.json"
        report.write_text(ran.stdout)
        poked = flagfinder("poke", "--yes", "--flag", f"{report}#1", str(process.pid), timeout=60)
        assert poked.returncode == 0, poked.stderr
        assert process.wait(timeout=10) == 0


def test_why_names_the_word_that_another_thread_sleeps_on(program: Path) -> None:
    with running(program, "sleep") as process:
        ran = flagfinder("why", "--json", str(process.pid), timeout=60)
        links = json.loads(ran.stdout)["links"]
        assert any("slept_on" in json.dumps(link) for link in links), links


def test_guard_ends_it_and_keeps_its_core(program: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    words = ["--after", "2", "--core", "-o", output, "--", program, "poll"]
    ran = flagfinder("guard", *words, timeout=60)
    assert ran.returncode == 124, ran.stderr
    (core,) = output.glob("core.*")
    ran = flagfinder("core", "--json", core, timeout=60)
    threads = json.loads(ran.stdout)["threads"]
    assert [flag["symbol"] for thread in threads for flag in thread["flags"]] == ["polled"]
