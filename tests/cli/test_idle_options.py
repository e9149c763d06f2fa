# SPDX-License-Identifier: MIT
"""Options that would do nothing in a combination are refused, and the same option is taken where it
does something.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from harness import assert_four_parts

from flagfinder.cli.command import main

IDLE = [
    "diff a b --emit gdb --json",
    "diff a b --emit gdb --json-file x.json",
    "diagnose g --auto --emit gdb --json",
    "diagnose g --auto --flag x#1",
    "diagnose g --hangs --emit gdb",
    "diagnose g --hangs --preceding 2",
    "record -o x --level flow --values-in ranges -- true",
    "record -o x --tracer lldb --pid 1 --then leave",
    "record -o x --tracer lldb --thread 5 -- true",
    "record -o x --until ready --pid 1",
    "record -o x --tracer lldb --until ready --pid 1",
    "record --check -- true",
    "record --check -o x",
    "record --check --tracer frida",
    "record --check --level flow",
    "record --check --no-follow-children",
    "record -o x --tracer frida --generated-code no -- true",
    "record -o x --tracer lldb --generated-code yes -- true",
    "watch 1 app done --all-objects",
    "watch 1 --site app+0x10 --size 4",
    "watch 1 --site app+0x10 --thread 5",
    "watch 1 --site app+0x10 --reads",
    "watch 1 --flag x#1 --all-objects --reads",
    "watch 1 app done --json --json-lines",
    "events record -o x --stack-budget 4 -- true",
    "events record -o x --all --stacks all",
    "events record -o x --all --syscalls target",
    "events record -o x --pid 1 --env A=B",
    "trace export t -o x.drcov --instructions 5",
    "trace export t -o x.perfetto-trace --tid 5",
    "trace export t -o x --format parquet --instructions 5",
    "trace dump t --what modules --tid 5",
    "trace dump t --what blocks --from 5",
    "poke 1 --flag x#1 --address 0x10 --size 4",
    "poke 1 --dry-run --yes",
    "spin 1 --thread 5 --most 2",
    "why a b --budget 1",
    "compare a b --limit 5 --json",
    "critical-path g --thread 5 --limit 5 --json",
]
# Nothing here exists, so each fails for that reason.
USED = [
    "diff a b --emit gdb",
    "why a b --thread 5",
    "why --core x --budget 1",
    "record -o x --level values --values-in=ranges -- /no/such/program",
    "record -o x --then leave -- /no/such/program",
    "trace export t -o x.tenet --instructions 5 --tid 5",
    "trace dump t --what events --tid 5 --from 5",
    "events dump t --tid 5",
    "compare a b --limit 5",
    "critical-path g --thread 5 --limit 5",
    "graph query g --from 5 --to 5",
]


@pytest.mark.parametrize("line", IDLE)
def test_an_option_without_effect_is_refused(
    line: str, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(line)) == 2
    assert_four_parts(capfd.readouterr().err, "would have no effect")


@pytest.mark.parametrize("line", USED)
def test_an_option_with_effect_is_taken(line: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(shlex.split(line)) != 0
    said = capfd.readouterr().err
    assert_four_parts(said, "No such file" if "program" not in line else "no /no/such/program")
    assert "no effect" not in said


@pytest.mark.parametrize(
    "line", ["graph query g --from 5 --to 3", "critical-path g --thread 5 --from 5 --to 3"]
)
def test_a_span_that_ends_before_it_begins_is_refused(
    line: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(shlex.split(line)) == 2
    assert_four_parts(capfd.readouterr().err, "--from 5, --to 3")
