# SPDX-License-Identifier: MIT
"""Event files and folders that somebody made to do harm, for `hosts`: what they say is refused, or
kept within the folder and within bounds.
"""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up_events import (
    END,
    FLOWS,
    RECEIVED,
    SENT,
    THREADS,
    Event,
    event_file,
    events,
    facts,
    sleeps,
    wakes,
)
from pyarrow import parquet

from flagfinder.hosts.ingest import ingest
from flagfinder.hosts.questions import Hosts
from flagfinder.hosts.rows import write
from flagfinder.shared.errors import BadTraceError, UsageError

MS = 1_000_000
LARGEST = 2**32 - 1
PLAIN = [*sleeps(1 * MS, 7), *wakes(5 * MS, 7), *sleeps(9 * MS, 7)]
NAMES = facts(THREADS, [{"tid": 7, "pid": 7, "name": "app"}])


def end(ts: int) -> bytes:
    said = {"reason": "duration", "exit_status": None, "events": 5, "raw_bytes": 9, "lost": 0}
    return facts(END, {"ts": ts, **said, "lost_cpus": {}, "stacks_dropped": 0})


def flow(number: int) -> dict[str, Any]:
    ends = {"local": "10.0.0.1:80", "remote": "10.0.0.2:99"}
    return {"number": number, "protocol": "tcp", **ends}


def files(folder: Path) -> list[Path]:
    return [one for one in folder.rglob("*") if one.is_file() or one.is_symlink()]


def test_a_flow_may_have_any_number(tmp_path: Path) -> None:
    words = (LARGEST | 9 << 32, 5, 0)
    exchanged = [Event(6 * MS, RECEIVED, 7, 0, words), Event(7 * MS, SENT, 7, 0, words)]
    both = events(*PLAIN[:3], *exchanged, *PLAIN[3:])
    recording = event_file(
        tmp_path / "a", NAMES, facts(FLOWS, [flow(1), flow(LARGEST)]), both, end(10 * MS)
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (told,) = ingest([recording], tmp_path / "all")
    assert told["sends"] == 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # KiB


@pytest.mark.parametrize("blocks", [[], [events(*PLAIN)]], ids=["no rows", "rows"])
@pytest.mark.parametrize("boot_id", ["../../../../../escaped", "/tmp/x", "a\0b", "{i}{i}", "..%2f"])
def test_no_name_of_a_boot_or_host_leads_out_of_the_folder(
    tmp_path: Path, blocks: list[bytes], boot_id: str
) -> None:
    (tmp_path / "in").mkdir()
    recording = event_file(
        tmp_path / "in" / "a", NAMES, *blocks, end(10 * MS), boot_id=boot_id, host=boot_id
    )
    folder = tmp_path / "deep" / "all"
    ingest([recording], folder)
    found = set(files(tmp_path)) - {recording}
    assert found and all(folder in one.parents for one in found)
    assert Hosts(folder).waits() == []


def test_links_in_the_folder_are_not_followed(tmp_path: Path) -> None:
    recording = event_file(tmp_path / "a", NAMES, events(*PLAIN), end(10 * MS))
    folder, outside = tmp_path / "all", tmp_path / "outside"
    outside.mkdir()
    ingest([recording], folder)
    (file,) = files(folder / "waits")
    treasure = outside / "treasure"
    treasure.write_text("kept")
    file.unlink()
    file.symlink_to(treasure)
    ingest([recording], folder)
    assert treasure.read_text() == "kept" and not file.is_symlink()
    file.unlink()
    file.parent.rmdir()
    file.parent.symlink_to(outside)
    with pytest.raises(UsageError):
        ingest([recording], folder)
    assert [*outside.iterdir()] == [treasure]


@pytest.mark.parametrize(
    ("said", "ends"),
    [
        ({"host": "x" * 5000}, 10 * MS),
        ({"boot_id": "x" * 5000}, 10 * MS),
        ({"started": 2**64 - 1, "started_unix_ns": 0}, 10 * MS),
        ({"started_unix_ns": 2**64 - 1}, 10 * MS),
        ({}, 2**64 - 1),
    ],
    ids=["host", "boot", "started", "time of day", "end"],
)
def test_what_no_recorder_says_is_damage(tmp_path: Path, said: dict[str, Any], ends: int) -> None:
    recording = event_file(tmp_path / "a", NAMES, events(*PLAIN), end(ends), **said)
    with pytest.raises(BadTraceError):
        ingest([recording], tmp_path / "all")
    assert files(tmp_path) == [recording]


def test_times_of_events_that_no_clock_shows_are_damage(tmp_path: Path) -> None:
    late = [Event(one.ts + 2**63, *one[1:]) for one in PLAIN]
    recording = event_file(tmp_path / "a", NAMES, events(*late), end(10 * MS))
    with pytest.raises(BadTraceError):
        ingest([recording], tmp_path / "all")


def test_a_wait_of_a_century_makes_no_more_rows_than_can_be_joined(tmp_path: Path) -> None:
    """2^61 ns are 2^33 stretches of the usual length."""
    text = {"thread": "app", "call": "read", "ended_by": "timer", "by_thread": "", "flow": ""}
    numbers = {"pid": 7, "tid": 7, "start": 0, "end": 2**61, "by_tid": -1, "position": 0}
    row = {name: np.array([one], dtype=object) for name, one in text.items()}
    row |= {name: np.array([one], dtype=np.int64) for name, one in numbers.items()}
    write(row, tmp_path / "waits", "shop", 0, "one")
    none = {name: row[name][:0] for name in ("tid", "thread", "flow", "position")}
    write(none | {"ts": row["start"][:0]}, tmp_path / "sends", "shop", 0, "one")
    times = {name: row[name] for name in ("tid", "start", "end")}
    write(times, tmp_path / "threads", "shop", 0, "one")
    found = Hosts(tmp_path).path("shop", 7)
    assert found["whole"] == 2**61
    assert [(one["what"], one["total"]) for one in found["rows"]] == [("read, timer", 2**61)]


def test_tables_that_are_none_are_said_so(tmp_path: Path) -> None:
    recording = event_file(tmp_path / "a", NAMES, events(*PLAIN), end(10 * MS))
    folder = tmp_path / "all"
    ingest([recording], folder)
    (file,) = files(folder / "waits")
    sound = parquet.read_table(file)
    text = sound.drop_columns(["start"]).append_column("start", [["x"] * len(sound)])
    far = sound.drop_columns(["end", "start"])
    far = far.append_column("start", [[-(2**62)] * len(sound)])
    far = far.append_column("end", [[2**63 - 1] * len(sound)])
    for bad in (sound.drop_columns(["call"]), text, far, None):
        file.write_bytes(b"PAR1 none PAR1")
        if bad is not None:
            parquet.write_table(bad, file)
        with pytest.raises(BadTraceError):
            Hosts(folder).top()
        with pytest.raises(BadTraceError):
            Hosts(folder).path("shop", 7)
