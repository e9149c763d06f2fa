# SPDX-License-Identifier: MIT
"""What tests of recorded programs share: run with a timeout, record, diff, compare with a truth.

Every process is started in a session of its own and the whole session is killed when its time is
up.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

import numpy as np
import pytest

import flagfinder as ff

ROOT = Path(__file__).resolve().parent.parent
FLAGFINDER = shlex.split(
    os.environ.get("FF_COMMAND", f"{shlex.quote(sys.executable)} -P -m flagfinder")
)


def live_or_skip(reason: str) -> NoReturn:
    """Skips, or fails where FF_REQUIRE_LIVE=1 says that everything must run."""
    if os.environ.get("FF_REQUIRE_LIVE") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def needs_root(reason: str) -> pytest.MarkDecorator:
    """Skips a test without root; under FF_REQUIRE_LIVE=1 it runs, and fails."""
    required = os.environ.get("FF_REQUIRE_LIVE") == "1"
    return pytest.mark.skipif(os.geteuid() != 0 and not required, reason=reason)


_Made = TypeVar("_Made")


class LastMade(Generic[_Made]):
    """What several tests with the same parameters look at. It is made once, and anew for a test's
    second try.
    """

    def __init__(self) -> None:
        self._key: str | None = None
        self._made: _Made | None = None

    def get(self, request: pytest.FixtureRequest, make: Callable[[], _Made]) -> _Made:
        """What `make` returned for these parameters. pytest-rerunfailures counts the tries."""
        key, tries = request.node.callspec.id, getattr(request.node, "execution_count", 1)
        if self._made is None or self._key != key or tries > 1:
            self._key, self._made = None, None
            made = make()
            self._key, self._made = key, made
        return self._made


def kill_session(process: subprocess.Popen[Any]) -> None:
    """SIGKILL to all that the process started in its session, then reaps it."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if os.getsid(int(entry.name)) == process.pid:
                    os.kill(int(entry.name), signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    process.wait(timeout=30)


@contextlib.contextmanager
def started(command: Sequence[object], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A process in a session of its own, which is killed in the end. ``options`` are Popen's."""
    words = [str(word) for word in command]
    process = subprocess.Popen(words, start_new_session=True, **options)
    try:
        yield process
    finally:
        kill_session(process)


def run(
    command: Sequence[object],
    *,
    timeout: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs to the end or to the timeout; then the whole session is killed and TimeoutExpired
    raised.
    """
    with started(
        command,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as process:
        out, err = process.communicate(stdin, timeout=timeout)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def compiled(program: Path, *words: object) -> Path:
    """Compiles `program` from sources in C or C++, with further options."""
    compiler = "g++" if any(Path(str(word)).suffix in {".cpp", ".cc"} for word in words) else "gcc"
    ran = run([compiler, "-O1", "-g", "-pthread", "-o", program, *words], timeout=120)
    assert ran.returncode == 0, ran.stderr
    return program


def command_into(output: Path, verb: str, *options: object) -> list[str]:
    """The beginning of a command that writes a file: flagfinder's verb, file and options."""
    return [*FLAGFINDER, *verb.split(), "-o", str(output), *map(str, options)]


def flagfinder(
    *words: object, timeout: float = 300, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs the command line."""
    return run([*FLAGFINDER, *words], timeout=timeout, cwd=cwd)


def browse(page: Path, *options: str) -> str:
    """What a browser without a screen prints about a page."""
    chromium = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
    ]
    ran = run(
        [*chromium, f"--user-data-dir={page.parent}/profile", *options, page.as_uri()], timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@dataclass(frozen=True)
class Recording:
    """One recorded run of a program."""

    trace: Path
    stdout: str
    stderr: str
    exit_code: int
    ended_by_itself: bool  # the recorder ended, we did not have to kill the program


def need_python_3_11(python: str) -> None:
    """Skips, or fails, where the interpreter is another than the one whose layout the test's
    program knows.
    """
    version = run([python, "-V"], timeout=10).stdout.strip()
    if not version.startswith("Python 3.11."):
        live_or_skip(f"addresses are known for CPython 3.11 only, and {python} is {version}")


def children(pid: int) -> list[int]:
    """The direct children of a process."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(child) for child in task.read_text().split()]
    return found


def recorded(recorder: int) -> list[int]:
    """What a recorder has started. Where a file system may fall silent, the command records in a
    child, which has its command line.
    """

    def words(pid: int) -> bytes:
        with contextlib.suppress(OSError):
            return Path(f"/proc/{pid}/cmdline").read_bytes()
        return b""

    found = children(recorder)
    own = [pid for pid in found if words(pid) == words(recorder)]
    return recorded(own[0]) if own else found


@contextlib.contextmanager
def pid_namespace() -> Iterator[list[str]]:
    """A pid namespace with its own /proc: the beginning of a command that runs the rest in it."""
    if shutil.which("nsenter") is None or os.geteuid() != 0:
        live_or_skip("pid namespaces need root and nsenter (util-linux)")
    words = [
        *["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"],
        "echo; exec sleep 3600",
    ]
    with started(words, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        if not holder.stdout.readline():
            live_or_skip("pid namespaces can't be made here")
        yield ["nsenter", "--target", str(children(holder.pid)[0]), "--pid", "--mount", "--"]


def record(
    trace: Path,
    command: Sequence[object],
    *options: str,
    kill_after: float | None = None,
    timeout: float = 120,
    cwd: Path | None = None,
) -> Recording:
    """Records a run. With kill_after the program, not the recorder, gets SIGKILL after so many
    seconds.
    """
    out_path, err_path = trace.with_suffix(".out"), trace.with_suffix(".err")
    with out_path.open("wb") as out, err_path.open("wb") as err:
        process = subprocess.Popen(
            [
                *FLAGFINDER,
                "record",
                "-o",
                str(trace),
                *options,
                "--",
                *[str(word) for word in command],
            ],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        ended_by_itself = True
        deadline = time.monotonic() + timeout
        try:
            try:
                process.wait(timeout=timeout if kill_after is None else kill_after)
            except subprocess.TimeoutExpired:
                if kill_after is None:
                    raise
                ended_by_itself = False
                for child in recorded(process.pid):
                    os.kill(child, signal.SIGKILL)
                process.wait(timeout=max(1.0, deadline - time.monotonic()))
        finally:
            kill_session(process)
    return Recording(
        trace,
        out_path.read_text(errors="replace"),
        err_path.read_text(errors="replace"),
        process.returncode,
        ended_by_itself,
    )


def diff(normal: Path, spin: Path, *options: str, timeout: float = 300) -> dict[str, Any]:
    """What `flagfinder diff --json` prints. Exit 0 goes with a flag, 1 with none."""
    ran = flagfinder("diff", "--json", *options, normal, spin, timeout=timeout)
    assert ran.returncode in (0, 1), f"diff ended with {ran.returncode}: {ran.stderr}"
    result: dict[str, Any] = json.loads(ran.stdout)
    assert result["schema"] == "flagfinder.diff/1"
    found = result["verdict"] in ("data-flag", "syscall-loop", "lock")
    assert (ran.returncode == 0) == found, f"exit {ran.returncode} with verdict {result['verdict']}"
    assert bool(result["flags"]) == found, (
        f"verdict {result['verdict']} with {len(result['flags'])} flags"
    )
    return result


def own_blocks(trace: Path, program: Path) -> list[tuple[int, int, int]]:
    """(offset, bytes, instructions) of each block of the program's own file, as its first thread
    executed them.
    """
    thread = ff.open_trace(trace).threads[0]
    table = thread.process.block_table
    numbers = [
        number
        for number, module in enumerate(thread.process.modules)
        if module.path == str(program)
    ]
    rows = thread.blocks()
    rows = rows[np.isin(table.module[rows], numbers)]
    columns = (
        table.offset[rows].tolist(),
        table.size[rows].tolist(),
        table.instructions[rows].tolist(),
    )
    return list(zip(*columns, strict=True))


class MachineTooBusyError(Exception):
    """There is no answer, and processes of this machine had to wait for a CPU most of the time."""


def waiting_for_a_cpu() -> float:
    """The part of the last ten seconds in which some process could have run but had no CPU."""
    try:
        pressure = Path("/proc/pressure/cpu").read_text()
    except OSError:  # a kernel without it
        return 0.0
    return float(pressure.partition("avg10=")[2].split()[0]) / 100


def assert_found(ran: subprocess.CompletedProcess[str]) -> None:
    """`spin` has an answer. On a machine that is too busy the budget may end before there is
    one.
    """
    if ran.returncode == 1 and waiting_for_a_cpu() > 0.8:
        raise MachineTooBusyError(ran.stderr + ran.stdout)
    assert ran.returncode == 0, ran.stderr + ran.stdout


def work_done(pid: int) -> int:
    """How far a process has come: milliseconds that its threads ran, and how often each was given a
    CPU.
    """
    done = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            ran, _, times = map(int, (task / "schedstat").read_text().split())
            done += ran // 1_000_000 + times
    return done


def wait_until(
    process: subprocess.Popen[Any], what: Callable[[], bool], seconds: float = 60
) -> None:
    """Returns as soon as `what` holds, and fails if the process ends first."""
    deadline = time.monotonic() + seconds
    while not what():
        assert process.poll() is None, f"the program ended with {process.returncode}"
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come in {seconds} s")
        time.sleep(0.01)


def wait_for_rounds(process: subprocess.Popen[Any], rounds: int = 50) -> None:
    """Returns when the program has gone on for so many milliseconds of work, or rounds of a loop
    that pauses.
    """
    until = work_done(process.pid) + rounds
    wait_until(process, lambda: work_done(process.pid) >= until)


def wait_until_it_spins(process: subprocess.Popen[Any], written: Path, value: int | None) -> None:
    """Returns when the announced word keeps the value with which the program hangs, and the program
    has gone on since.

    Without a value there is no word: the program calls the system, or has work. A count of what is
    left to do has the value for moments before.
    """
    looks = 0

    def holds_the_value() -> bool:
        announced = announced_flags(written.read_text())
        if not announced:
            return False
        address, size = announced[0]
        with Path(f"/proc/{process.pid}/mem").open("rb") as memory:
            memory.seek(address)
            return int.from_bytes(memory.read(size), "little") == value

    def keeps_the_value() -> bool:
        nonlocal looks
        looks = looks + 1 if holds_the_value() else 0
        return looks == 10

    if value is not None:
        wait_until(process, keeps_the_value)
    wait_for_rounds(process)


def with_processes(most: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    """flagfinder, where its user may have so many processes and threads: as in a container whose
    pids.max is reached.
    """
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        live_or_skip("becoming another user needs root and setpriv (util-linux)")
    # A user whose only processes these are, and who may use whatever folder Python is in.
    capable = [f"--{what}-caps=-all,+dac_override" for what in ("inh", "ambient")]
    user = ["setpriv", f"--reuid={1_000_000 + os.getpid()}", "--clear-groups", *capable]
    words = [*user, "prlimit", f"--nproc={most}", *FLAGFINDER, *map(str, arguments)]
    ran = run(words, timeout=60)
    assert "panicked" not in ran.stderr, (most, ran.stderr)
    return ran


def assert_four_parts(stderr: str, found: str) -> None:
    """An error says what was found, how to fix it and what still works, and is no traceback."""
    assert found in stderr
    assert "Traceback" not in stderr
    for part in ("found:", "fix:", "still works:"):
        assert part in stderr, stderr


def assert_consistent(trace: Path) -> None:
    """The invariant checker finds nothing wrong with the trace."""
    assert not ff.open_trace(trace).check(), trace.name


def announced_flags(stderr: str) -> list[tuple[int, int]]:
    """(address, size) of each FLAG line that a sample printed."""
    return [
        (int(a, 16), int(s))
        for a, s in re.findall(r"FLAG address=0x([0-9a-f]+) size=(\d+)", stderr)
    ]


_COMPARISON = re.compile(r"(==|!=|<=|>=|<|>)\s*(-?(?:0x[0-9a-fA-F]+|\d+))")
_MASK = re.compile(r"&\s*(0x[0-9a-fA-F]+|\d+)")
_OPERATIONS: dict[str, Callable[[int, int], bool]] = {
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<=": lambda left, right: left <= right,
    ">=": lambda left, right: left >= right,
    "<": lambda left, right: left < right,
    ">": lambda left, right: left > right,
}


def leaves(exit_when: str, value: int) -> bool:
    """Whether the word's value satisfies an `exit_when`: the first `[& MASK] OP NUMBER` in its
    text.
    """
    comparison = _COMPARISON.search(exit_when)
    assert comparison, f"no comparison with a number in exit_when {exit_when!r}"
    mask = _MASK.search(exit_when[: comparison.start()])
    masked = value & int(mask[1], 0) if mask else value
    return _OPERATIONS[comparison[1]](masked, int(comparison[2], 0))


def code_symbols(codes: Sequence[Mapping[str, Any]]) -> set[str]:
    """The bare function names of CODE objects, inlined ones too: no offset, no arguments, no clone
    suffix.
    """
    names = {str(code["symbol"]) for code in codes if code and code.get("symbol")}
    names.update(str(name) for code in codes if code for name in code.get("inlined") or ())
    return {re.split(r"[+(.]", name.removeprefix("main."))[0].split("::")[-1] for name in names}
