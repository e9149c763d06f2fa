# SPDX-License-Identifier: MIT
"""Whether `diff` names the hang, and not an idle worker, in real pools of which one worker is
frozen.

Each pool is recorded once as it should be and several times with a worker frozen after some rounds.
An answer is right if its thread is one that waits for the frozen one, and its word is one that
this one owes. Rules were made for the pools of tests/live/programs/pools.c;
these here only measure them.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SYS_TGKILL = 234
ROUNDS = "200"  # some seconds


@dataclass(frozen=True)
class PoolProgram:
    """A pool: its environment, and what is known of the word that its first thread waits for.
    ``among_workers``: they wait for one another too, each for words that the other has written.
    """

    name: str
    environment: dict[str, str] = field(default_factory=dict)
    module: str | None = None
    exit_value: str | None = None
    announced: bool = False
    among_workers: bool = False


POOLS = (
    PoolProgram("blas", {"OPENBLAS_THREAD_TIMEOUT": "30"}, module="libopenblas", exit_value="0x0"),
    PoolProgram("redis", module="redis", exit_value="0x0"),
    PoolProgram("omp", {"OMP_NUM_THREADS": "4", "KMP_BLOCKTIME": "infinite"}),
    PoolProgram("tbb", announced=True),
    PoolProgram("glib", announced=True),
    PoolProgram("forkunion", exit_value="0x0"),
    PoolProgram("numpy", {"OPENBLAS_THREAD_TIMEOUT": "30"}, module="openblas", exit_value="0x0",
                among_workers=True),
)  # fmt: skip


def main() -> None:
    """Prints a table, and JSON with --json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pools", default=",".join(pool.name for pool in POOLS))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--stop", default="8", help="seconds of --stop-when-spinning")
    parser.add_argument(
        "--freeze", default="signal", choices=("signal", "stop"), help="how the worker is frozen"
    )
    parser.add_argument("--keep", type=Path, help="a folder for the recordings")
    parser.add_argument("--again", action="store_true", help="diff the recordings in --keep again")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    folder = options.keep or Path(tempfile.mkdtemp(prefix="flagfinder-pools-"))
    folder.mkdir(exist_ok=True)
    chosen = [pool for pool in POOLS if pool.name in options.pools.split(",")]
    build(chosen, folder.resolve())
    rows = []
    for pool in chosen:
        if not options.again:
            record(pool, folder, "normal", options.stop, options.freeze)
        right = 0
        for run in range(options.runs):
            spin = folder / f"{pool.name}.spin{run}"
            if not options.again:
                record(pool, folder, f"spin{run}", options.stop, options.freeze)
            verdict, text = judge(pool, folder / f"{pool.name}.normal", spin)
            right += verdict
            print(f"{pool.name:8}{'right' if verdict else 'WRONG'}  {text}", flush=True)
        rows.append({"pool": pool.name, "runs": options.runs, "right": right})
    for row in rows:
        print(row)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


def build(pools: list[PoolProgram], folder: Path) -> None:
    """Makes the programs of these pools; redis needs the library alone."""
    made = [folder / pool.name for pool in pools if pool.name != "redis"] + [folder / "freeze.so"]
    subprocess.run(["make", "-s", "-C", HERE / "pools", f"OUT={folder}", *made], check=True)


def record(pool: PoolProgram, folder: Path, name: str, stop: str, freeze: str) -> None:
    """Records one run as NAME; what the program prints is kept beside it."""
    trace = folder / f"{pool.name}.{name}"
    hangs = name != "normal"
    command = ["flagfinder", "record", "-o", str(trace), "--stop-after", "150"]
    if hangs:
        command += ["--stop-when-spinning", stop]
    environment = {"FREEZE": freeze} | pool.environment
    command += [word for pair in environment.items() for word in ("--env", "=".join(pair))]
    out = folder / f"{pool.name}.{name}.out"
    with out.open("w") as stdout, out.with_suffix(".err").open("w") as stderr:
        if pool.name != "redis":
            command += [
                "--",
                str(folder.resolve() / pool.name),
                "spin" if hangs else "normal",
                ROUNDS,
            ]
            recorder = subprocess.Popen(command, stdout=stdout, stderr=stderr)
            tracee = stop_one(out, recorder) if hangs and freeze == "stop" else None
            recorder.wait(240)
            if tracee:
                tracee.kill()
            return
        command += [
            "--env",
            f"LD_PRELOAD={folder.resolve()}/freeze.so",
            "--",
            "redis-server",
            "--port",
            PORT,
        ]
        command += [
            "--io-threads",
            "4",
            "--io-threads-do-reads",
            "yes",
            "--save",
            "",
            "--appendonly",
            "no",
        ]
        recorder = subprocess.Popen(command, stdout=stdout, stderr=stderr)
        try:
            drive_redis(out, recorder, hangs)
            recorder.wait(120)
        finally:
            recorder.kill()


STOPPER = """
import ctypes, os, sys, time
PTRACE_SEIZE, PTRACE_INTERRUPT = 0x4206, 0x4207
ptrace = ctypes.CDLL(None, use_errno=True).ptrace
ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
for request in (PTRACE_SEIZE, PTRACE_INTERRUPT):
    if ptrace(request, int(sys.argv[1]), None, None):
        sys.exit(os.strerror(ctypes.get_errno()))
time.sleep(600)
"""


def stop_one(out: Path, recorder: subprocess.Popen[bytes]) -> subprocess.Popen[bytes] | None:
    """Stops the thread that the program asks for, as a debugger does, until the result is ended."""
    while recorder.poll() is None:
        if asked := re.search(r"stop (\d+)", out.read_text()):
            return subprocess.Popen([sys.executable, "-c", STOPPER, asked[1]])
        time.sleep(0.05)
    return None


PORT = "6391"


def drive_redis(out: Path, recorder: subprocess.Popen[bytes], hangs: bool) -> None:
    """Sends requests by enough clients that the server's I/O threads begin; freezes one of them,
    and keeps sending until the recording ends by itself.
    """
    ask = ["redis-cli", "-p", PORT]
    while b"PONG" not in subprocess.run([*ask, "ping"], capture_output=True, check=False).stdout:
        time.sleep(0.2)
    load = ["redis-benchmark", "-p", PORT, "-c", "32", "-q", "-t", "get", "-n"]
    subprocess.run([*load, "2000"], stdout=subprocess.DEVNULL, check=True, timeout=120)
    if not hangs:
        subprocess.run([*ask, "shutdown", "nosave"], check=False)
        return
    info = subprocess.run(
        [*ask, "info", "server"], capture_output=True, text=True, check=True
    ).stdout
    said = re.search(r"process_id:(\d+)", info)
    assert said, info
    pid = int(said[1])
    tasks = Path(f"/proc/{pid}/task").iterdir()
    tid = next(
        int(task.name) for task in tasks if (task / "comm").read_text().strip() == "io_thd_2"
    )
    more = subprocess.Popen([*load, "1000000"], stdout=subprocess.DEVNULL)
    try:
        time.sleep(0.5)
        ctypes.CDLL(None).syscall(SYS_TGKILL, pid, tid, signal.SIGUSR1)
        with out.open("a") as text:
            text.write(f"frozen {tid}\n")
        recorder.wait(120)
    finally:
        more.kill()


def judge(pool: PoolProgram, normal: Path, spin: Path) -> tuple[bool, str]:
    """Is the first answer of `diff` right? With what it says."""
    done = subprocess.run(
        ["flagfinder", "diff", "--json", normal, spin],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    printed = spin.with_name(spin.name + ".out").read_text()
    frozen = re.search(r"frozen (\d+)", printed)
    if not frozen:
        return False, "nothing was frozen: the recording ended before, or the program did"
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return False, done.stderr.strip()[:300]
    if not found["flags"]:
        return False, found["reason"]
    flag, thread = found["flags"][0], found["threads"]["spin"]
    text = (
        f"{thread['tid']} {thread['name']}: {flag['name']} {flag['confidence']} {flag['exit_when']}"
    )
    writers = {writer["tid"] for writer in flag["writers"] if writer["run"] == "spin"}
    if pool.among_workers and thread["tid"] not in (int(frozen[1]), first_thread(spin)):
        return int(frozen[1]) in writers, text
    right = thread["tid"] != int(frozen[1])
    address = re.search(r"flag (0x[0-9a-f]+)", printed)
    if pool.announced and address:
        right &= flag["address"]["spin"] == address[1]
    right &= thread["tid"] == first_thread(spin)
    if pool.module:
        right &= pool.module in (flag["module"] or "")
    if pool.exit_value:
        right &= flag["value"]["exit"] == pool.exit_value
    return right, text


def first_thread(trace: Path) -> int:
    """The program's pid, which is its first thread's number."""
    done = subprocess.run(
        ["flagfinder", "trace", "info", "--json", trace], capture_output=True, text=True, check=True
    )
    return int(json.loads(done.stdout)["processes"][0]["pid"])


if __name__ == "__main__":
    main()
