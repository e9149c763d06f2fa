# SPDX-License-Identifier: MIT
"""`watch` and `events record` as a user without rights, with two capabilities given to the one
command, as its own error advises."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from harness import FLAGFINDER, assert_four_parts, live_or_skip, run
from watching import Target, values, watching

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]
NOBODY = 65534
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder of nobody's own, below /tmp: pytest's are for the tests' user only."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        live_or_skip("becoming another user needs root and setpriv (util-linux)")
    probe = run([*AS_NOBODY, *FLAGFINDER, "--version"], timeout=60)
    if probe.returncode != 0:
        live_or_skip(f"another user can't run this flagfinder: {probe.stderr.strip()[-300:]}")
    del tmp_path
    made = subprocess.run(
        ["mktemp", "-d", "/tmp/flagfinder-nobody-XXXXXX"],
        capture_output=True,
        text=True,
        check=True,
    )
    folder = Path(made.stdout.strip())
    os.chown(folder, NOBODY, NOBODY)
    yield folder
    shutil.rmtree(folder)


def advised(words: list[str], place: Path) -> list[str]:
    """What the error tells to write in place of `flagfinder`, for this user."""
    refused = run(
        [*AS_NOBODY, *FLAGFINDER, *words],
        timeout=60,
        cwd=place,
        env={"FF_CACHE_DIR": str(place / "cache")},
    )
    assert refused.returncode == 77, refused.stderr
    assert_four_parts(refused.stderr, "CAP_BPF and CAP_PERFMON")
    assert "setcap" not in refused.stderr
    lines = [line.strip() for line in refused.stderr.splitlines()]
    [line] = [line for line in lines if "sudo setpriv" in line]
    command = line[line.index("sudo setpriv") :].removeprefix("sudo ")
    assert command.endswith("$(command -v flagfinder) ..")
    command = command.removesuffix("$(command -v flagfinder) ..")
    # It is for the user's own shell; we are root, as sudo would make us.
    return [*command.replace("$(id -u)", str(NOBODY)).replace("$(id -g)", str(NOBODY)).split()]


def test_watch_with_two_capabilities(writers: Path, place: Path) -> None:
    program = shutil.copy(writers, place / "writers")
    with closing(Target(Path(AS_NOBODY[0]), *AS_NOBODY[1:], str(program), "sizes")) as running:
        words = ["writers", "word32", "--backend", "perf"]
        under = advised(["watch", str(running.pid), *words], place)
        with watching(running.pid, *words, "--until", "2", under=under) as watcher:
            running.go()
            events, _ = watcher.rest()
    assert values(events) == [("w", "0x0", "0x33333333"), ("w", "0x33333333", "0x73737373")]


def test_events_record_with_two_capabilities(place: Path) -> None:
    path = place / "run.events"
    words = ["events", "record", "-o", str(path), "--json"]
    script = "grep -E 'Uid|CapEff|CapAmb' /proc/self/status >&2; sleep 0.1"
    program = ["--", "/bin/sh", "-c", script]
    under = advised([*words, *program], place)
    ran = run([*under, *FLAGFINDER, *words, *program], timeout=60, cwd=place)
    assert ran.returncode == 0, ran.stderr
    assert path.stat().st_uid == NOBODY
    told = json.loads(ran.stdout)
    assert told["lost"]["total"] == 0
    assert told["events"] > 10
    assert [
        note
        for note in told["notes"]
        if note["level"] == "fallback" and "sched_yield" in note["text"]
    ] == []
    fields = dict(line.split(":\t", 1) for line in ran.stderr.splitlines() if ":\t" in line)
    assert set(fields["Uid"].split()) == {str(NOBODY)}
    assert {int(fields["CapEff"], 16), int(fields["CapAmb"], 16)} == {0}, (
        "the program gets none of the command's rights"
    )
    checked = run([*FLAGFINDER, "events", "check", path], timeout=60)
    assert checked.returncode == 0, checked.stdout
