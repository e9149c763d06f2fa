# SPDX-License-Identifier: MIT
"""Wide and odd programs do recorded what they do by themselves: many threads, many modules, deep
and large stacks, every way to make a process, static programs, sandboxes of their own.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import assert_consistent, compiled, flagfinder, live_or_skip, record, run

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("tracer")]

MODULES = 500
# What is recorded, and the options for it: what many threads or modules do is cheap at level flow.
KINDS = ("threads", "short", "deep", "vfork", "spawn", "clone3", "stack")


def assert_same(trace: Path, command: list[str | Path], *options: str) -> None:
    """Recorded, the command prints and returns the same, and the trace is whole."""
    plain = run(command, timeout=60)
    assert plain.returncode == 0, plain.stderr
    recorded = record(trace, command, "--level", "flow", *options)
    assert (recorded.exit_code, recorded.stdout) == (0, plain.stdout), recorded.stderr
    assert "; nothing lost" in recorded.stderr, recorded.stderr
    assert_consistent(trace)


def threads_of(trace: Path) -> int:
    """How many threads a trace holds."""
    info = json.loads(flagfinder("trace", "info", "--json", trace).stdout)
    return sum(len(process["threads"]) for process in info["processes"])


@pytest.mark.parametrize("kind", KINDS)
def test_it_runs_as_by_itself(kind: str, program: Callable[..., Path], tmp_path: Path) -> None:
    assert_same(tmp_path / "trace", [program("wide.c", "-pthread"), kind])
    least = {"threads": 65, "short": 3001}
    assert threads_of(tmp_path / "trace") >= least.get(kind, 1)


def test_five_hundred_modules(program: Callable[..., Path], tmp_path: Path) -> None:
    source, one = tmp_path / "one.c", tmp_path / "one.so"
    source.write_text("long one(void) { return 1; }\n")
    compiled(one, source, "-shared", "-fPIC")
    files: list[str | Path] = []
    for number in range(MODULES):
        files.append(tmp_path / f"module{number}.so")
        shutil.copy(one, files[-1])
    assert_same(tmp_path / "trace", [program("wide.c", "-pthread"), "modules", *files])
    info = json.loads(flagfinder("trace", "info", "--json", tmp_path / "trace").stdout)
    assert str(info).count("module499.so") >= 1


def test_a_static_program(program: Callable[..., Path], tmp_path: Path) -> None:
    assert_same(tmp_path / "trace", [program("wide.c", "-pthread", "-static"), "threads"])


def test_a_musl_program(tmp_path: Path) -> None:
    if shutil.which("musl-gcc") is None:
        live_or_skip("musl-gcc is not installed")
    source, built = tmp_path / "sum.c", tmp_path / "sum"
    source.write_text(
        "#include <pthread.h>\n#include <stdio.h>\nstatic long sum;\n"
        "static void *add(void *n) { __atomic_add_fetch(&sum, (long)n, 5); return 0; }\n"
        "int main(void) { for (long n = 0; n < 20; n++) { pthread_t id;\n"
        " pthread_create(&id, 0, add, (void *)n); pthread_join(id, 0); }\n"
        ' return printf("%ld\\n", sum) < 0; }\n'
    )
    assert run(["musl-gcc", "-O1", "-o", built, source], timeout=60).returncode == 0
    assert_same(tmp_path / "trace", [built])


def test_without_address_randomization_and_with_large_stacks(
    program: Callable[..., Path], tmp_path: Path
) -> None:
    wide = program("wide.c", "-pthread")
    assert_same(tmp_path / "fixed.trace", ["setarch", "-R", wide, "deep"])
    assert_same(tmp_path / "large.trace", ["sh", "-c", f"ulimit -s 131072 && exec {wide} deep"])


def test_a_sandbox_of_its_own_is_recorded_or_told(
    program: Callable[..., Path], tmp_path: Path
) -> None:
    wide = program("wide.c", "-pthread")
    plain = run([wide, "sandbox"], timeout=60)
    recorded = record(tmp_path / "trace", [wide, "sandbox"])
    if (recorded.exit_code, recorded.stdout) != (plain.returncode, plain.stdout):
        assert recorded.exit_code != 0
        assert "went into a sandbox of its own (seccomp)" in recorded.stderr, recorded.stderr
    assert_consistent(tmp_path / "trace")


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_browser(tmp_path: Path) -> None:
    """Much code, some of it made as it runs, and two dozen processes."""
    if shutil.which("chromium") is None:
        live_or_skip("chromium is not installed")
    page = tmp_path / "page.html"
    page.write_text(
        "<p id=a>no</p><script>document.getElementById('a').textContent = 'answer ' + 6 * "
        "7</script>\n"
    )
    command = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'profile'}",
    ]
    trace = tmp_path / "trace"
    recorded = record(
        trace, [*command, "--dump-dom", page.as_uri()], "--level", "flow", timeout=600
    )
    assert recorded.exit_code == 0, recorded.stderr
    assert '<p id="a">answer 42</p>' in recorded.stdout
    assert "; nothing lost" in recorded.stderr, recorded.stderr
    info = json.loads(flagfinder("trace", "info", "--json", trace).stdout)
    names = [[thread["name"] for thread in process["threads"]] for process in info["processes"]]
    assert len(names) > 4
    assert any("Compositor" in threads for threads in names), "a process that renders"
