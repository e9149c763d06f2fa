# SPDX-License-Identifier: MIT
"""`why --all` lists who hangs, and `why -- COMMAND` tells of a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import schemas
from harness import FLAGFINDER, assert_four_parts, compiled, flagfinder, pid_namespace, run

CIRCLE = """\
#include <pthread.h>
#include <unistd.h>
static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
int main(void) { pthread_mutex_lock(&one); pthread_mutex_lock(&one); }
"""


def program(folder: Path) -> Path:
    source = folder / "circle.c"
    source.write_text(CIRCLE)
    return compiled(folder / "circle", source)


SCRIPT = """\
$0 & hangs=$!
sh -c 'while :; do :; done' & burns=$!
sh -c 'while :; do read -r a < /proc/self/stat; done' & reads=$!
sleep 1000 & idle=$!
sleep 1001 & stopped=$!
kill -STOP $stopped
sleep 0.5
echo $hangs $burns $reads $idle $stopped
"$@" --for 3 --json
echo end
"$@" --for 1
kill -9 $hangs $burns $reads $idle $stopped
"""


@pytest.mark.live
def test_who_hangs_is_listed_and_who_is_idle_or_works_is_not(tmp_path: Path) -> None:
    """In a namespace, in which no other process is."""
    with pid_namespace() as inside:
        words = ["sh", "-c", SCRIPT, program(tmp_path), *FLAGFINDER, "why", "--all"]
        ran = run([*inside, *words], timeout=120)
    pids, _, rest = ran.stdout.partition("\n")
    hangs, burns, reads, idle, stopped = map(int, pids.split())
    answer, _, told = rest.partition("end\n")
    fields = json.loads(answer)
    schemas.validate(fields)
    kinds = {one["pid"]: one["root"]["kind"] for one in fields["reports"]}
    assert kinds[hangs] == "deadlock"
    assert kinds[stopped] == "stopped"
    assert burns in kinds
    assert not {reads, idle} & set(kinds), fields
    lines = [line for line in told.splitlines() if line.startswith(f"{hangs} ")]
    assert len(lines) == 1
    assert lines[0].startswith(f"{hangs} (circle): deadlock: thread {hangs} (circle) at main() ")


@pytest.mark.live
def test_a_command_behind_dashes_is_guarded(tmp_path: Path) -> None:
    circle = program(tmp_path)
    assert flagfinder("why", "--", "true").returncode == 0
    ran = flagfinder("why", "--json", "--", str(circle), timeout=120)
    assert ran.returncode == 124
    answer = json.loads(ran.stdout)
    assert answer["reports"][0]["root"]["kind"] == "deadlock"
    assert_four_parts(flagfinder("why", "1", "--", "true").stderr, "One thing can be looked at")
    assert_four_parts(flagfinder("why", "--all", "1").stderr, "One thing can be looked at")
