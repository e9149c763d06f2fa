# SPDX-License-Identifier: MIT
"""`watch` ends when it is told to, and leaves nothing behind when it is killed."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from harness import assert_four_parts, flagfinder
from watching import (
    STARTED,
    debug_registers,
    storing_instruction,
    target,
    watching,
)

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]


@pytest.mark.parametrize(
    ("until", "last"), [("write", 1), ("3", 3), ("value==5", 5), ("value >= 0x4", 4)]
)
def test_until(writers: Path, until: str, last: int, attaching: list[str]) -> None:
    with target(writers, "flags") as running:
        base = running.printed["flags"]
        words = [word for index in range(4) for word in ("--address", hex(base + 8 * index))]
        with watching(running.pid, *words, "--size", "8", "--until", until, *attaching) as watcher:
            running.go()
            events, end = watcher.rest()
        assert end["reason"] == "until"
        assert watcher.exit_code == 0
        # flags[i] = i + 1, two to a word of eight bytes
        written = [int(event["value"], 16) for event in events]
        wanted = [value for value in written if (value if value < 2**32 else value >> 32) == last]
        assert written[-1] in wanted or until.startswith("value")
        assert len(events) == {"write": 1, "3": 3}.get(until, len(events))
        running.until("done")
        assert running.process.poll() is None


def test_until_is_checked_before_anything_else(writers: Path) -> None:
    with target(writers, "flags") as running:
        wrong = flagfinder("watch", str(running.pid), "writers", "word32", "--until", "value=1")
        assert wrong.returncode == 2
        assert_four_parts(wrong.stderr, "--until value=1")


def test_duration(writers: Path, attaching: list[str]) -> None:
    with (
        target(writers, "sizes") as running,
        watching(running.pid, "writers", "word32", "--duration", "0.5", *attaching) as watcher,
    ):
        events, end = watcher.rest()
    assert (events, end["reason"], watcher.exit_code) == ([], "duration", 1)


def test_killed_in_the_middle_nothing_stays(writers: Path) -> None:
    with target(writers, "flags") as running:
        for _ in range(5):
            words = [word for index in range(4) for word in ("--expr", f"flags[{index}]")]
            with watching(running.pid, *words) as watcher:
                watcher.process.send_signal(signal.SIGKILL)
                watcher.process.wait(timeout=30)
        # All four registers are free again on every CPU: else this would meet ENOSPC.
        with watching(running.pid, *words) as watcher:
            running.go()
            running.until("done")
            watcher.stop()
            events, _ = watcher.rest()
        assert len(events) == 4
        assert debug_registers(running.pid) == [0] * 5
        running.go()
        assert running.process.wait(timeout=STARTED) == 0


def test_a_hook_goes_with_its_killed_watcher(writers: Path) -> None:
    site = f"writers+{storing_instruction(writers)}"
    with target(writers, "objects") as running:
        code = Path(f"/proc/{running.pid}/mem")
        with watching(running.pid, "--site", site) as watcher:
            offset = int(watcher.header["watches"][0]["code"]["offset"], 16)
            maps = Path(f"/proc/{running.pid}/maps").read_text()
            base = min(
                int(line.split("-")[0], 16)
                for line in maps.splitlines()
                if line.endswith("/writers")
            )
            assert first_byte(code, base + offset) == 0xCC
            watcher.process.send_signal(signal.SIGKILL)
            watcher.process.wait(timeout=30)
        deadline = time.monotonic() + STARTED
        while first_byte(code, base + offset) == 0xCC:
            assert time.monotonic() < deadline, "the hook's breakpoint stayed in the program"
            time.sleep(0.05)
        running.go()
        running.until("done")
        running.go()
        assert running.process.wait(timeout=STARTED) == 0


def first_byte(memory: Path, address: int) -> int:
    with memory.open("rb", buffering=0) as file:
        file.seek(address)
        return file.read(1)[0]
