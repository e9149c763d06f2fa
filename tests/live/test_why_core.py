# SPDX-License-Identifier: MIT
"""`flagfinder why --core` on planted hangs whose process is gone: what the core tells, and no
more.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import schemas
from harness import assert_four_parts, flagfinder, run
from planted import Truth, assert_true, built, planted
from sizes import in_turn

from flagfinder import _core
from flagfinder.cli.command import main

# The root that is known from a core alone, and how many links lead there.
SCENARIOS = {
    "lock_of_a_sleeper": ("timer", 3),
    "ab_ba": ("deadlock", 3),
    "lost_wakeup": ("deadlock", 2),
    "lost_wakeup_beside_a_heartbeat": ("unknown", 2),
    "any_of_two": ("unknown", 1),
    "starved_pool": ("unknown", 3),
    "polled_flag": ("unknown", 2),
    "read_table": ("timer", 2),
    "owner_ended": ("ended", 1),
    "unarmed_timer": ("unknown", 1),
    "blocked_signal": ("unknown", 1),
    "file_locks": ("unknown", 1),
    "child_reads_fifo": ("unknown", 1),
    "shared_lock": ("unknown", 1),
    "asks_pipe": ("unknown", 1),
    "condition_of_a_reader": ("unknown", 2),
    "semaphore_of_a_poller": ("unknown", 2),
}
# Where the end is unknown, the chain comes to the thread that is to blame all the same.
AT_THE_OWNER = ("starved_pool", "polled_flag", "condition_of_a_reader", "semaphore_of_a_poller")
# What a core does not hold is said so.
UNKNOWN = {
    "starved_pool": "what fd 3 is, and who holds its other end, is not in a core",
    "polled_flag": "what fd 3 is, and who holds its other end, is not in a core",
    "unarmed_timer": "what fd 3 is, and who holds its other end, is not in a core",
    "file_locks": "who holds the lock on the file of fd 3 is not in a core",
    "child_reads_fifo": "what keeps child ",
    "shared_lock": "may be another process's that shares the lock",
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("why"))


def why_core(core: Path, *options: str) -> dict[str, Any]:
    ran = flagfinder("why", "--json", "--core", core, *options, timeout=120)
    assert ran.returncode in (0, 1), ran.stderr
    report: dict[str, Any] = json.loads(ran.stdout)
    schemas.validate(report)
    assert report["source"] == "core"
    root = report["root"]
    assert (ran.returncode == 0) == (root["kind"] != "unknown" and not root["assumed"])
    return report


def core_of(program: Path, name: str, folder: Path) -> tuple[Path, Truth]:
    """The core of the hang, whose processes are gone."""
    path = folder / "core"
    with planted(program, name, folder) as (process, truth):
        assert _core.write_core(process.pid, str(path)) == []
    return path, truth


@pytest.mark.live
@pytest.mark.parametrize("name", in_turn(SCENARIOS))
def test_what_a_core_tells_is_the_planted_cause(name: str, program: Path, tmp_path: Path) -> None:
    kind, links = SCENARIOS[name]
    path, truth = core_of(program, name, tmp_path)
    report = why_core(path)
    is_own = kind == truth.kind or name in AT_THE_OWNER
    assert_true(report, Truth(kind, truth.pid if is_own else None, truth.tid if is_own else None))
    assert len(report["links"]) == links, report["story"]
    assert UNKNOWN.get(name, "") in report["root"]["what"], report["story"]
    assert str(path) in report["next"][0]


@pytest.mark.live
def test_the_thread_that_owes_a_polled_word_is_proved(program: Path, tmp_path: Path) -> None:
    path, truth = core_of(program, "polled_flag", tmp_path)
    owed = [link for link in why_core(path)["links"] if link["waits_for"]["kind"] == "flag"]
    assert [(link["owed_by"]["tid"], link["known"]) for link in owed] == [(truth.tid, "proved")]
    assert owed[0]["owed_by"]["code"]["symbol"].startswith("read_fifo")
    begun = why_core(path, "--thread", str(truth.tid))
    assert [link["waiter"]["tid"] for link in begun["links"]] == [truth.tid]


COREDUMPCTL = """\
#!/bin/sh
# As systemd's: `dump` writes the newest core, or that of a process.
for word; do case $word in --output=*) out=${word#*=};; 2147483647) echo "No coredumps found." >&2
    exit 1;; esac; done
cp '%s' "$out"
"""


@pytest.mark.live
def test_cores_that_systemd_keeps_are_fetched(
    program: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    path, truth = core_of(program, "ab_ba", tmp_path)
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "coredumpctl").write_text(COREDUMPCTL % path)
    (kept / "coredumpctl").chmod(0o755)
    folders = (str(kept), "/usr/bin", "/bin")
    monkeypatch.setattr("flagfinder.live.coredump._FOLDERS", folders)
    monkeypatch.setenv("PATH", ":".join(folders))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert main(["why", "--coredump", "latest", "--json"]) == 0
    report = json.loads(capfd.readouterr().out)
    schemas.validate(report)
    assert_true(report, truth)
    assert report["next"] == ["flagfinder why --coredump latest --stacks"]
    assert not [one for one in tmp_path.iterdir() if one.name.startswith("flagfinder-core-")]
    assert main(["why", "--coredump", "2147483647"]) == 69
    assert_four_parts(capfd.readouterr().err, "No coredumps found.")
    (kept / "coredumpctl").unlink()
    assert main(["why", "--coredump", "4711"]) == 69
    assert_four_parts(capfd.readouterr().err, "coredumpctl is not installed")


@pytest.mark.live
def test_cores_of_gcore_are_read_as_well(program: Path, tmp_path: Path) -> None:
    with planted(program, "ab_ba", tmp_path) as (process, truth):
        made = run(["gcore", "-o", tmp_path / "core", str(process.pid)], timeout=60)
        assert made.returncode == 0, made.stderr
    report = why_core(tmp_path / f"core.{process.pid}")
    assert_true(report, truth)
    assert report["links"][0]["waiter"]["name"] == "hangs"  # the program's: gcore notes none


@pytest.mark.live
def test_the_executable_may_lie_elsewhere_and_a_wrong_one_is_refused(
    program: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "moved"
    copy.write_bytes(program.read_bytes())
    copy.chmod(0o700)
    path, truth = core_of(copy, "owner_ended", tmp_path)
    copy.rename(tmp_path / "elsewhere")
    assert_true(why_core(path, "--program", str(tmp_path / "elsewhere")), truth)
    wrong = flagfinder("why", "--core", path, "--program", "/bin/true", timeout=60)
    assert wrong.returncode == 65
    assert_four_parts(wrong.stderr, "build-id")


@pytest.mark.parametrize(
    ("words", "status", "found"),
    [
        ([], 2, "0 words"),
        (["--core", "core", "4711"], 2, "1 word and --core"),
        (["--sysroot", "/", "4711"], 2, "goes with --core only"),
        (["--children", "--core", "core"], 2, "is about a live process"),
        (["--core", "/bin/true"], 65, "another kind of ELF file"),
        (["--core", "/dev/zero"], 65, "no regular file"),
    ],
)
def test_what_is_no_core_is_told(words: list[str], status: int, found: str) -> None:
    ran = flagfinder("why", *words, timeout=60)
    assert ran.returncode == status
    assert_four_parts(ran.stderr, found)
