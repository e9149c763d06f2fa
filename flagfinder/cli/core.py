# SPDX-License-Identifier: MIT
"""``flagfinder core``: a core file in, what the threads of the dead process waited for out."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from flagfinder.cli.common import (
    SECONDS,
    VERBS,
    Subparsers,
    add_places,
    add_threads,
    add_timeout,
    add_verb,
    check_sysroot,
    core_file,
)
from flagfinder.cli.spin import ask_and_show
from flagfinder.live.apart import Told
from flagfinder.live.deadline import DEFAULT_CORE_BUDGET, DEFAULT_TIMEOUT
from flagfinder.live.spin import look_at_core
from flagfinder.report.terminal import Terminal

if TYPE_CHECKING:
    from flagfinder.live.fields import SpinFields

_EXAMPLES = """\
  gcore 4711; flagfinder core core.4711         a process that may go on, or be ended now
  coredumpctl dump app > core; flagfinder core core
  flagfinder core core.zst --sysroot image/     a core of another machine, whose files lie in image/

A copy of each thread is made from the core and goes on in a process of flagfinder's. None of its
system calls is made. The report is that of `flagfinder spin`.

exit codes: 0 a flag, syscall or lock is named; 1 no thread polls anything; 65 no core of a 64-bit
program, or files that are not those of the process"""


def add_parser(subparsers: Subparsers) -> None:
    parser = add_verb(subparsers, "core", VERBS["core"], _EXAMPLES, run)
    parser.add_argument(
        "core", type=core_file, metavar="FILE", help="an ELF core, plain or packed by zstd or lz4"
    )
    add_places(parser, "the executable")
    add_threads(parser)
    parser.add_argument(
        "--budget",
        type=SECONDS,
        default=DEFAULT_CORE_BUDGET,
        help=f"let each copy go on for at most SECONDS (default {DEFAULT_CORE_BUDGET:g})",
    )
    add_timeout(parser, DEFAULT_TIMEOUT)
    parser.add_argument("--explain", action="store_true", help="show the reasoning step by step")


def run(options: argparse.Namespace, terminal: Terminal) -> int:
    check_sysroot(options.sysroot)

    def question(so_far: Callable[[str], object], _: Told) -> SpinFields:
        return look_at_core(
            options.core,
            options.thread,
            sysroot=options.sysroot,
            program=options.program,
            budget=options.budget,
            timeout=options.timeout,
            so_far=so_far,
        ).raw

    return ask_and_show(question, None, options, terminal)
