# SPDX-License-Identifier: MIT
"""The command line: where it begins and ends."""

from __future__ import annotations

import os
import sys

from flagfinder import _core
from flagfinder.shared.errors import FlagfinderError


def version() -> str:
    """The command's name and version."""
    return f"flagfinder {_core.VERSION}"


def entry() -> None:
    """The ``flagfinder`` command."""
    if sys.argv[1:] == ["--version"]:  # what a shell's prompt and installers ask
        sys.stdout.write(f"{version()}\n")
        sys.exit(_with_streams_closed(0))
    from flagfinder.cli.command import main

    try:
        code = main(sys.argv[1:])
    except SystemExit as ended:  # --help
        code = ended.code if isinstance(ended.code, int) else 0
    sys.exit(_with_streams_closed(code))


def _with_streams_closed(code: int) -> int:
    """The exit code, once stdout and stderr have taken what was written; that of a failure where
    stdout did not. Python would complain when it ends, and exit with a code of its own.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            if stream is sys.stdout and not isinstance(error, BrokenPipeError):
                code = code or FlagfinderError.exit_code
    return code
