# SPDX-License-Identifier: MIT
"""`flagfinder core` on what `gcore` and the kernel leave of samples that spin, with the process
gone.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemas
import zstandard
from harness import (
    announced_flags,
    assert_found,
    compiled,
    flagfinder,
    live_or_skip,
    run,
    started,
    wait_until,
    wait_until_it_spins,
)
from sizes import base, sample_cases, truth_of

# It waits for a descriptor that is ready at times, which a core does not hold.
UNKNOWN_IN_A_CORE = ("poll_work",)


def core_of(program: Path, tmp_path: Path, truth: dict[str, Any]) -> tuple[Path, str]:
    """A core of the program while it spins, and what it wrote to stderr. The process is gone."""
    error = tmp_path / "stderr"
    with (
        error.open("wb") as stderr,
        started(
            [program, "spin"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        ) as process,
    ):
        wait_until_it_spins(process, error, truth.get("value_spin"))
        made = run(["gcore", "-o", tmp_path / "core", str(process.pid)], timeout=60)
        assert made.returncode == 0, made.stderr
    return tmp_path / f"core.{process.pid}", error.read_text()


def assert_unknown(ran: subprocess.CompletedProcess[str]) -> None:
    """No flag is named, and it is said that what was ready, or what a read answers, is unknown."""
    assert ran.returncode == 1, ran.stderr
    threads = json.loads(ran.stdout)["threads"]
    assert not any(thread["flags"] for thread in threads)
    unknown = (
        "what was ready is not in the core",
        "what it reads is not in the core",
        "it comes to read, whose answer is not known",
    )
    assert any(text in thread["reason"] for thread in threads for text in unknown), ran.stdout


@pytest.fixture
def core(
    request: pytest.FixtureRequest, samples: Path, tmp_path: Path
) -> Iterator[tuple[Path, str, str]]:
    """The core of a sample, its stderr, its name."""
    name, stripped = request.param
    path, error = core_of(
        samples / ("stripped" if stripped else ".") / name, tmp_path, truth_of(name)
    )
    yield path, error, name
    path.unlink()


@pytest.mark.live
@pytest.mark.parametrize("core", sample_cases(positive=True, turn=0, of=3), indirect=True)
def test_true_flag_is_first(core: tuple[Path, str, str]) -> None:
    path, error, name = core
    ran = flagfinder("core", "--json", path, timeout=120)
    if base(name) in UNKNOWN_IN_A_CORE:
        assert_unknown(ran)
        return
    assert_found(ran)
    result = json.loads(ran.stdout)
    assert (result["schema"], result["source"]) == ("flagfinder.spin/1", "core")
    flag = result["threads"][0]["flags"][0]
    named = [(f["rank"], f["name"], f["confidence"]) for f in result["threads"][0]["flags"]]
    if truth_of(name)["kind"] == "syscall":
        assert flag["kind"] == "syscall", named
        return
    address, size = announced_flags(error)[0]
    assert (int(flag["address"]["spin"], 16), flag["size"]) == (address, size), named


@pytest.mark.live
@pytest.mark.parametrize("core", sample_cases(positive=False, turn=0, of=3), indirect=True)
def test_negative_has_no_flag(core: tuple[Path, str, str]) -> None:
    path, _, name = core
    ran = flagfinder("core", "--json", path, timeout=120)
    if base(name) in UNKNOWN_IN_A_CORE:
        assert_unknown(ran)
        return
    assert ran.returncode == 1, ran.stdout
    assert not any(thread["flags"] for thread in json.loads(ran.stdout)["threads"])


@pytest.fixture
def plain(samples: Path, tmp_path: Path) -> tuple[Path, str, Path]:
    """A core of a program of its own, its stderr, the program."""
    program = tmp_path / "spinner"
    shutil.copy(samples / "global_flag", program)
    path, error = core_of(program, tmp_path, truth_of("global_flag"))
    return path, error, program


@pytest.mark.live
def test_the_answer_was_tried_out_in_a_copy(plain: tuple[Path, str, Path]) -> None:
    path, _, _ = plain
    shown = flagfinder("core", path, timeout=120)
    assert shown.returncode == 0, shown.stderr
    assert "tried out" in shown.stdout
    threads = json.loads(flagfinder("core", "--json", path, timeout=120).stdout)["threads"]
    proof = threads[0]["flags"][0]["proof"]
    assert proof["outcome"] == "leaves"
    waits = [thread["wait"]["syscall"] for thread in threads[1:] if thread["wait"]]
    assert waits, "the thread that would write is described from its registers"


@pytest.mark.live
def test_who_owes_the_write(plain: tuple[Path, str, Path]) -> None:
    path, _, _ = plain
    thread = json.loads(flagfinder("core", "--json", path, timeout=120).stdout)["threads"][0]
    [owed] = thread["flags"][0]["owed"]
    assert owed["tid"] != thread["tid"] and "load_config" in owed["code"]["symbol"]
    assert (owed["known"], owed["value"]) == ("proved", "0x1")
    assert "`read` on fd" in owed["after"] and "a core does not tell" in owed["after"]


CLOCK = r"""
#include <stdio.h>
#include <time.h>
static volatile int done;
int main(void) {
    struct timespec now;
    fprintf(stderr, "FLAG address=%p size=4\n", (void *)&done);
    while (!done) clock_gettime(CLOCK_MONOTONIC, &now);
}
"""


@pytest.mark.live
def test_a_loop_that_reads_the_clock_goes_round(tmp_path: Path) -> None:
    """Cores do not hold the pages that the kernel keeps its clocks in."""
    (tmp_path / "clock.c").write_text(CLOCK)
    program = compiled(tmp_path / "clock", tmp_path / "clock.c")
    path, error = core_of(program, tmp_path, {})
    ran = flagfinder("core", "--json", path, timeout=120)
    assert_found(ran)
    flag = json.loads(ran.stdout)["threads"][0]["flags"][0]
    assert int(flag["address"]["spin"], 16) == announced_flags(error)[0][0]
    assert flag["proof"]["outcome"] == "leaves"


@pytest.mark.live
@pytest.mark.parametrize("packed", ["zst", "lz4"])
def test_packed_cores_are_read(plain: tuple[Path, str, Path], packed: str) -> None:
    path, error, _ = plain
    small = path.with_suffix(f".{packed}")
    if packed == "zst":
        small.write_bytes(zstandard.compress(path.read_bytes()))
    else:
        made = run(["lz4", "-q", "-f", path, small], timeout=60)
        assert made.returncode == 0, made.stderr
    result = json.loads(flagfinder("core", "--json", small, timeout=120).stdout)
    address, _ = announced_flags(error)[0]
    assert int(result["threads"][0]["flags"][0]["address"]["spin"], 16) == address


@pytest.mark.live
def test_another_program_is_told_by_its_build_id(
    plain: tuple[Path, str, Path], samples: Path, tmp_path: Path
) -> None:
    path, _, program = plain
    elsewhere = tmp_path / "moved"
    program.rename(elsewhere)
    shutil.copy(samples / "struct_field", program)
    refused = flagfinder("core", path, timeout=60)
    assert refused.returncode == 65
    assert (
        "is not the file that the process had mapped" in refused.stderr
        and "--program" in refused.stderr
    )
    named = flagfinder("core", path, "--program", elsewhere, timeout=120)
    assert named.returncode == 0, named.stderr


@pytest.mark.live
def test_files_of_another_machine_lie_under_its_root(
    plain: tuple[Path, str, Path], tmp_path: Path
) -> None:
    path, error, program = plain
    root = tmp_path / "root"
    needed = [
        program,
        *(
            Path(line.split()[2])
            for line in run(["ldd", program], timeout=20).stdout.splitlines()
            if "=>" in line
        ),
    ]
    loader = run(["readelf", "-p", ".interp", program], timeout=20).stdout.split()[-1]
    for file in [*needed, Path(loader)]:
        inside = root / str(file.resolve()).lstrip("/")
        inside.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, inside)
    program.unlink()
    done = flagfinder("core", "--json", path, "--sysroot", root, timeout=120)
    assert done.returncode == 0, done.stderr
    flag = json.loads(done.stdout)["threads"][0]["flags"][0]
    assert int(flag["address"]["spin"], 16) == announced_flags(error)[0][0]


@pytest.mark.live
def test_a_core_that_the_kernel_wrote(samples: Path, tmp_path: Path) -> None:
    pattern = Path("/proc/sys/kernel/core_pattern")
    if os.geteuid() != 0 or pattern.read_text().startswith("|"):
        live_or_skip("the kernel does not write cores into the current folder here")
    error = tmp_path / "stderr"
    with (
        error.open("wb") as stderr,
        started(
            ["sh", "-c", 'ulimit -c unlimited; exec "$0" spin', samples / "global_flag"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            cwd=tmp_path,
        ) as process,
    ):
        wait_until_it_spins(process, error, truth_of("global_flag").get("value_spin"))
        process.send_signal(signal.SIGABRT)  # SIGQUIT may be ignored, as in a background job
        process.wait(timeout=30)
    cores = list(tmp_path.glob("core*"))
    assert cores, pattern.read_text()
    ran = flagfinder("core", "--json", cores[0], timeout=120)
    assert_found(ran)
    flag = json.loads(ran.stdout)["threads"][0]["flags"][0]
    assert int(flag["address"]["spin"], 16) == announced_flags(error.read_text())[0][0]


@pytest.mark.parametrize(
    "content", [b"", b"\x7fELF", b"\x28\xb5\x2f\xfdxx", b"\x04\x22\x4d\x18xx", b"text"]
)
def test_what_is_no_core_is_refused(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "core"
    file.write_bytes(content)
    refused = flagfinder("core", file, timeout=60)
    assert refused.returncode == 65, refused.stderr
    assert "fix:" in refused.stderr and "itself failed" not in refused.stderr


def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    fifo = tmp_path / "core"
    os.mkfifo(fifo)
    refused = flagfinder("core", fifo, timeout=20)
    assert refused.returncode == 65 and "no regular file" in refused.stderr


POLLER = """
import sys, time
class Job:
    done = False
def wait(job):
    while not job.done:
        time.sleep(0.01)
print("ready", file=sys.stderr, flush=True)
wait(Job())
"""


@pytest.mark.live
def test_the_expression_that_a_python_loop_asks(tmp_path: Path) -> None:
    """From one moment: so it is likely, and no more."""
    script, error = tmp_path / "poller.py", tmp_path / "stderr"
    script.write_text(POLLER)
    with (
        error.open("wb") as stderr,
        started([sys.executable, script], stdin=subprocess.DEVNULL, stderr=stderr) as process,
    ):
        wait_until(process, lambda: "ready" in error.read_text())
        made = run(["gcore", "-o", tmp_path / "core", str(process.pid)], timeout=60)
        assert made.returncode == 0, made.stderr
    ran = flagfinder("core", "--json", tmp_path / f"core.{process.pid}", timeout=120)
    assert_found(ran)
    report = json.loads(ran.stdout)
    schemas.validate(report)
    loop = report["threads"][0]["python"]["loop"]
    assert [way["when"] for way in loop["exits"]] == ["job.done"]
    assert (loop["kind"], loop["confidence"]) == ("waits", 0.5)
    assert not report["threads"][0]["flags"], "the interpreter's words are not tried"
