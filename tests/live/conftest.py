# SPDX-License-Identifier: MIT
"""Fixtures of the tests of `watch`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from harness import ROOT, compiled, live_or_skip

SOURCE = ROOT / "tests" / "live" / "programs" / "writers.c"


@pytest.fixture(scope="session")
def writers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if os.geteuid() != 0:
        live_or_skip("watching needs CAP_BPF and CAP_PERFMON; run as root")
    return compiled(tmp_path_factory.mktemp("writers") / "writers", SOURCE)


@pytest.fixture(params=["perf", "lldb", "frida"])
def backend(request: pytest.FixtureRequest) -> list[str]:
    """Each backend, as words of the command line."""
    return ["--backend", request.param]


@pytest.fixture(params=["perf", "lldb"])
def attaching(request: pytest.FixtureRequest) -> list[str]:
    """Each backend that watches a running process."""
    return ["--backend", request.param]
