# SPDX-License-Identifier: MIT
"""One sample, started in ten ways: its flag is first and its recording ends by itself, without any
option for it.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from harness import announced_flags, assert_consistent, diff, live_or_skip, record
from sizes import in_turn

pytestmark = pytest.mark.live

SAMPLE = "stack_object"


WAYS = {
    "directly": ["{program}", "{mode}"],
    "env": ["env", "A=1", "{program}", "{mode}"],
    "nice": ["nice", "-n", "1", "{program}", "{mode}"],
    "exec in a shell": ["sh", "-c", "exec {program} {mode}"],
    "script": ["{script}", "{mode}"],
    "make": ["make", "-s", "-f", "{makefile}", "MODE={mode}"],
    "subprocess": [sys.executable, "-c", "import subprocess as s; s.run(['{program}', '{mode}'])"],
    "xargs": ["sh", "-c", "echo {mode} | xargs {program}"],
    "timeout": ["timeout", "300", "{program}", "{mode}"],
    "unshare": ["unshare", "--pid", "--fork", "{program}", "{mode}"],
}


@pytest.mark.parametrize("way", in_turn(WAYS, turn=6, of=10))
@pytest.mark.usefixtures("tracer")
def test_the_flag_is_first_however_the_program_is_started(
    way: str, samples: Path, tmp_path: Path
) -> None:
    program, script, makefile = samples / SAMPLE, tmp_path / "run.sh", tmp_path / "Makefile"
    if shutil.which(WAYS[way][0]) is None and not WAYS[way][0].startswith("{"):
        live_or_skip(f"{WAYS[way][0]} is not installed")
    script.write_text(f'#!/bin/sh\nid -u >/dev/null\n{program} "$1"\necho done\n')
    script.chmod(0o755)
    makefile.write_text(f"all:\n\t@true\n\t{program} $(MODE)\n")

    def command(mode: str) -> list[str]:
        return [
            word.format(program=program, mode=mode, script=script, makefile=makefile)
            for word in WAYS[way]
        ]

    normal = record(tmp_path / "normal.trace", command("normal"))
    assert normal.exit_code == 0, normal.stderr
    spin = record(tmp_path / "spin.trace", command("spin"), "--stop-when-spinning", kill_after=60)
    assert spin.ended_by_itself, "the recording did not end by itself"
    for recording in (normal, spin):
        assert_consistent(recording.trace)
    result = diff(normal.trace, spin.trace)
    assert result["flags"], f"{result['verdict']}: {result['reason']}"
    address, size = announced_flags(spin.stderr)[0]
    first = result["flags"][0]
    assert (int(first["address"]["spin"], 16), first["size"]) == (address, size), first["name"]
