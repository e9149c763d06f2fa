# SPDX-License-Identifier: MIT
"""What watching costs: a spinning reader alone, under a watch of writes and of reads; a writer, for
each write.

Prints a table and asserts nothing. Needs root (CAP_BPF, CAP_PERFMON) and gcc. Runs take turns.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
volatile uint64_t word;
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
int main(int argc, char **argv) {
    long count = argc > 2 ? atol(argv[2]) : 0;
    char line[16];
    puts("ready"); fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;
    double start = now();
    if (strcmp(argv[1], "read") == 0) for (long i = 0; i < count; i++) (void)word;
    else for (long i = 0; i < count; i++) word = i;
    printf("%.17g\n", (now() - start) / count * 1e9); fflush(stdout);
    return 0;
}
"""


def nanoseconds(program: Path, what: str, count: int, watch: list[str] | None) -> float:
    target = subprocess.Popen(
        [program, what, str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert target.stdout is not None
    assert target.stdin is not None
    target.stdout.readline()
    watcher = None
    if watch is not None:
        command = [
            sys.executable,
            "-P",
            "-m",
            "flagfinder",
            "watch",
            str(target.pid),
            program.name,
            "word",
            "--json-lines",
        ]
        watcher = subprocess.Popen([*command, *watch], stdout=subprocess.PIPE, text=True)
        assert watcher.stdout is not None
        if not watcher.stdout.readline():
            raise SystemExit("the watch did not start")
    target.stdin.write("go\n")
    target.stdin.close()
    took = float(target.stdout.readline())
    target.wait(timeout=30)
    if watcher is not None:
        watcher.communicate(timeout=60)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory, "accesses")
        source = Path(directory, "accesses.c")
        source.write_text(PROGRAM)
        subprocess.run(["gcc", "-O1", "-o", program, source], check=True)
        rows: list[tuple[str, str, int, list[str] | None]] = [
            ("read, not watched", "read", 1_000_000_000, None),
            ("read, writes watched", "read", 1_000_000_000, []),
            ("read, reads watched", "read", 50_000, ["--reads"]),
            ("write, not watched", "write", 1_000_000_000, None),
            ("write, writes watched", "write", 50_000, []),
        ]
        times: dict[str, list[float]] = {name: [] for name, *_ in rows}
        for _ in range(runs):
            for name, what, count, watch in rows:
                times[name].append(nanoseconds(program, what, count, watch))
    print("| access | ns of CPU time | least | greatest |\n|---|---|---|---|")
    for name, taken in times.items():
        print(f"| {name} | {statistics.median(taken):.3f} | {min(taken):.3f} | {max(taken):.3f} |")


if __name__ == "__main__":
    main()
