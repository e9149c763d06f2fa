# SPDX-License-Identifier: MIT
"""Ctrl-C while the command still reads its own modules: it ends, and shows no traceback."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from harness import run

# Ctrl-C comes when this module is looked for.
_COMMAND = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
sys.argv[1:] = ["trace", "--help"]
from flagfinder.cli import entry
entry()
"""


@pytest.mark.parametrize(
    "module", ["flagfinder.trace.trace", "flagfinder.cli", "argparse", "flagfinder.cli.trace"]
)
def test_no_traceback_is_shown(tmp_path: Path, module: str) -> None:
    command = tmp_path / "flagfinder"
    command.write_text(_COMMAND.replace("MODULE", repr(module)))
    ran = run([sys.executable, "-P", command], timeout=60)
    assert "Traceback" not in ran.stderr
    assert ran.returncode in {-signal.SIGINT, 130}
