# SPDX-License-Identifier: MIT
"""The script on a command line of Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from harness import started, wait_until

from flagfinder.interpreters import python_sources


@pytest.mark.parametrize(
    ("line", "script"),
    [
        ("python3 -c pass", "pass"),
        ("python3 -cpass", "pass"),
        ("python3 -Isc pass", "pass"),
        ("python3 -W ignore -Xdev -X utf8 --check-hash-based-pycs never -c pass more", "pass"),
        ("python3 -m pass -c x", None),
        ("python3 program.py -c x", None),
        ("python3 - -c x", None),
        ("python3 -c", None),
        ("python3", None),
    ],
)
def test_what_follows_c(line: str, script: str | None) -> None:
    found = python_sources.script_of([word.encode() for word in line.split()])
    assert found == (None if script is None else script.encode())


@pytest.mark.parametrize(
    ("text", "is_read"),
    [("import time\nwhile True: time.sleep(1)", True), ("exec('import time')", False)],
)
def test_the_source_of_a_process(text: str, is_read: bool) -> None:
    with started(
        [sys.executable, "-Ic", f"{text}\nopen(0).read()"], stdin=subprocess.PIPE
    ) as process:
        # The kernel lets a starter go on before it has set what this file tells.
        wait_until(process, lambda: Path(f"/proc/{process.pid}/cmdline").read_bytes() != b"")
        tree = python_sources.Sources(process.pid).tree("<string>")
    assert (tree is not None) == is_read
