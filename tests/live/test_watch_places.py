# SPDX-License-Identifier: MIT
"""How `watch` is told what to watch: by the code that uses it, or by a flag of a report; and what
it says where that can't be watched.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from harness import assert_four_parts, flagfinder
from watching import (
    run_watched,
    storing_instruction,
    target,
    values,
    watching,
)

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]


def test_a_site_sees_every_object(writers: Path) -> None:
    site = f"writers+{storing_instruction(writers)}"
    with target(writers, "objects") as running, watching(running.pid, "--site", site) as watcher:
        running.go()
        objects = []
        for _ in range(5):
            running.until("object")
            objects.append(running.printed["object"])
        running.until("done")
        running.go()
        events, _ = watcher.rest()
    assert watcher.header["watches"][0]["effect"] == "write"
    assert [int(event["ref"], 16) for event in events] == objects
    assert [int(event["address"], 16) for event in events] == [address + 24 for address in objects]
    assert values(events) == [("w", "0x0", hex(number)) for number in range(1, 6)]


def flag_file(path: Path, pid: int | None, **flag: Any) -> str:
    """A file as `spin --json` prints it, with one flag."""
    flags = [{"rank": 1, "confidence": 1.0, "name": "a flag", "readers": [], "writers": [], **flag}]
    thread = {"tid": pid, "name": "writers", "class": "RepeatedYield", "flags": flags}
    path.write_text(json.dumps({"schema": "flagfinder.spin/1", "pid": pid, "threads": [thread]}))
    return f"{path}#1"


def test_flags_are_found_again(writers: Path, tmp_path: Path) -> None:
    with target(writers, "sizes") as running:
        with watching(running.pid, "writers", "word32") as watcher:
            data = watcher.header["watches"][0]["data"]
        other = flag_file(
            tmp_path / "a.json",
            1,
            kind="global",
            module="writers",
            offset=data["offset"],
            size=4,
            address={},
        )
        with watching(running.pid, "--flag", other) as watcher:
            assert watcher.header["watches"][0]["data"]["symbol"] == "word32"
        address = {"normal": None, "spin": hex(running.printed["word64"])}
        same = flag_file(
            tmp_path / "b.json",
            running.pid,
            kind="heap",
            module=None,
            offset="0x8",
            size=8,
            address=address,
        )
        with watching(running.pid, "--flag", same) as watcher:
            assert watcher.header["watches"][0]["data"]["symbol"] == "word64"
        moved = flag_file(
            tmp_path / "c.json", 1, kind="heap", module=None, offset="0x8", size=8, address=address
        )
        refused = flagfinder("watch", str(running.pid), "--flag", moved)
        assert refused.returncode == 2
        assert_four_parts(refused.stderr, "--all-objects")
        absent = flagfinder("watch", str(running.pid), "--flag", f"{tmp_path / 'c.json'}#2")
        assert absent.returncode == 2
        assert_four_parts(absent.stderr, "rank 2")


def test_all_objects_hooks_the_code_of_the_flag(writers: Path, tmp_path: Path) -> None:
    code = {
        "module": "writers",
        "offset": storing_instruction(writers),
        "symbol": "request_display",
        "source": None,
    }
    flag = flag_file(
        tmp_path / "a.json",
        1,
        kind="heap",
        module=None,
        size=4,
        address={},
        writers=[{"code": code}],
    )
    _, events, _ = run_watched(writers, ["objects"], "--flag", flag, "--all-objects")
    assert len({event["ref"] for event in events}) == 5


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("writers", "nope"), "no variable nope"),
        (("libnope.so", "word32"), "no image libnope.so"),
        (("writers", "flags"), "32 bytes"),
        (("--expr", "pool->nope"), "no member nope"),
        (("--expr", "pool->workers[9].state"), "4 elements"),
        (("--address", "0x10", "--size", "4"), "nothing is mapped"),
        (("--address", "0x10001", "--size", "4"), "not aligned"),
        (("--site", "writers+0x1"), "can't be hooked"),
        ((), "nothing to watch"),
    ],
)
def test_what_can_t_be_watched_is_said(writers: Path, words: tuple[str, ...], found: str) -> None:
    with target(writers, "sizes") as running:
        refused = flagfinder("watch", str(running.pid), *words)
    assert refused.returncode == 2
    assert_four_parts(refused.stderr, found)


def test_no_such_process(writers: Path) -> None:
    del writers
    refused = flagfinder("watch", "4194300", "app", "flag")
    assert refused.returncode == 2
    assert_four_parts(refused.stderr, "4194300")
