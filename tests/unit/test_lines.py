# SPDX-License-Identifier: MIT
"""Lines of what people write here are at most 100 columns long."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from harness import ROOT

MOST = 100
# Data, what programs write, others' texts, pages whose lines are a rule or a row each, and tables.
LEFT_OUT = re.compile(
    r"""(?x) .*\.(jsonl?|lock|svg|png|patch|html)
    | THIRD-PARTY\.txt | tests/(flaky|known_gaps)\.txt"""
)
# A row of a table in Markdown can't be folded, nor can what tells a linter about its line.
ROW = re.compile(r"\s*\|.*\|$")
TOLD = re.compile(r"\s+# (noqa|type: ignore)\b.*$")


def long_lines(path: Path) -> list[int]:
    """The numbers of lines that are too long."""
    lines = path.read_text(encoding="utf-8").split("\n")
    is_markdown = path.suffix == ".md"
    return [
        number
        for number, line in enumerate(lines, 1)
        if len(TOLD.sub("", line)) > MOST and not (is_markdown and ROW.match(line))
    ]


def test_no_line_is_longer_than_a_hundred_columns() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    names = [name for name in listed.stdout.decode().split("\0") if (ROOT / name).is_file()]
    assert len(names) > 1000
    found = {
        name: numbers
        for name in names
        if not LEFT_OUT.fullmatch(name) and (numbers := long_lines(ROOT / name))
    }
    assert found == {}


def test_what_is_too_long_is_found(tmp_path: Path) -> None:
    text = f"{'x' * 100}\n{'y' * 101}\n| {'z' * 101} |\n{'é' * 100}  # noqa: PTH123\n"
    for name, long in (("text.md", [2]), ("text.py", [2, 3])):
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert long_lines(tmp_path / name) == long
