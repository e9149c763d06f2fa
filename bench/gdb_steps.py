# SPDX-License-Identifier: MIT
"""Run inside gdb, on a program that has not started: how many instructions a second it can record
by stepping.

    gdb -nx -batch -x gdb_steps.py --args PROGRAM ARGS

Prints one line of JSON: steps a second of ``stepi`` with the program counter kept, and of gdb's own
``record full``.
"""

import json
import time

import gdb

STEPS = 5000


def main() -> None:
    """Two measurements, one after the other, at the program's start in its dynamic linker."""
    for setting in (
        "pagination off",
        "confirm off",
        "debuginfod enabled off",
        "record full insn-number-max unlimited",
    ):
        gdb.execute(f"set {setting}", to_string=True)
    # gdb's `record full` does not know AVX.
    gdb.execute("set environment GLIBC_TUNABLES glibc.cpu.hwcaps=-AVX2,-AVX,-XSAVE,-XSAVEC")
    gdb.execute("starti", to_string=True)
    counters = []
    began = time.monotonic()
    for _ in range(STEPS):
        gdb.execute("stepi", to_string=True)
        counters.append(int(gdb.parse_and_eval("(unsigned long)$pc")))
    stepping = STEPS / (time.monotonic() - began)
    gdb.execute("record full", to_string=True)
    began = time.monotonic()
    try:
        gdb.execute(f"stepi {STEPS}", to_string=True)
        recording = STEPS / (time.monotonic() - began)
    except gdb.error as error:
        recording = None
        print(f"record full: {error}")
    print(json.dumps({"stepi": stepping, "record full": recording}))
    gdb.execute("kill", to_string=True)


main()
