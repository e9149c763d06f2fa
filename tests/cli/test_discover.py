# SPDX-License-Identifier: MIT
"""`discover`: the words that a good run's threads polled, and who wrote them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from harness import flagfinder, record
from sizes import truth_of

import flagfinder as api
from flagfinder.flags.flag_file import read_flag

pytestmark = pytest.mark.live


def discovered(samples: Path, where: Path, name: str, code: int = 0) -> dict[str, Any]:
    """What it says of the sample's good run."""
    trace = where / f"{name}.trace"
    recording = record(trace, [samples / name, "normal"])
    assert recording.exit_code == 0, recording.stderr
    ran = flagfinder("discover", "--json", trace, timeout=120)
    assert ran.returncode == code, ran.stderr
    (where / "flags.json").write_text(ran.stdout)
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


# These poll for long in their good runs, too: busy, by yielding, by sleeping, on the heap, on the
# stack, by several threads.
@pytest.mark.parametrize("name", ["bitmask", "counter_total", "heap_object", "tls_of_thread"])
def test_names_what_was_polled_and_who_wrote_it(samples: Path, tmp_path: Path, name: str) -> None:
    found, truth = discovered(samples, tmp_path, name), truth_of(name)
    wanted = {truth["symbol"], truth["field"]} - {None}
    named = [
        flag
        for flag in found["flags"]
        if wanted & {flag["symbol"], str(flag["field"]).lstrip(".")}
        or str(flag["access_path"]).rpartition("->")[2] in wanted
    ]
    assert named, found["flags"]
    flag = named[0]
    assert flag["waits"] >= 1 and flag["rounds"] >= 4
    writers = {writer["code"]["symbol"] for writer in flag["writers"]}
    assert any(function in str(writers) for function in truth["writer_functions"]), writers
    assert flag["value"]["spin"] != flag["value"]["exit"]
    polls = {thread["tid"] for thread in flag["polled_by"]}
    assert not polls & {writer["tid"] for writer in flag["writers"]}
    assert read_flag(f"{tmp_path / 'flags.json'}#{flag['rank']}").flag().name == flag["name"]


def test_of_several_words_behind_one_branch_each_is_named(samples: Path, tmp_path: Path) -> None:
    found = discovered(samples, tmp_path, "array_element")
    names = {flag["name"].partition(" ")[0] for flag in found["flags"]}
    assert names == {f"slots[{number}].done" for number in range(4)}


def test_a_program_that_only_computes_has_none(samples: Path, tmp_path: Path) -> None:
    found = discovered(samples, tmp_path, "finite_compute", code=1)
    assert found["flags"] == []
    shown = flagfinder("discover", tmp_path / "finite_compute.trace")
    assert shown.returncode == 1 and shown.stdout.startswith("no data flag"), shown.stdout


def test_a_recording_without_values_is_refused(samples: Path, tmp_path: Path) -> None:
    trace = tmp_path / "flow.trace"
    record(trace, [samples / "bitmask", "normal"], "--level", "flow")
    ran = flagfinder("discover", trace)
    assert ran.returncode == 2 and "--level values" in ran.stderr, ran.stderr
    with pytest.raises(api.BadTraceError):
        api.discover(api.open_trace(samples / "bitmask"))
