# SPDX-License-Identifier: MIT
"""`why` and `guard` for a user without rights: under Yama's scopes, with a /proc that hides others'
processes, and without /proc/sys. The wait is that of tests/wheel/deadlock.c.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import (
    FLAGFINDER,
    ROOT,
    assert_four_parts,
    compiled,
    live_or_skip,
    run,
    started,
    wait_until,
)

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]
NOBODY = 65534
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where anybody can run them: pytest's folders are for the tests' user only."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        live_or_skip("becoming another user needs root and setpriv (util-linux)")
    probe = run([*AS_NOBODY, *FLAGFINDER, "--version"], timeout=60)
    if probe.returncode != 0:
        live_or_skip(f"another user can't run this flagfinder: {probe.stderr.strip()[-300:]}")
    made = tmp_path_factory.mktemp("programs")
    compiled(made / "deadlock", ROOT / "tests/wheel/deadlock.c")
    for name in ("yama", "executes"):
        compiled(made / name, ROOT / f"tests/live/programs/{name}.c")
    folder = Path(run(["mktemp", "-d", "/tmp/flagfinder-nobody-XXXXXX"], timeout=60).stdout.strip())
    folder.chmod(0o755)
    for name in ("deadlock", "yama", "executes"):
        shutil.copy(made / name, folder)
    owned = Path(shutil.copy(made / "executes", folder / "owned"))
    owned.chmod(0o4755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def hung(programs: Path) -> Iterator[int]:
    """A process of nobody's."""
    with started([*AS_NOBODY, programs / "deadlock"]) as process:
        wait_until_blocked(process)
        yield process.pid


def wait_until_blocked(process: subprocess.Popen[bytes]) -> None:
    """Until both threads wait in futex(2)."""
    end = time.monotonic() + 30
    calls: list[str] = []
    while calls != ["202", "202"]:
        assert time.monotonic() < end, calls
        time.sleep(0.05)
        tasks = Path(f"/proc/{process.pid}/task").iterdir()
        calls = [(task / "syscall").read_text().split()[0] for task in tasks]


def why(*words: object, under: list[str]) -> subprocess.CompletedProcess[str]:
    """As nobody, who has no folder of his own."""
    command = [*under, *FLAGFINDER, "why", *words, "--json"]
    return run(command, timeout=60, env={"HOME": "/nonexistent"})


def kind(asked: subprocess.CompletedProcess[str]) -> str:
    assert asked.returncode == 0, asked.stderr
    return str(json.loads(asked.stdout)["root"]["kind"])


def yama(programs: Path, scope: int) -> list[str]:
    return [str(programs / "yama"), str(scope), *AS_NOBODY]


@pytest.mark.parametrize("scope", [0, 1, 2, 3])
def test_what_yama_forbids_is_told_with_what_helps(programs: Path, hung: int, scope: int) -> None:
    asked = why(hung, under=yama(programs, scope))
    if scope == 0:
        assert kind(asked) == "deadlock"
        return
    assert asked.returncode == 77, asked.stderr
    helps = "ptrace_scope=0 is enough" if scope < 3 else "until the machine starts again"
    assert_four_parts(asked.stderr, helps)
    assert ("setpriv" in asked.stderr) == (scope < 3)
    checked = run([*yama(programs, scope), *FLAGFINDER, "doctor", "--json"], timeout=120)
    [check] = [one for one in json.loads(checked.stdout)["checks"] if one["name"] == "ptrace"]
    assert check["works"] is False and helps in check["fix"]


def test_guard_may_ask_about_its_own_command(programs: Path) -> None:
    command = ["guard", "--after", "2", "--", programs / "deadlock"]
    guarded = run([*yama(programs, 1), *FLAGFINDER, *command], timeout=90)
    assert guarded.returncode == 124, guarded.stderr
    assert "deadlock: thread" in guarded.stdout


@pytest.mark.parametrize("options", [["--in-place", "--budget", "10"], []])
def test_a_program_of_another_user_s_has_its_rights_though_it_begins_under_a_look(
    programs: Path, options: list[str]
) -> None:
    """The kernel gives them to none whose thread a tracer without them holds."""
    sign = programs / f"sign-{len(options)}"
    command = [*AS_NOBODY, programs / "executes", sign, programs / "owned"]
    with started(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        status = Path(f"/proc/{process.pid}/status")
        look = [*AS_NOBODY, *FLAGFINDER, "spin", *options, process.pid]
        with started(look, stdout=subprocess.DEVNULL, env={"HOME": "/nonexistent"}) as looks:

            def is_held_or_over() -> bool:
                is_held = "TracerPid:\t0\n" not in status.read_text()
                return is_held or looks.poll() is not None

            wait_until(process, is_held_or_over)
            sign.touch()
            assert process.stdout.readline() == "0\n"
            looks.wait(timeout=60)


def in_own_mounts(script: str) -> list[str]:
    """The beginning of a command for which this was mounted."""
    return ["unshare", "--mount", "sh", "-ec", f'{script}; exec "$@"', "sh", *AS_NOBODY]


def test_processes_that_proc_hides_are_told_from_those_that_ended(hung: int) -> None:
    hides = in_own_mounts("mount -t proc -o hidepid=2 proc /proc")
    assert kind(why(hung, under=hides)) == "deadlock"
    others = why(os.getpid(), under=hides)
    assert others.returncode == 77, others.stderr
    assert_four_parts(others.stderr, "hidepid")


def test_without_proc_sys(hung: int) -> None:
    assert kind(why(hung, under=in_own_mounts("mount -t tmpfs none /proc/sys"))) == "deadlock"
