# SPDX-License-Identifier: MIT
"""Changed sources of Python programs and shell scripts, the same ones each time; `make fuzz` feeds
others for long.
"""

from __future__ import annotations

import sys
from pathlib import Path

from harness import ROOT, run

FUZZER = ROOT / "fuzz" / "sources.py"


def test_changed_sources_end_in_no_traceback(tmp_path: Path) -> None:
    done = run([sys.executable, FUZZER, "--inputs", 120, "--failures", tmp_path], timeout=250)
    assert (done.returncode, done.stdout) == (0, "sources: 120 inputs, no failure\n"), done.stderr
    assert not list(tmp_path.iterdir())


def test_a_failure_is_told_and_its_input_is_kept(tmp_path: Path) -> None:
    """Python itself fails, in place of what is tested."""
    command = [sys.executable, "-P", "-c", _FAILS, FUZZER, "--failures", str(tmp_path)]
    done = run(command, timeout=250)
    (left,) = tmp_path.iterdir()
    assert done.returncode == 1 and f"FAILED by input 1, see {left}" in done.stderr
    assert left.suffix == ".py" and b"while" in left.read_bytes()


_FAILS = """
import ast, runpy, sys
def fails(node):
    raise RecursionError
ast.unparse = fails
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
