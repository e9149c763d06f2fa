# SPDX-License-Identifier: MIT
"""``why NORMAL SPIN`` on planted hangs: the root is the planted cause, and the thread to blame is
in the chain.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import schemas
from harness import assert_four_parts, compiled, flagfinder, record
from sizes import in_turn

import flagfinder as api

SOURCE = Path(__file__).parent / "why/recorded.c"


@dataclass(frozen=True)
class Case:
    """The root's kind, what is said of it, how many links lead there at least, and whether the bad
    run lacks the byte in the FIFO.
    """

    kind: str
    what: str
    links: int
    silent: bool = False


CASES = {
    "wrong_setting": Case("input", "`read` on fd", 2),
    "ended_on_an_error": Case("ended", "No such file or directory", 1),
    "never_started": Case("input", "to starting that thread .*`read` on fd", 1),
    "job_never_sent": Case("input", "`read` on fd", 3),
    "blocked_in_a_call": Case("input", "waiting for read on fd", 2, silent=True),
    "two_flags": Case("input", "`read` on fd", 3),
    "message_never_sent": Case("input", "`read` on fd", 3),
    "wrong_word": Case("input", "the command line or of the environment", 2),
    "lock_kept": Case("input", "`read` on fd", 3),
    "four_links": Case("input", "waiting for read on fd", 4, silent=True),
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program with the hangs."""
    return compiled(
        tmp_path_factory.mktemp("why") / "recorded", SOURCE, "-Wall", "-Wextra", "-Werror"
    )


def record_both(program: Path, scenario: str, where: Path) -> tuple[Path, Path, int]:
    """The recordings of the good and of the bad run, and which thread of the latter is to blame."""
    fifo = where / "fifo"
    os.mkfifo(fifo)
    held = os.open(fifo, os.O_RDWR)
    try:
        recordings = []
        for name, number in (("normal", "2"), ("spin", "1")):
            settings = where / f"{name}.txt"
            settings.write_text(number)
            if name == "normal" or not CASES[scenario].silent:
                os.write(held, b"x")
            options = [] if name == "normal" else ["--stop-when-spinning", "1", "--then", "kill"]
            command = [program, scenario, settings, fifo, number]
            recordings.append(record(where / f"{name}.trace", command, *options))
    finally:
        os.close(held)
    normal, spin = recordings
    assert normal.exit_code == 0, normal.stderr
    found = re.search(r"^BLAMED (\d+)$", spin.stdout, re.MULTILINE)
    assert found is not None, spin.stdout
    return normal.trace, spin.trace, int(found[1])


@pytest.mark.usefixtures("tracer")
@pytest.mark.parametrize("scenario", in_turn(CASES, of=3))
def test_the_root_is_the_planted_cause(scenario: str, program: Path, tmp_path: Path) -> None:
    normal, spin, blamed = record_both(program, scenario, tmp_path)
    done = flagfinder("why", "--json", normal, spin)
    assert done.returncode == 0, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    schemas.validate(answer)
    case, root = CASES[scenario], answer["root"]
    assert root["kind"] == case.kind, answer["story"]
    assert re.search(case.what, root["what"]), root["what"]
    assert len(answer["links"]) >= case.links, answer["story"]
    assert len(answer["story"]) <= 6
    last = answer["links"][-1]
    at_the_end = {root["tid"], last["waiter"]["tid"], last["owed_by"] and last["owed_by"]["tid"]}
    assert blamed in at_the_end, answer["story"]
    for link, following in zip(answer["links"], answer["links"][1:], strict=False):
        assert link["owed_by"]["tid"] == following["waiter"]["tid"], answer["story"]
    known = {link["known"] for link in answer["links"]}
    assert known <= {"seen", "assumed"}
    assert ("assumed" in known) == (scenario == "message_never_sent"), answer["story"]


@pytest.mark.usefixtures("tracer")
def test_two_good_runs_have_no_root(program: Path, tmp_path: Path) -> None:
    normal, _, _ = record_both(program, "wrong_setting", tmp_path)
    report = api.why_recorded(api.open_trace(normal), api.open_trace(normal))
    assert not report.found or report.root.kind == "ended", report.story


def test_what_is_no_process_and_no_pair() -> None:
    for words, found in ((["no-process"], "no-process"), (["a", "b", "c"], "3 words")):
        done = flagfinder("why", *words)
        assert done.returncode == 2, done.stderr
        assert_four_parts(done.stderr, found)
