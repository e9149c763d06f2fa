# SPDX-License-Identifier: MIT
"""What a thread that spins for a minute costs on disk: disk.py [--seconds N]. Asserts nothing.

Two ways of spinning (``sched_yield``, and a load and a branch) at both levels. The thread runs all
the time: the more processor it gets, the more it executes, so the blocks are given beside the
bytes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Literal

from measure import machine, table
from workloads import compile_c

import flagfinder


def main() -> int:
    """Records and prints a Markdown table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seconds", type=float, default=60, help="how long each one spins (default %(default)s)"
    )
    parser.add_argument("--scratch", type=Path, help="where traces go for the time being")
    options = parser.parse_args()
    levels: tuple[Literal["flow", "values"], ...] = ("flow", "values")
    rows = []
    with tempfile.TemporaryDirectory(prefix="ff-bench-", dir=options.scratch) as directory:
        program = compile_c("spin", Path(directory))
        path = Path(directory, "spin.trace")
        for way in ("yield", "busy"):
            for level in levels:
                recorded = flagfinder.record(
                    [str(program), way],
                    path,
                    flagfinder.RecordOptions(level=level, stop_after=options.seconds),
                    announce=lambda text: print(text, file=sys.stderr),
                )
                rows.append(
                    [
                        way,
                        level,
                        f"{recorded.ns / 1e9:.1f}",
                        f"{recorded.blocks_about / 1e6:.0f}",
                        f"{recorded.flow_bytes / 1e6:.0f}",
                        f"{recorded.values_bytes / 1e6:.0f}",
                        f"{recorded.stored_bytes / 1e6:.2f}",
                        f"{recorded.lost_flow_bytes} bytes of flow, {recorded.lost_value_chunks} "
                        "chunks of values",
                    ]
                )
                print(
                    f"{way}, {level}: {recorded.stored_bytes / 1e6:.2f} MB",
                    file=sys.stderr,
                    flush=True,
                )
                path.unlink()
    print(machine() + "\n")
    header = [
        "spins",
        "level",
        "seconds",
        "M blocks",
        "flow MB raw",
        "values MB raw",
        "MB on disk",
        "let go",
    ]
    print(table(header, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
