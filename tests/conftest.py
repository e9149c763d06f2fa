"""Fixtures for every test that records real programs."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from harness import ROOT, flagfinder, live_or_skip, run

# These tests run nothing that depends on how the machine's CPUs are shared; each of the others may fail once, and pass
# then. More than a few that do are a fault of ours, and fail the run. Under FF_REPEAT, which measures, none may.
REPRODUCIBLE = ("tests/unit/", "tests/cli/")
MOST_SECOND_TRIES = 3
second_tries: list[str] = []


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
    """Expects, and shows, the failures that known_gaps.txt lists; lets tests of running programs fail once."""
    gaps = known_gaps()
    for item in items:
        if not item.nodeid.startswith(REPRODUCIBLE) and "FF_REPEAT" not in os.environ:
            item.add_marker(pytest.mark.flaky(reruns=1))
        for pattern, reason, run_it in gaps:
            if fnmatchcase(item.nodeid, pattern):
                item.add_marker(pytest.mark.xfail(reason=reason, strict=False, run=run_it))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keeps the failures of tests that are tried again."""
    if report.outcome == "rerun":
        second_tries.append(f"{report.nodeid}: {report.longreprtext}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails a run in which too many tests needed a second try."""
    if len(second_tries) > MOST_SECOND_TRIES and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Shows why there were second tries, and how many may be."""
    for failure in second_tries:
        terminalreporter.write_line(f"first try of {failure}")
    if second_tries:
        terminalreporter.write_line(f"{len(second_tries)} second tries; more than {MOST_SECOND_TRIES} fail the run")
