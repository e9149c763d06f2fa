# SPDX-License-Identifier: MIT
"""The JSON contract into Python types, and onto a screen."""

from __future__ import annotations

import copy
import json
import mmap
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from flagfinder.flags.flags import Loop, Report
from flagfinder.graph.events import EventRecording
from flagfinder.live.spin import SpinReport, SpinThread, Wait
from flagfinder.report.diff_report import show_flag_facts, show_report
from flagfinder.report.events_report import recording_fields, show_recording
from flagfinder.report.spin_report import show_spin
from flagfinder.report.terminal import Terminal
from flagfinder.shared.notes import Note

CODE = {"module": "app", "offset": "0x1189", "symbol": "wait_done+0x9", "source": "app.c:12"}
REPORT: dict[str, Any] = {
    "schema": "flagfinder.diff/1",
    "verdict": "data-flag",
    "reason": "one thread polls a word that another wrote in the normal run",
    "threads": {"normal": {"tid": 11, "name": "app"}, "spin": {"tid": 21, "name": "app"}},
    "loop": {"kind": "yield", "function": "wait_done", "module": "app", "iterations": 1200},
    "divergence": {"branch": CODE, "normal_target": CODE, "spin_target": None},
    "flags": [
        {
            "rank": 1,
            "confidence": 0.95,
            "standing": "seen-in-good-run",
            "kind": "global",
            "name": "done (app+0x4010)",
            "module": "app",
            "offset": "0x4010",
            "symbol": "done",
            "field": None,
            "address": {"normal": "0x555555558010", "spin": "0x55d0c0de4010"},
            "size": 4,
            "value": {"spin": "0x0", "exit": "0x1"},
            "exit_when": "value != 0",
            "access_path": None,
            "readers": [CODE],
            "writers": [
                {
                    "run": "normal",
                    "tid": 12,
                    "thread": "worker",
                    "code": CODE,
                    "value": "0x1",
                    "stack": [CODE],
                }
            ],
            "evidence": ["the normal run left by this branch"],
        }
    ],
}


def shown(report: dict[str, Any], capsys: pytest.CaptureFixture[str], explain: bool = False) -> str:
    show_report(Terminal("never"), Report.from_json(json.dumps(report)), explain)
    return capsys.readouterr().out


def test_none_of_several_threads_with_a_store_ahead_is_said_to_owe(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def told(*tids: int) -> str:
        owed = [
            {
                "pid": 1,
                "tid": tid,
                "name": "worker",
                "code": None,
                "value": None,
                "known": "by-code",
                "after": None,
            }
            for tid in tids
        ]
        report = REPORT | {"flags": [REPORT["flags"][0] | {"owed": owed, "owed_by_nobody": None}]}
        show_flag_facts(Terminal("never"), Report.from_json(json.dumps(report)).flags, None, False)
        return capsys.readouterr().out

    assert "owed by    thread 7 (worker)" in told(7)
    assert "owed by    one of 2 threads, which one is not known:" in told(7, 8)


def test_each_test_that_would_end_the_loop_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    def part(text: str, flag: int, **fields: object) -> dict[str, object]:
        named = {"text": text, "flag": flag, "word": "w", "value": "0x4", "owed": []}
        return {**named, "operator": "!=", "standing": "ends-loop", "tests_more": False, **fields}

    parts = [part("n >= want", 1), part("up == 0", 2, tests_more=True)]
    more = [part(f"other_{rank} != 0", rank) for rank in (3, 4, 5)]
    condition = {"text": "", "parts": [*parts, *more], "joined": "or"}
    text = shown(REPORT | {"condition": condition}, capsys)
    assert "  ends when  n >= want (the normal run left with 0x1)\n" in text
    assert "             or up == 0 (now 0x4), and what is tested behind it\n" in text
    assert "or other_4 != 0 (now 0x4)" in text and "other_5" not in text
    assert "or by 1 more test: --explain" in text


def test_of_the_writers_the_one_is_shown_whose_value_ends_the_wait(
    capsys: pytest.CaptureFixture[str],
) -> None:
    gives = REPORT["flags"][0]["writers"][0]
    takes = gives | {"value": "0x7", "tid": 13, "thread": "locker"}

    def told(*writers: dict[str, Any]) -> str:
        flag = REPORT["flags"][0] | {"writers": list(writers)}
        return " ".join(shown(REPORT | {"flags": [flag]}, capsys).split())

    assert "(worker) wrote 0x1" in told(takes, gives)
    assert "(locker) wrote 0x7" in told(takes, gives | {"value": "0x2"})
    assert "(locker) wrote 0x7" in told(takes | {"run": "spin"}), "the spin run shows another write"


def test_a_descriptor_is_told_with_its_file_why_and_who_passed_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parent = {"pid": 7, "name": "xargs", "fd": 0, "known": "seen"}
    descriptor = {
        "fd": 3,
        "target": "pipe:[5]",
        "what": "read end of a pipe",
        "peers": ["process 9 (cat), fd 1"],
        "via": 4,
        "because": "data",
        "why": "data is there that was not taken",
        "inherited_from": parent,
    }

    def told(**fields: object) -> str:
        flag = REPORT["flags"][0] | {"descriptors": [descriptor | fields], "calls_per_second": 1200}
        report = REPORT | {"flags": [flag]}
        show_flag_facts(Terminal("never"), Report.from_json(json.dumps(report)).flags, None, False)
        return " ".join(capsys.readouterr().out.split())

    text = told()
    assert "fd 3 in epoll fd 4, read end of a pipe: data is there that was not taken" in text
    assert "inherited from process 7 (xargs), fd 0; other end: process 9 (cat), fd 1" in text
    assert "1,200 such calls a second" in text
    assert "probably set by process 7 (xargs)" in told(
        inherited_from=parent | {"fd": None, "known": "assumed"}
    )
    assert "fd 3 in epoll fd 4: it is not open" in told(because="not-open", why="it is not open")
    assert "inherited" not in told(inherited_from=None)


def test_numbers_become_ints() -> None:
    report = Report.from_json(json.dumps(REPORT))
    assert report.flag is not None
    assert report.flag.spin_address == 0x55D0C0DE4010
    assert report.flag.value_spin == 0
    assert report.flag.value_exit == 1
    assert report.flag.readers[0].offset == 0x1189
    assert report.divergence is not None
    assert report.divergence.spin_target is None


def test_unknown_fields_are_kept() -> None:
    report = Report.from_json(json.dumps({**REPORT, "groups": [{"exit": 1}]}))
    assert dict(report.raw)["groups"] == [{"exit": 1}]


def test_another_schema_is_refused() -> None:
    with pytest.raises(ValueError, match=r"flagfinder\.diff/1"):
        Report.from_json(json.dumps({**REPORT, "schema": "flagfinder.diff/9"}))


def test_the_screen_answers_every_question(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(REPORT, capsys)
    for part in (
        "app.c:12",
        "done (app+0x4010)",
        "0x0",
        "value != 0",
        "worker",
        "wrote 0x1",
        "left by this branch",
        "yields",
    ):
        assert part in text
    assert len(text.splitlines()) <= 24


def test_long_names_fit_and_explain_has_them_whole(capsys: pytest.CaptureFixture[str]) -> None:
    inner = "Eigen::Matrix<double, -1, -1, 0, -1, -1>"
    function = f"Eigen::internal::product<{', '.join([inner] * 14)}>::evaluate"
    report = copy.deepcopy(REPORT)
    report["loop"]["function"] = function
    report["divergence"]["branch"] = {
        **CODE,
        "symbol": f"{function}+0x9",
        "source": f"/{'/'.join(['folder'] * 20)}/app.c:12",
    }
    report["notes"] = ["a remark of many words " * 10]
    text = shown(report, capsys)
    assert "product<…>::evaluate" in text and "/app.c:12" in text
    assert max(len(line) for line in text.splitlines()) <= 100
    assert inner in " ".join(shown(report, capsys, explain=True).split())


def test_a_thread_that_waits_for_the_first_is_a_chain(capsys: pytest.CaptureFixture[str]) -> None:
    chain = "thread 22 (main) polls done, which thread 21 (app) is to write"
    assert f"chain      {chain}" in shown({**REPORT, "chains": [chain]}, capsys)


@pytest.mark.parametrize("confidence", [0.2, 0.5, 0.75, 0.99])
def test_no_word_or_number_says_how_probable_it_is(
    confidence: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """The score was never compared with outcomes: the screen shows how the flag is known, its rank
    and the evidence.
    """
    report = copy.deepcopy(REPORT)
    report["flags"][0]["confidence"] = confidence
    report["flags"][0]["standing"] = "by-code"
    text = shown(report, capsys)
    for word in ("sure", "likely", "guess", "%", f"{confidence:.2f}"):
        assert word not in text
    assert "known      deduced from the loop's code; the only candidate" in text
    assert f"{confidence:.2f}" not in shown(report, capsys, explain=True)


def test_nobody_wrote_it(capsys: pytest.CaptureFixture[str]) -> None:
    report = copy.deepcopy(REPORT)
    report["flags"][0]["writers"] = []
    assert "normal run: nobody seen" in shown(report, capsys)


def test_no_flag_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    report = {
        **REPORT,
        "verdict": "no-flag",
        "reason": "the loop's own thread counts i up",
        "flags": [],
    }
    assert "no flag: the loop's own thread counts i up" in shown(report, capsys)


def test_weaker_candidates_need_explain(capsys: pytest.CaptureFixture[str]) -> None:
    report = copy.deepcopy(REPORT)
    second = {**copy.deepcopy(report["flags"][0]), "rank": 2, "name": "debug_level (app+0x4020)"}
    report["flags"].append(second)
    text = shown(report, capsys)
    assert "first of 2 candidates: --explain shows the others" in " ".join(text.split())
    assert "debug_level" not in text
    assert "debug_level" in shown(report, capsys, explain=True)


def _thread(tid: int, reason: str = "it does something else each time") -> SpinThread:
    return SpinThread(
        tid=tid,
        name="app",
        kind="LongRunning",
        cpu=0.9,
        verdict="no-flag",
        reason=reason,
        loop=None,
        flags=(),
        considered=(),
        notes=(),
        explain=(),
        condition=None,
        wait=None,
        python=None,
        script=None,
        steps=0,
        pause_ms=0.0,
    )


def _spin_report(*threads: SpinThread) -> SpinReport:
    raw = cast(Any, {})
    return SpinReport(
        pid=21,
        source="live",
        program="/app",
        budget_ms=800,
        threads=threads,
        notes=(),
        not_asked=(),
        raw=raw,
    )


def test_threads_that_do_the_same_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    others = [_thread(tid, "it computes") for tid in (23, 25, 26)]
    pairs = [_thread(tid, f"it waits for {tid // 2}") for tid in range(30, 42)]
    show_spin(
        Terminal("never"), _spin_report(_thread(21), others[0], _thread(24), *others[1:], *pairs)
    )
    shown = capsys.readouterr().out.splitlines()[1:]
    assert [" ".join(line.split()) for line in shown[:3]] == [
        "threads 23, 25 and 1 more (app), LongRunning: it computes",
        "thread 24 (app), LongRunning: it does something else each time",
        "threads 30 and 31 (app), LongRunning: it waits for 15",
    ]
    assert shown[-1].strip() == "and 4 more threads: --explain"


def test_a_report_of_spin_is_a_line_for_each_thread_where_it_is_printed() -> None:
    waits = Wait("waits for fd 3", "read", None, (), cast(Any, {}))
    report = _spin_report(_thread(21, "it computes\x1b"), replace(_thread(22), wait=waits))
    assert str(report).splitlines() == [
        "process 21 (/app)",
        "thread 21 (app): it computes\\u001b",
        "thread 22 (app): waits for fd 3",
    ]


@pytest.mark.parametrize(
    ("steps", "rounds", "pause_ms", "more"),
    [
        (4_000, 100, 801.0, True),
        (4_000, 100, 300.0, False),
        (24_000, 100, 800.0, False),
        (24_000, 2, 800.0, True),
        (24_000, None, 800.0, False),
    ],
)
def test_a_thread_that_was_seen_shortly_gets_a_larger_budget_as_advice(
    steps: int, rounds: int | None, pause_ms: float, more: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    looked = replace(
        _thread(21), steps=steps, pause_ms=pause_ms, loop=Loop("busy", "work", "app", rounds)
    )
    show_spin(Terminal("never"), _spin_report(looked))
    assert ("--budget 4" in capsys.readouterr().err) == more


def test_the_next_question_about_a_virtual_machine_of_java_is_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = replace(_spin_report(_thread(21)), pid=os.getpid())
    library = tmp_path / "libjvm.so"
    library.write_bytes(bytes(mmap.PAGESIZE))
    show_spin(Terminal("never"), report)
    rights = mmap.PROT_READ | mmap.PROT_EXEC
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=rights):
        show_spin(Terminal("never"), report)
    without, with_it = capsys.readouterr().err.split("Next: ")[1:]
    assert "spin" in without and "why" in with_it


def test_fallbacks_of_recorded_events_are_announced(capsys: pytest.CaptureFixture[str]) -> None:
    note = Note("fallback", "no clock: refused")
    recording = EventRecording(
        Path("run.events"), "duration", None, 7, 9, 9, 0, {}, 0, None, [note]
    )
    show_recording(Terminal("never"), recording)
    assert "no clock: refused" in capsys.readouterr().err
    assert recording_fields(recording)["notes"] == [
        {"level": "fallback", "text": "no clock: refused"}
    ]


def test_processes_that_were_not_followed_are_a_loss(capsys: pytest.CaptureFixture[str]) -> None:
    whole = EventRecording(Path("x.events"), "duration", None, 5, 100, 80, 0, {}, 0, None, [])
    show_recording(Terminal(), whole)
    assert "nothing lost" in capsys.readouterr().err
    holed = replace(whole, lost_processes=3)
    show_recording(Terminal(), holed)
    said = capsys.readouterr().err
    assert "nothing lost" not in said
    assert "3 of the processes that the target started are not recorded" in said
    assert recording_fields(holed)["lost"] == {"total": 0, "cpus": {}, "processes": 3}
