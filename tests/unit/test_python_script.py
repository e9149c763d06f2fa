# SPDX-License-Identifier: MIT
"""The script on a command line of Python."""

from __future__ import annotations

import ast
import subprocess
import sys
import warnings
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
        tree = python_sources.Sources.of_process(process.pid).tree("<string>")
    assert (tree is not None) == is_read


class _Given(python_sources.Sources):
    """One source, whichever is asked for."""

    def __init__(self, text: str) -> None:
        super().__init__(lambda _: (text.encode(), 0.0), lambda: b"", 0.0)
        self._text = text

    def _parse(self, file: str) -> ast.Module | str:
        return self._parse_content(file, self._text.encode())


@pytest.mark.parametrize(
    "text",
    [
        "while not done" + ".next" * 120 + ": pass",
        "while " + "not " * 1000 + "done: pass",
        "while done != " + "a + " * 1500 + "b: pass",
        "while a:\n  if b: pass\n" + "  elif c: break\n" * 2000,
        "while done != 0x" + "f" * 5000 + ": pass",
    ],
)
def test_a_source_that_python_could_not_write_again_is_told_and_not_read(text: str) -> None:
    why = _Given(text).loops("/app.py", "<module>", frozenset([1]))
    assert isinstance(why, str) and why.startswith("/app.py nests too deeply")


@pytest.mark.parametrize(
    "text",
    [
        "while not done" + ".next" * 90 + ": pass",
        "while a:\n  if b: pass\n" + "  elif c: break\n" * 40,
    ],
)
def test_a_source_that_nests_less_is_read(text: str) -> None:
    loops = _Given(text).loops("/app.py", "<module>", frozenset([1]))
    assert not isinstance(loops, str) and len(loops) == 1 and loops[0].exits


@pytest.mark.parametrize("way", ["if a == 7: break", "if a == 7: continue"])
def test_a_loop_with_many_ways_out_takes_no_time_that_grows_with_their_square(way: str) -> None:
    text = "while b:\n" + f"  {way}\n" * 5000
    why = _Given(text).loops("/app.py", "<module>", frozenset([1]))
    assert why == "a loop of <module> in /app.py has too many ways out to tell them"


def test_what_python_thinks_of_a_source_is_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert _Given("while 1if a else 2: pass").tree("/app.py") is not None
    assert capfd.readouterr().err == ""
