# SPDX-License-Identifier: MIT
"""Recording speed beside DynamoRIO without a client and beside the peers: record_speed.py [--help].

Two tables. First: programs that run 2 s and more untraced, with nothing, with DynamoRIO alone and
with flagfinder. Second: a part of that, because the peers take minutes, with everything. Runs of a
table take turns. Asserts nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from measure import Sample, alternate, first_line, machine, median, spread, table, timed
from recorders import HERE, TRACE, Recorder, dynamorio_alone, native, ours, peers
from workloads import PYTHON, WORKLOADS, Workload

import flagfinder
from flagfinder.record.tracer_build import ensure_tracer

FLOOR = "DynamoRIO, no client"


def main() -> int:
    """Measures, prints Markdown on stdout and progress on stderr."""
    options = _options()
    print(f"{machine()}\n\n{_versions()}\n")
    # Builds and checks the tracer now, not in the first measured run.
    subprocess.run(
        [sys.executable, "-P", "-m", "flagfinder", "record", "--check"], check=True, timeout=1800
    )
    tracer = ensure_tracer(_say).directory
    basis = [native(), dynamorio_alone(tracer), *ours()]
    workloads = [WORKLOADS[name] for name in options.workloads.split(",")]
    with tempfile.TemporaryDirectory(prefix="ff-bench-", dir=options.scratch) as directory:
        scratch = Path(directory)
        if options.runs:
            print(f"## Programs of 2 s and more, {options.runs} runs each\n", flush=True)
            for workload in workloads:
                _compare(
                    workload,
                    workload.size,
                    basis,
                    (options.runs, options.values_runs),
                    options.timeout,
                    scratch,
                )
        if options.peer_runs:
            usable = [*basis, *(peer for peer in peers() if peer.absent is None)]
            for peer in peers():
                if peer.absent is not None:
                    print(f"Left out: {peer.name} ({peer.absent}).\n")
            print(
                f"## Peers, on one part in {options.peer_part} of that, {options.peer_runs} runs "
                "each\n",
                flush=True,
            )
            for workload in workloads:
                samples = _compare(
                    workload,
                    workload.size // options.peer_part,
                    usable,
                    (options.peer_runs,) * 2,
                    options.timeout,
                    scratch,
                )
                _stepping(
                    workload.command(workload.size // options.peer_part, scratch),
                    median([one.wall for one in samples["native"]]),
                    scratch,
                )
    return 0


def _compare(
    workload: Workload,
    size: int,
    recorders: list[Recorder],
    counts: tuple[int, int],
    timeout: float,
    scratch: Path,
) -> dict[str, list[Sample]]:
    """Runs and prints one program's table. ``counts``: runs, and runs at level values."""
    runs, values_runs = counts
    program = workload.command(size, scratch)
    by_name = {recorder.name: recorder for recorder in recorders}
    samples: dict[str, list[Sample]] = defaultdict(list)
    kept: dict[str, str] = {}
    for turn, name in alternate(list(by_name), runs):
        # Once is enough to know that it takes too long.
        if any(one.timed_out for one in samples.get(name, ())) or (
            " values" in name and turn >= values_runs
        ):
            continue
        recorder = by_name[name]
        trace = scratch / TRACE
        errors = scratch / "errors"
        sample = timed(
            recorder.command(program, scratch), timeout=timeout, env=recorder.env, errors=errors
        )
        _say(f"{workload.name}, turn {turn + 1}, {name}: {sample.wall:.2f} s")
        if sample.status != 0 and not sample.timed_out:
            _say(f"  FAILED with {sample.status}: {errors.read_text(errors='replace')[-500:]}")
            kept[name] = f"FAILED, status {sample.status}"
        samples[name].append(sample)
        if trace.exists():
            kept.setdefault(name, _facts(trace))
            trace.unlink()
    plain = median([one.wall for one in samples["native"]])
    floor = median([one.wall for one in samples[FLOOR]])
    floor_cpu = median([one.cpu for one in samples[FLOOR]])
    rows = []
    for name, runs_of_it in samples.items():
        walls = [one.wall for one in runs_of_it]
        at_least = "> " if any(one.timed_out for one in runs_of_it) else ""
        # Below flagfinder the target is a child; what the recorder spends beside it is in the whole
        # tree's.
        ours_ = name.startswith("flagfinder")
        target = median([one.children_cpu if ours_ else one.cpu for one in runs_of_it])
        rows.append(
            [
                name,
                at_least + spread(walls),
                f"{at_least}{median(walls) / plain:.2f}",
                f"{at_least}{median(walls) / floor:.2f}",
                f"{target / floor_cpu:.2f}" if ours_ else "",
                f"{median([one.cpu for one in runs_of_it]):.2f}",
                kept.get(name, by_name[name].content),
            ]
        )
    print(f"### {workload.name}: {size} {workload.unit}\n")
    header = [
        "",
        "seconds (min-max)",
        "x native",
        "x DynamoRIO",
        "target's CPU x DynamoRIO",
        "CPU s, all",
        "kept",
    ]
    print(table(header, rows) + "\n", flush=True)
    return samples


def _facts(trace: Path) -> str:
    """How large a trace is, and what it lacks."""
    end: Mapping[str, Any] = flagfinder.open_trace(trace).end or {}
    lost = {
        what: end[key]
        for what, key in (
            ("flow bytes", "dropped_flow_bytes"),
            ("value chunks", "dropped_value_chunks"),
        )
        if end.get(key)
    }
    missing = (
        ", ".join(f"{count} {what} let go" for what, count in lost.items()) or "nothing let go"
    )
    return f"{trace.stat().st_size / 1e6:.1f} MB, {missing}"


def _stepping(program: list[str], plain: float, scratch: Path) -> None:
    """Prints what single-stepping would take: a rate times the instructions that ran, not a run."""
    ran = subprocess.run(
        ["gdb", "-nx", "-batch", "-x", str(HERE / "gdb_steps.py"), "--args", *program],
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if not ran.stdout.strip().endswith("}"):
        print(f"gdb gave no rate: {ran.stderr.strip()[-200:]}\n")
        return
    instructions = _instructions(program, scratch)
    for method, rate in json.loads(ran.stdout.strip().splitlines()[-1]).items():
        if rate is not None:
            print(
                f"gdb {method}, extrapolated: {rate:.0f} steps/s; these {instructions / 1e6:.0f} M "
                f"instructions would take {instructions / rate / 3600:.1f} hours, "
                f"{instructions / rate / plain:.0f} x native.\n"
            )


def _instructions(program: list[str], scratch: Path) -> int:
    """How many instructions a run executes, from a recording of it."""
    path = scratch / TRACE
    flagfinder.record(program, path, flagfinder.RecordOptions(level="flow"))
    total = 0
    for thread in flagfinder.open_trace(path).threads:
        blocks = thread.blocks()
        total += int(thread.process.block_table.instructions[blocks].sum())
    path.unlink()
    return total


def _versions() -> str:
    return "; ".join(
        [
            f"flagfinder {metadata.version('flagfinder')}",
            *(f"{peer.name}: {peer.version}" for peer in peers() if peer.absent is None),
            first_line("gdb", "--version"),
            first_line("gzip", "--version"),
            f"sqlite {first_line('sqlite3', '--version').split(' ')[0]}",
            first_line(PYTHON, "--version"),
        ]
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--runs",
        type=int,
        default=5,
        help="runs of each program of 2 s and more; 0 leaves them out",
    )
    parser.add_argument(
        "--values-runs", type=int, default=3, help="of those at level values, which take longest"
    )
    parser.add_argument(
        "--peer-runs", type=int, default=1, help="runs beside the peers; 0 leaves them out"
    )
    parser.add_argument(
        "--peer-part", type=int, default=10, help="the peers get one part in so many of a program"
    )
    parser.add_argument(
        "--workloads", default=",".join(WORKLOADS), metavar="NAMES", help="of: %(default)s"
    )
    parser.add_argument(
        "--timeout", type=float, default=300, metavar="SECONDS", help="limit of one run"
    )
    parser.add_argument(
        "--scratch", type=Path, help="where traces and inputs go for the time being"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
