# SPDX-License-Identifier: MIT
"""`flagfinder spin` on threads that wait for each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from harness import compiled, flagfinder, started, wait_until

_CHAIN = """
#include <pthread.h>
#include <unistd.h>
static pthread_mutex_t config = PTHREAD_MUTEX_INITIALIZER;
static void *reload(void *unused) { pthread_mutex_lock(&config); sleep(1000); return unused; }
static void *handle(void *unused) { sleep(1); pthread_mutex_lock(&config); return unused; }
int main(void)
{
    pthread_t reloader, handler;
    pthread_create(&reloader, 0, reload, 0);
    pthread_create(&handler, 0, handle, 0);
    return pthread_join(handler, 0);
}
"""


def calls(pid: int) -> list[str]:
    """The system calls that the threads are in: 202 is futex, 230 clock_nanosleep."""
    return [
        (task / "syscall").read_text().split()[0] for task in Path(f"/proc/{pid}/task").iterdir()
    ]


@pytest.mark.live
def test_a_chain_of_waits_is_told_from_its_end(tmp_path: Path) -> None:
    source, program = tmp_path / "chain.c", tmp_path / "chain"
    source.write_text(_CHAIN)
    compiled(program, source)
    with started([program]) as process:
        wait_until(process, lambda: sorted(calls(process.pid)) == ["202", "202", "230"])
        report = json.loads(flagfinder("spin", "--json", str(process.pid), timeout=60).stdout)
    handler, main, reloader = report["threads"]
    assert main["tid"] == process.pid
    assert "held by thread" in handler["reason"]
    chain = (
        f"thread {main['tid']} waits for thread {handler['tid']}, which waits for thread "
        f"{reloader['tid']}"
    )
    assert any(note.startswith(chain) and "clock_nanosleep" in note for note in report["notes"]), (
        report["notes"]
    )
