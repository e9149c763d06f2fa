# SPDX-License-Identifier: MIT
"""`watch` without root, and without a compiler: what is enough, and what is said otherwise."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from harness import FLAGFINDER, assert_four_parts, live_or_skip, run, started
from watching import (
    SET_UP,
    target,
)

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]


def test_without_privileges_the_capability_is_named(writers: Path, tmp_path: Path) -> None:
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        live_or_skip("setpriv (util-linux) is not installed")
    tmp_path.chmod(0o777)
    drop = [setpriv, "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"]
    with target(writers, "sizes") as running:
        refused = run(
            [*drop, *FLAGFINDER, "watch", str(running.pid), "writers", "word32"],
            timeout=60,
            env={"FF_CACHE_DIR": str(tmp_path)},
        )
        assert refused.returncode == 77, refused.stderr
        assert_four_parts(refused.stderr, "CAP_BPF and CAP_PERFMON")
        assert "perf_event_paranoid is" in refused.stderr
        assert "unprivileged_bpf_disabled is" in refused.stderr
        assert "still works:" in refused.stderr


def test_two_capabilities_are_enough(writers: Path) -> None:
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        live_or_skip("setpriv (util-linux) is not installed")
    # As root, so that files can be read wherever they are; its capabilities are these two.
    limit = [setpriv, "--bounding-set=-all,+bpf,+perfmon"]
    command = [*limit, str(writers), "sizes"]
    with started(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        while process.stdout.readline() != "ready 1\n":
            assert process.poll() is None
        watcher = subprocess.Popen(
            [
                *limit,
                *FLAGFINDER,
                "watch",
                str(process.pid),
                "writers",
                "word32",
                "--json-lines",
                "--until",
                "2",
            ],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert watcher.stdout is not None
        assert watcher.stdout.readline()
        process.stdin.write("go\n")
        process.stdin.flush()
        out, _ = watcher.communicate(timeout=SET_UP)
        assert [json.loads(line).get("value") for line in out.splitlines()] == [
            "0x33333333",
            "0x73737373",
            None,
        ]


def test_without_a_compiler_it_is_named(writers: Path, tmp_path: Path) -> None:
    with target(writers, "sizes") as running:
        refused = run(
            [*FLAGFINDER, "watch", str(running.pid), "writers", "word32", "--backend", "perf"],
            timeout=60,
            env={"FF_CACHE_DIR": str(tmp_path), "FF_CLANG": "/nonexistent/clang"},
        )
        assert refused.returncode == 69
        assert_four_parts(refused.stderr, "clang")
