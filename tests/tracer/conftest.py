# SPDX-License-Identifier: MIT
"""A built tracer and small programs to run under it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from harness import live_or_skip

from flagfinder.record.tracer_build import ensure_tracer

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(scope="session")
def tracer_dir(tracer: None) -> Path:  # noqa: ARG001  skips without a tracer
    """Where the tracer stands: FF_TRACER_DIR, else what the package built."""
    if directory := os.environ.get("FF_TRACER_DIR"):
        return Path(directory)
    return ensure_tracer(print).directory


@pytest.fixture(scope="session")
def frida() -> None:
    """Frida is installed, which is an extra; else the test skips, or fails under
    FF_REQUIRE_LIVE=1.
    """
    if find_spec("frida") is None:
        live_or_skip("frida is not installed")


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """program(name, *flags): builds programs/name and returns the path; skips where cc cannot."""
    out = tmp_path_factory.mktemp("programs")
    built: dict[tuple[str, ...], Path] = {}

    def build(name: str, *flags: str) -> Path:
        key = (name, *flags)
        if key not in built:
            path = out / f"{Path(name).stem}-{len(built)}"
            done = subprocess.run(
                ["cc", "-O1", "-o", path, PROGRAMS / name, *flags, "-pthread"],
                capture_output=True,
                text=True,
            )
            if done.returncode != 0:
                live_or_skip(f"cc could not build {name} {flags}: {done.stderr}")
            built[key] = path
        return built[key]

    return build
