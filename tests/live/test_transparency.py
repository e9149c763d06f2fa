# SPDX-License-Identifier: MIT
"""Real programs give the same result traced as untraced, at both levels."""

from __future__ import annotations

import filecmp
import functools
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from harness import assert_consistent, live_or_skip, record, run
from sizes import in_turn

pytestmark = pytest.mark.live
LEVELS = pytest.mark.parametrize("level", ["flow", "values"])
PYTHON_TESTS = [
    "test_mmap",
    "test_queue",
    "test_threading",
    "test_signal",
    "test_subprocess",
    "test_socket",
]


def python_with_tests() -> str:
    for python in (sys.executable, "/usr/bin/python3"):
        if run([python, "-c", "import test.test_threading"], timeout=60).returncode == 0:
            return python
    live_or_skip("no Python here has CPython's test package")


def verdicts(output: str) -> dict[str, str]:
    """test -> outcome, from `python -m test -v`. A docstring and what a test prints take lines of
    their own.
    """
    test = r"^(test\w+ \([\w.]+\))\n?(?!test\w+ \().*? \.\.\. (?:.*\n)??(ok|FAIL|ERROR|skipped)"
    return dict(re.findall(test, output, re.M))


def failures(output: str) -> str:
    """What `python -m test -v` says of the tests that failed, or its last words."""
    begins = output.find("\n" + "=" * 70)
    return output[begins:] if begins >= 0 else output[-3000:]


def cpython_command(module: str) -> list[str]:
    """Without what hangs untraced too: AF_VSOCK's loopback, where there is the device and no host
    that answers.
    """
    return [python_with_tests(), "-m", "test", "-v", "--timeout", "300", "-i", "*VSOCK*", module]


background = ThreadPoolExecutor(1)


@functools.cache
def untraced(module: str) -> Future[subprocess.CompletedProcess[str]]:
    """A module's run without the tracer: one at a time, mostly asleep, so beside another module's
    recording.
    """

    def run_in_folder() -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryDirectory() as folder:
            return run(cpython_command(module), timeout=600, cwd=Path(folder))

    return background.submit(run_in_folder)


@pytest.mark.soak  # they take up to minutes each under a tracer
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("module", "level"),
    [(module, level) for module in PYTHON_TESTS for level in ("flow", "values")],
)
@pytest.mark.usefixtures("tracer")
def test_cpython_tests(module: str, level: str, tmp_path: Path) -> None:
    plain = untraced(module).result()
    for following in PYTHON_TESTS[PYTHON_TESTS.index(module) + 1 :][:1]:
        untraced(following)
    traced = record(
        tmp_path / "t.trace", cpython_command(module), "--level", level, timeout=1500, cwd=tmp_path
    )
    assert_consistent(tmp_path / "t.trace")
    (tmp_path / "t.trace").unlink()
    output = traced.stdout + traced.stderr
    expected, got = verdicts(plain.stdout + plain.stderr), verdicts(output)
    assert len(expected) >= 10, "the untraced run shows no tests"
    differing = {
        name: (expected.get(name), got.get(name))
        for name in expected | got
        if expected.get(name) != got.get(name)
    }
    assert not differing, failures(output)
    assert traced.exit_code == plain.returncode, failures(output)


def thousand_statements() -> str:
    lines = ["create table t(a integer primary key, b text, c real);"]
    lines += [f"insert into t values({i}, 'row {i * 7919 % 997}', {i} / 7.0);" for i in range(600)]
    lines += [f"select count(*), sum(c), max(b) from t where a % {k + 1} = 0;" for k in range(300)]
    lines += [f"update t set c = c * {k} where a = {k * 5};" for k in range(98)]
    return "\n".join([*lines, "select printf('%.6f', sum(c)) from t;"]) + "\n"


@LEVELS
@pytest.mark.usefixtures("tracer")
def test_sqlite_script(level: str, tmp_path: Path) -> None:
    if shutil.which("sqlite3") is None:
        live_or_skip("sqlite3 is not installed")
    script = tmp_path / "script.sql"
    script.write_text(thousand_statements())
    assert script.read_text().count(";") == 1000
    command = ["sqlite3", ":memory:", f".read {script}"]
    plain = run(command, timeout=60)
    assert plain.returncode == 0 and plain.stdout.count("\n") == 301
    traced = record(tmp_path / "t.trace", command, "--level", level)
    assert_consistent(tmp_path / "t.trace")
    assert (traced.exit_code, traced.stdout) == (plain.returncode, plain.stdout)


@LEVELS
@pytest.mark.parametrize("tool", in_turn(["gzip", "xz"]))
@pytest.mark.usefixtures("tracer")
def test_round_trip(tool: str, level: str, tmp_path: Path) -> None:
    if shutil.which(tool) is None:
        live_or_skip(f"{tool} is not installed")
    original = tmp_path / "original"
    original.write_bytes(b"".join(f"{i} {i * i % 7919}\n".encode() for i in range(150_000)))
    subprocess.run(f"{tool} -n -c original > "
                   "plain" if tool == "gzip" else f"{tool} -c original > plain",
                   shell=True, check=True, cwd=tmp_path, timeout=60)  # fmt: skip
    shutil.copy(original, tmp_path / "packed")
    options = ["-n"] if tool == "gzip" else []
    packed = record(
        tmp_path / "p.trace", [tool, *options, "packed"], "--level", level, cwd=tmp_path
    )
    assert packed.exit_code == 0, packed.stderr
    result = tmp_path / ("packed.gz" if tool == "gzip" else "packed.xz")
    assert filecmp.cmp(result, tmp_path / "plain", shallow=False), (
        "compressed bytes differ from the untraced run's"
    )
    unpacked = record(
        tmp_path / "u.trace", [tool, "-d", result.name], "--level", level, cwd=tmp_path
    )
    assert unpacked.exit_code == 0, unpacked.stderr
    assert filecmp.cmp(original, tmp_path / "packed", shallow=False)
    for trace in ("p.trace", "u.trace"):
        assert_consistent(tmp_path / trace)
