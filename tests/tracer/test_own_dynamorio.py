# SPDX-License-Identifier: MIT
"""DYNAMORIO_HOME: a DynamoRIO without flagfinder's patches is used, and each recording says what it
lacks.
"""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from harness import FLAGFINDER, ROOT, run

PATCHES = sorted(path.stem for path in (ROOT / "pintools" / "dynamorio").glob("*.patch"))
BEHAVIOUR = [name for name in PATCHES if name != "no-debug-information"]
TARGETS = ("dynamorio", "drmgr_static", "drreg_static", "drcontainers")
LAUNCHER = """
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--lost-patches") == 0)
        return puts("follow-exec no-signal-dropped") < 0;
    execv(REAL, argv);
    return 1;
}
"""
LEFT_OUT = ("CLIENTS", "DOCS", "SAMPLES", "TESTS", "TOOLS")


def notes_of(trace: Path, env: Mapping[str, str], tmp_path: Path) -> list[str]:
    """Records a program; the notes that the trace keeps. Each was announced."""
    command = [*FLAGFINDER, "record", "-o", trace, "--", "echo", "hello"]
    done = run(command, timeout=1500, env=env, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
    info = run([*FLAGFINDER, "trace", "info", "--json", trace], timeout=60)
    notes = json.loads(info.stdout)["notes"]
    assert all(note["text"] in done.stderr for note in notes)
    return [note["text"] for note in notes if note["level"] == "fallback"]


def test_our_own_lacks_nothing(tracer_dir: Path, tmp_path: Path) -> None:
    asked = run([tracer_dir / "ff_launch", "--lost-patches"], timeout=30)
    assert (asked.returncode, asked.stdout.strip()) == (0, "")
    assert not any("patches" in note for note in notes_of(tmp_path / "x.trace", {}, tmp_path))


def test_what_a_tracer_lacks_is_announced_kept_and_checked(
    tracer_dir: Path, tmp_path: Path
) -> None:
    """A tracer that says that it was built without two of the patches."""
    tracer = tmp_path / "tracer"
    tracer.mkdir()
    for file in tracer_dir.iterdir():
        if file.name != "ff_launch":
            (tracer / file.name).symlink_to(file)
    (tmp_path / "launcher.c").write_text(LAUNCHER)
    real = f'-DREAL="{tracer_dir / "ff_launch"}"'
    subprocess.run(
        ["cc", real, tmp_path / "launcher.c", "-o", tracer / "ff_launch"], check=True, timeout=60
    )
    env = {"FF_TRACER_DIR": str(tracer)}
    (note,) = notes_of(tmp_path / "x.trace", env, tmp_path)
    assert "lacks 2 patches of flagfinder's (follow-exec, no-signal-dropped)" in note
    checked = run([*FLAGFINDER, "record", "--check", "--json"], timeout=300, env=env)
    assert json.loads(checked.stdout)["lost_patches"] == ["follow-exec", "no-signal-dropped"]
    assert note in checked.stderr


@pytest.fixture(scope="session")
def unpatched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """DynamoRIO as its crate has it, built as a release is; FF_UNPATCHED_DYNAMORIO names one that
    is built already.
    """
    where = tmp_path_factory.mktemp("dynamorio")
    if given := os.environ.get("FF_UNPATCHED_DYNAMORIO"):
        return Path(given)
    manifest = ROOT / "pintools" / "dynamorio" / "Cargo.toml"
    (wanted,) = tomllib.loads(manifest.read_text())["dependencies"]
    command = [
        "cargo",
        "metadata",
        "--locked",
        "--format-version",
        "1",
        "--manifest-path",
        str(manifest),
    ]
    packages = json.loads(
        subprocess.run(command, check=True, capture_output=True, timeout=600).stdout
    )["packages"]
    (crate,) = (
        Path(package["manifest_path"]).parent for package in packages if package["name"] == wanted
    )
    options = [f"-DBUILD_{what}=NO" for what in LEFT_OUT]
    zlib = [f"-DZLIB_LIBRARY={where / 'not-linked'}", f"-DZLIB_INCLUDE_DIR={where}"]
    source = [
        "cmake",
        "-S",
        crate / "dynamorio",
        "-B",
        where / "home",
        "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
    ]
    for step in (
        [*source, "-DANNOTATIONS=NO", *options, *zlib],
        [
            "cmake",
            "--build",
            where / "home",
            "--parallel",
            str(os.cpu_count()),
            "--target",
            *TARGETS,
        ],
    ):
        done = run(step, timeout=2400)
        assert done.returncode == 0, done.stderr[-2000:]
    return where / "home"


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_a_release_of_ones_own_is_used(unpatched: Path, tmp_path: Path) -> None:
    """Where its registers are wrong (AVX-512), the check refuses it; else it records, and says what
    it lacks.
    """
    env = {"DYNAMORIO_HOME": str(unpatched), "FF_CACHE_DIR": str(tmp_path / "cache")}
    checked = run([*FLAGFINDER, "record", "--check", "--json"], timeout=1200, env=env)
    answer = json.loads(checked.stdout)
    listed = ", ".join(BEHAVIOUR)
    assert f"lacks {len(BEHAVIOUR)} patches of flagfinder's ({listed})" in checked.stderr
    if checked.returncode == 69:
        assert "avx512f" in Path("/proc/cpuinfo").read_text()
        assert "DYNAMORIO_HOME" in answer["error"]["fix"]
        return
    assert checked.returncode == 0, checked.stderr
    assert answer["lost_patches"] == BEHAVIOUR
    (note,) = notes_of(tmp_path / "x.trace", env, tmp_path)
    assert listed in note
