# SPDX-License-Identifier: MIT
"""What is set for the program acts on the program alone, and reaches it as it was given."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness import FLAGFINDER

from flagfinder.shared.environment import target_environment
from flagfinder.shared.errors import UsageError

PRELOAD = r"""
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

__attribute__((constructor)) static void tell(void)
{
    char path[4096];
    ssize_t size = readlink("/proc/self/exe", path, sizeof path - 2);
    int log = open(PLACE, O_WRONLY | O_CREAT | O_APPEND, 0666);
    path[size] = '\n';
    if (write(log, path, size + 1) != size + 1)
        _exit(99);
    close(log);
}
"""


def environment(**settings: str | Path) -> dict[str, str]:
    """Ours without what our own runner was started with, and with these."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("LD_", "PYTHON"))
    }
    return {**kept, **{name: str(value) for name, value in settings.items()}}


def record(
    env: dict[str, str], trace: Path, *words: str | Path
) -> subprocess.CompletedProcess[bytes]:
    """Records with just this environment; the words are options, ``--`` and the program."""
    command = [*FLAGFINDER, "record", "--level", "flow", "-o", str(trace), *map(str, words)]
    return subprocess.run(
        command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=120
    )


@pytest.mark.usefixtures("tracer")
def test_the_program_sees_what_it_would_see_unrecorded(tmp_path: Path) -> None:
    env = environment(
        ZEBRA="last no more",
        LD_LIBRARY_PATH="/nowhere:/elsewhere",
        MALLOC_ARENA_MAX="1",
        GLIBC_TUNABLES="glibc.malloc.tcache_count=0",
        OPENSSL_CONF="/dev/null",
        PYTHONPATH=tmp_path,
        EMPTY="",
        ODD="a=b\nc",
    )
    for given in (env, environment(LC_ALL="C"), {"PATH": os.environ["PATH"], "LANG": "C"}):
        plain = subprocess.run(["env", "-0"], env=given, capture_output=True, timeout=30)
        traced = record(given, tmp_path / "env.trace", "--", "env", "-0")
        assert traced.returncode == 0, traced.stderr
        assert traced.stdout.split(b"\0") == plain.stdout.split(b"\0")


@pytest.mark.usefixtures("tracer")
def test_a_setting_for_the_program_alone(tmp_path: Path) -> None:
    given = {"PATH": os.environ["PATH"], "OLD": "1"}
    settings = ["--env", "OLD=2", "--env", "PYTHONHOME=/nowhere", "--env", "NEW=a=b"]
    traced = record(given, tmp_path / "env.trace", *settings, "--", "env")
    assert traced.returncode == 0, traced.stderr
    expected = [f"PATH={given['PATH']}", "OLD=2", "PYTHONHOME=/nowhere", "NEW=a=b"]
    assert traced.stdout.decode().splitlines() == expected


@pytest.mark.usefixtures("tracer")
def test_openssl_s_configuration_does_not_hang_the_recorder(tmp_path: Path) -> None:
    fifo = tmp_path / "openssl.cnf"
    os.mkfifo(fifo)
    traced = record(
        environment(OPENSSL_CONF=fifo), tmp_path / "run.trace", "--", "printenv", "OPENSSL_CONF"
    )
    assert (traced.returncode, traced.stdout.decode()) == (0, f"{fifo}\n"), traced.stderr


@pytest.mark.usefixtures("tracer")
def test_modules_for_the_program_are_none_of_ours(tmp_path: Path) -> None:
    for module in ("hashlib", "json", "rich"):
        (tmp_path / f"{module}.py").write_text(
            "raise SystemExit('this module is for the program')\n"
        )
    traced = record(
        environment(PYTHONPATH=tmp_path), tmp_path / "run.trace", "--", "printenv", "PYTHONPATH"
    )
    assert (traced.returncode, traced.stdout.decode()) == (0, f"{tmp_path}\n"), traced.stderr


@pytest.mark.usefixtures("tracer")
def test_a_preloaded_library_gets_into_the_program_only(program: Path, tmp_path: Path) -> None:
    source, library, log = tmp_path / "tell.c", tmp_path / "tell.so", tmp_path / "log"
    source.write_text(PRELOAD)
    build = ["cc", "-shared", "-fPIC", f'-DPLACE="{log}"', str(source), "-o", str(library)]
    subprocess.run(build, check=True, timeout=60)
    traced = record(
        environment(LD_PRELOAD=library), tmp_path / "run.trace", "--", program, "normal"
    )
    assert traced.returncode == 0, traced.stderr
    python = os.path.realpath(sys.executable)
    # Nobody can keep it out of the first start of Python.
    assert log.read_text().splitlines() == [python, str(program)]
    log.unlink()
    traced = record(
        environment(),
        tmp_path / "run.trace",
        "--env",
        f"LD_PRELOAD={library}",
        "--",
        program,
        "normal",
    )
    assert traced.returncode == 0, traced.stderr
    assert log.read_text().splitlines() == [str(program)]


def behind_the_gate(*words: str, settings: tuple[str, ...] = ()) -> bytes:
    """What a program behind the gate prints, started by a process of its own."""
    code = "import sys; from flagfinder.shared.gated import gated"
    code += "\nwith gated(sys.argv[2:], settings=sys.argv[1].split()) as p:"
    code += "\n p.release(); sys.exit(p.process.wait(30))"
    command = [sys.executable, "-P", "-c", code, " ".join(settings), *words]
    env = {"PATH": os.environ["PATH"], "ZEBRA": "1", "LANG": "C"}
    return subprocess.run(
        command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60
    ).stdout


def test_behind_the_gate_it_is_the_same() -> None:
    entries = behind_the_gate("env", "-0", settings=("LD_BIND_NOW=1",)).split(b"\0")[:-1]
    assert entries[1:] == [b"ZEBRA=1", b"LANG=C", b"LD_BIND_NOW=1"]


def test_a_program_with_an_equals_sign_in_its_name(tmp_path: Path) -> None:
    program = tmp_path / "a=b"
    program.write_text("#!/bin/sh\necho runs\n")
    program.chmod(0o755)
    assert behind_the_gate(str(program)) == b"runs\n"


@pytest.mark.parametrize("setting", ["NAME", "=value", ""])
def test_what_is_no_setting_is_refused(setting: str) -> None:
    with pytest.raises(UsageError):
        target_environment([setting])


def test_a_library_s_user_changes_what_the_program_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FF_TEST_NEW", "1")
    monkeypatch.delenv("PATH")
    entries = target_environment()
    assert b"FF_TEST_NEW=1" in entries
    assert not [entry for entry in entries if entry.startswith(b"PATH=")]


@pytest.mark.parametrize(
    ("settings", "twice"),
    [({}, False), ({"PYTHONUNBUFFERED": "1"}, False), ({"MALLOC_ARENA_MAX": "1"}, True)],
)
def test_the_command_starts_twice_only_where_it_must(settings: dict[str, str], twice: bool) -> None:
    env = {"PATH": os.environ["PATH"], **settings}
    code = "from flagfinder.shared import start; start.shield(); print(start.kept is not None)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env=env, capture_output=True, timeout=60, text=True
    )
    assert done.stdout == f"{twice}\n", done.stderr
