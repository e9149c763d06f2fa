# SPDX-License-Identifier: MIT
"""What keeps a run of the whole check from going on for ever, or from failing for a release of
somebody else's tool.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run_with_make(tmp_path: Path, script: str, limit: str) -> subprocess.CompletedProcess[str]:
    """Runs `.ci/run` where `make` is this script."""
    make = tmp_path / "make"
    make.write_text(f"#!/bin/sh\n{script}\n")
    make.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "FF_CI_LIMIT": limit}
    return subprocess.run(
        [ROOT / ".ci/run"], env=environment, capture_output=True, text=True, timeout=60
    )


def test_a_run_that_does_not_end_is_stopped_and_says_so(tmp_path: Path) -> None:
    # A background job of a shell ignores SIGINT, and so would what it starts.
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        done = run_with_make(tmp_path, "sleep 50", "1s")
    finally:
        signal.signal(signal.SIGINT, interrupt)
    assert done.returncode == 124
    assert "had not ended after 1s" in done.stderr


@pytest.mark.parametrize("code", [0, 2])
def test_the_result_of_make_is_the_result(tmp_path: Path, code: int) -> None:
    done = run_with_make(tmp_path, f'case "$*" in *" test") exit {code} ;; esac', "50s")
    assert (done.returncode, done.stderr) == (code, "")


def test_a_long_step_says_that_it_goes_on(tmp_path: Path) -> None:
    """Its exit status is the command's, and nothing of it is left to hold the output open."""
    (tmp_path / "sleep").write_text("#!/bin/sh\nexec /bin/sleep 0.1\n")
    (tmp_path / "sleep").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = [str(ROOT / ".ci/tell"), "compiling", "sh", "-c", "/bin/sleep 0.5; exit 3"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3
    assert done.stderr.splitlines()[:2] == ["compiling", "  .. 8 s: compiling"]


def test_the_versions_of_all_tools_are_given() -> None:
    names = (".ci/requirements.txt", ".ci/wheel-tools.txt", ".ci/requirements-soak.txt")
    files = [ROOT / name for name in names]
    lines = [line for file in files for line in file.read_text().splitlines()]
    tools = [line for line in lines if not line.startswith("#")]
    assert len(tools) > 20
    assert [tool for tool in tools if not re.fullmatch(r"[\w-]+==[\d.]+", tool)] == []


def test_every_skip_fails_where_all_tests_must_run() -> None:
    """`live_or_skip` in harness.py is the only one that skips: it honours FF_REQUIRE_LIVE."""
    skips = re.compile(r"pytest\.skip|importorskip|mark\.skip|unittest\.skip")
    files = [
        path
        for path in (ROOT / "tests").rglob("*.py")
        if path not in (Path(__file__), ROOT / "tests/harness.py")
    ]
    assert [str(path) for path in files if skips.search(path.read_text())] == []
