# SPDX-License-Identifier: MIT
"""What `watch` prints and writes, and the same from the package."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from harness import FLAGFINDER
from watching import (
    SET_UP,
    target,
    watching,
)

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]


def test_the_terminal_shows_events(writers: Path) -> None:
    with target(writers, "sizes") as running:
        process = subprocess.Popen(
            [*FLAGFINDER, "watch", str(running.pid), "writers", "word32", "--until", "2"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        first = process.stdout.readline()
        running.go()
        out, err = process.communicate(timeout=SET_UP)
    assert first.startswith("watching word32"), first
    assert "0x0 -> 0x33333333" in out
    assert "write_sizes" in out
    assert "called from" in out
    assert "2 writes; nothing lost" in err


def test_the_output_file_is_whole(writers: Path, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with target(writers, "sizes") as running:
        process = subprocess.Popen(
            [*FLAGFINDER, "watch", str(running.pid), "writers", "word64", "-o", str(path)],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        process.stdout.readline()
        running.go()
        running.until("done")
        running.go()
        process.communicate(timeout=SET_UP)
    header, *events, end = [json.loads(line) for line in path.read_text().splitlines()]
    assert header["schema"] == "flagfinder.watch/1"
    assert "first" in header["thinning"]
    assert [event["value"] for event in events] == ["0x4444444444444444", "0x8484848484848484"]
    assert (end["event"], end["events"]) == ("end", 2)


def test_the_package_does_the_same(writers: Path) -> None:
    code = """
import json, sys
from flagfinder.watch.watch import Watch, WatchRequest, symbol_word
with Watch(int(sys.argv[1]), WatchRequest([symbol_word("writers", "word8")], until="2")) as watch:
    print("ready", flush=True)
    values = [json.loads(line)["value"] for lines in watch.batches(60) for line in lines]
    print(values, watch.ending)
"""
    with target(writers, "sizes") as running:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", code, str(running.pid)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        running.go()
        out, _ = process.communicate(timeout=SET_UP)
    assert out.strip() == "['0x11', '0x51'] until"


def test_a_hot_reader_goes_on_while_writes_are_watched(writers: Path) -> None:
    """No timing: only that nothing traps. The speed is measured by bench/watch_speed.py."""
    with (
        target(writers, "spin", "200") as running,
        watching(running.pid, "writers", "word64") as watcher,
    ):
        running.go()
        running.until("done")
        time.sleep(0.1)
        watcher.stop()
        events, end = watcher.rest()
    assert (events, end["hits"]) == ([], 0)
