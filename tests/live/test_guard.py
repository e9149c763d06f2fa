# SPDX-License-Identifier: MIT
"""`flagfinder guard`: silent about a command that ends, and the story of one that hangs."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
import schemas
from harness import assert_four_parts, flagfinder


def left_over(mark: str) -> list[int]:
    """Processes with this word among their arguments."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if mark.encode() in words:
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize(("script", "status"), [("exit 0", 0), ("echo out; exit 7", 7), ("kill -9 $$", 137)])
def test_a_command_that_ends_is_let_alone(script: str, status: int, tmp_path: Path) -> None:
    output = tmp_path / "hang"
    ran = flagfinder("guard", "--after", "60", "--idle", "30", "-o", output, "--", "sh", "-c", script, timeout=60)
    assert (ran.returncode, ran.stderr) == (status, "")
    assert ran.stdout == ("out\n" if "echo" in script else "")
    assert not output.exists()


@pytest.mark.live
def test_the_story_of_a_hang_is_written_and_the_tree_is_ended(tmp_path: Path) -> None:
    mark = f"guarded-{os.getpid()}"
    # The one that hangs hears no SIGTERM, and its parent is stopped.
    child = "trap '' TERM; sleep 1000; :"
    script = f"sh -c \"{child}\" {mark} & sh -c 'kill -STOP $$' {mark}; echo never"
    output = tmp_path / "hang"
    ran = flagfinder("guard", "--after", "2", "-o", output, "--", "sh", "-c", script, timeout=60)
    assert ran.returncode == 124
    assert "never" not in ran.stdout
    assert ran.stdout.startswith("stopped: process")
    report = json.loads((output / "why.json").read_text())
    schemas.validate(report)
    assert report["root"]["kind"] == "stopped"
    assert report["story"][0] in (output / "why.txt").read_text()
    assert "<svg" in (output / "why.html").read_text()
    assert (output / "why.txt").stat().st_mode & 0o077 == 0
    assert not left_over(mark)


@pytest.mark.live
def test_idle_is_who_neither_computes_nor_reads_nor_writes() -> None:
    begin = time.monotonic()
    busy = "i=0; while [ $i -lt 30 ]; do i=$((i+1)); echo $i; sleep 0.1; done"
    ran = flagfinder("guard", "--idle", "1", "--json", "--", "sh", "-c", f"{busy}; sleep 1000", timeout=60)
    assert ran.returncode == 124
    assert time.monotonic() - begin > 3, "it was not idle before"
    fields = json.loads(ran.stdout)
    schemas.validate(fields)
    assert (fields["exit_code"], fields["hung"]) == (124, True)
    assert [report["root"]["kind"] for report in fields["reports"]] == ["timer"]
    assert "29" in ran.stderr  # what the command prints goes there


@pytest.mark.live
def test_a_process_whose_parent_ended_is_asked_and_ended() -> None:
    mark = f"orphan-{os.getpid()}"
    script = f"(sh -c 'kill -STOP $$; :' {mark} &) ; sleep 1000"
    ran = flagfinder("guard", "--after", "1", "--json", "--", "sh", "-c", script, timeout=60)
    kinds = {report["root"]["kind"] for report in json.loads(ran.stdout)["reports"]}
    assert kinds == {"timer", "stopped"}
    assert not left_over(mark)


def test_github_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    ran = flagfinder("guard", "--after", "0.5", "--", "sh", "-c", "sleep 1000; :", timeout=60)
    lines = [line for line in ran.stdout.splitlines() if line.startswith("::")]
    assert len(lines) == 1
    assert lines[0].startswith("::error title=The command hangs::waits for a timer")
    assert "%0A" in lines[0]


@pytest.mark.parametrize(
    ("words", "status", "found"),
    [
        (["--after", "1", "--", "/does/not/exist"], 127, "No such file"),
        (["--after", "1", "--", "/etc/passwd"], 126, "Permission denied"),
        (["--", "true"], 2, "neither --after nor --idle"),
        (["--after", "1"], 2, "no command"),
    ],
)
def test_what_can_t_be_started_is_told(words: list[str], status: int, found: str) -> None:
    ran = flagfinder("guard", *words, timeout=60)
    assert ran.returncode == status
    assert_four_parts(ran.stderr, found)
