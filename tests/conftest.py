# SPDX-License-Identifier: MIT
"""Fixtures for every test that records real programs; what runs, and which failures are
expected.
"""

from __future__ import annotations

import fcntl
import os
import signal
from pathlib import Path

import expectations
import pytest
from harness import ROOT, flagfinder, live_or_skip, run
from sizes import ALONE, BESIDE, SOAK, WAITS

# pytest-xdist tells its workers how wide its own terminal is; our output has a width of its own.
os.environ.pop("COLUMNS", None)


@pytest.fixture(scope="session")
def tracer() -> None:
    """The tracer is built and works here; else the test skips, or fails under FF_REQUIRE_LIVE=1."""
    checked = flagfinder("record", "--check", timeout=1200)
    if checked.returncode != 0:
        live_or_skip(f"no working tracer: {checked.stderr.strip()[-2000:]}")


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built samples' directory, which all workers share."""
    base = tmp_path_factory.getbasetemp()
    out = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "samples"
    out.mkdir(exist_ok=True)
    with (out / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        built = run(["make", "-j2", "-C", str(ROOT / "samples"), f"OUT={out}"], timeout=600)
    assert built.returncode == 0, built.stderr
    return out


def pytest_configure() -> None:
    """What a shell starts in the background ignores SIGINT, and so would every program that is
    tested.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is for `make soak`; expects the failures that are known."""
    if not SOAK:
        left_out = [item for item in items if item.get_closest_marker("soak")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("soak")]
    for item in items:
        expectations.expect(item)
        if item.nodeid.startswith(ALONE) and not item.nodeid.startswith(BESIDE):
            item.add_marker(pytest.mark.alone)
        elif item.nodeid.startswith(WAITS):
            item.add_marker(pytest.mark.waits)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keeps the failures of tests that are tried again."""
    expectations.note(report)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails a run in which too many tests needed more tries than one."""
    if expectations.too_many() and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Shows why there were second tries, and what was too much."""
    for test, failure in expectations.second_tries.items():
        terminalreporter.write_line(f"first try of {test}: {failure}")
    for one in expectations.FLAKY:
        if one.failures:
            terminalreporter.write_line(
                f"flaky: {one.pattern} failed {one.failures} of {one.runs} tries; {one.reason}"
            )
    for reason in expectations.too_many():
        terminalreporter.write_line(f"the run fails: {reason}")
