"""Fixtures for every test that records real programs."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from harness import ROOT, flagfinder, live_or_skip, run


@pytest.fixture(scope="session")
def tracer() -> None:
    """The tracer is built and works here; else the test skips, or fails under FF_REQUIRE_LIVE=1."""
    checked = flagfinder("record", "--check", timeout=1200)
    if checked.returncode != 0:
        live_or_skip(f"no working tracer: {checked.stderr.strip()[-2000:]}")


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built samples' directory."""
    out = tmp_path_factory.mktemp("samples")
    built = run(["make", "-C", str(ROOT / "samples"), f"OUT={out}"], timeout=600)
    assert built.returncode == 0, built.stderr
    return out


def known_gaps() -> list[tuple[str, str, bool]]:
    """(pattern of test ids, what is missing, whether to run it) for each line of known_gaps.txt."""
    gaps = []
    for line in (ROOT / "tests/known_gaps.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            pattern, way, reason = line.split(maxsplit=2)
            gaps.append((pattern.replace("[", "[[]"), reason, way == "run"))
    return gaps


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Expects, and shows, the failures that known_gaps.txt lists."""
    gaps = known_gaps()
    for item in items:
        for pattern, reason, run_it in gaps:
            if fnmatchcase(item.nodeid, pattern):
                item.add_marker(pytest.mark.xfail(reason=reason, strict=False, run=run_it))
