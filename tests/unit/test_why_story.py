# SPDX-License-Identifier: MIT
"""The chain of `why` in words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flagfinder.live.why_chain import WhyReport
from flagfinder.report.terminal import Terminal
from flagfinder.report.why_report import show_why


def spot(function: str, line: int, file: str | None = "/src/dead.c") -> dict[str, object]:
    return {
        "function": function,
        "file": file,
        "line": None if file is None else line,
        "module": "dead",
        "offset": "0x1216",
    }


def node(tid: int, pid: int = 1, name: str = "dead") -> dict[str, Any]:
    return {"pid": pid, "tid": tid, "name": name}


def link(waiter: dict[str, Any], owed: dict[str, Any] | None, **fields: object) -> dict[str, Any]:
    target = {"kind": "lock", "name": "mutex a", "address": "0x10", "statement": None}
    return {
        "waiter": waiter,
        "waits_for": target,
        "owed_by": None if owed is None else {**owed, "code": None},
        "known": "seen",
        "reason": "the lock holds its owner's id",
        "stack": [],
        "at": None,
        **fields,
    }


def report(
    links: list[dict[str, Any]], kind: str, what: str, of: dict[str, Any], **fields: Any
) -> WhyReport:
    return WhyReport.from_json(
        json.dumps(
            {
                "schema": "flagfinder.why/1",
                "source": "live",
                "pid": 1,
                "program": "/src/dead",
                "links": links,
                "root": {"kind": kind, **of, "what": what, "at": fields.pop("at", None)},
                "next": [],
                "notes": [],
                "not_asked": [],
                **fields,
            }
        )
    )


def circle() -> WhyReport:
    links = [
        link(node(1), node(2), at=spot("main", 14)),
        link(node(2), node(3), at=spot("one", 5)),
        link(node(3), node(2), at=spot("two", 8)),
    ]
    return report(
        links, "deadlock", "thread 2 waits for thread 3, which waits for thread 2", node(2)
    )


def test_each_link_says_where_and_nothing_twice() -> None:
    assert circle().story == (
        "deadlock: thread 2 (dead) at one() dead.c:5 and thread 3 at two() dead.c:8 wait for each "
        "other",
        "thread 2 at one() dead.c:5 waits for mutex a, owed by thread 3 [seen]",
        "thread 3 at two() dead.c:8 waits for mutex a, owed by thread 2 [seen]",
        "thread 1 at main() dead.c:14 waits for mutex a, owed by thread 2 [seen]",
    )


def test_what_its_links_do_not_say_of_a_circle_is_told_first() -> None:
    note = "all 9 other threads wait too: nobody is left"
    of = node(2)
    told = report(
        [dict(one) for one in circle().raw["links"]], "deadlock", note, {**of, "note": note}
    ).story
    assert told[0] == f"deadlock: {note}"
    assert told[1].startswith("thread 2 "), "the circle still comes before what leads to it"


def test_a_thread_that_waits_for_itself_and_a_long_circle() -> None:
    alone = report([link(node(1), node(1), at=spot("one", 5))], "deadlock", "x", node(1)).story
    assert alone[0] == "deadlock: thread 1 (dead) at one() dead.c:5 waits for itself"
    chain = [link(node(at), node(at % 5 + 1)) for at in range(1, 6)]
    many = report(chain, "deadlock", "x", node(1)).story
    assert many[0] == (
        "deadlock: thread 1 (dead), thread 2, thread 3 and 2 more wait for each other"
    )


def test_a_link_says_who_called_the_function_in_which_its_thread_stands() -> None:
    outer = {**spot("serve", 40), "called_at": spot("begin", 60)}
    at = {**spot("take", 5), "called_at": outer}
    links = [link(node(1), node(2), at=at), link(node(2), node(1), at=spot("two", 8))]
    told = report(links, "deadlock", "x", node(1)).story
    assert told[0].startswith("deadlock: thread 1 (dead) at take() dead.c:5 and thread 2 at two()")
    assert told[1].startswith(
        "thread 1 at take() dead.c:5, called at serve() dead.c:40, from begin() dead.c:60, waits "
        "for mutex a, owed by"
    )


def test_a_caller_without_a_line_is_no_news_beside_a_place_that_has_one() -> None:
    around = spot("main", 0, None)
    with_line = {**spot("take", 5), "called_at": around}
    told = report([link(node(1), node(2), at=with_line)], "timer", "it sleeps", node(2)).story
    assert "called at" not in told[1]
    without = {**spot("take", 0, None), "called_at": around}
    told = report([link(node(1), node(2), at=without)], "timer", "it sleeps", node(2)).story
    assert "at take() in dead, called at main() in dead, waits" in told[1]


def test_of_a_root_its_caller_and_the_locks_that_it_holds_are_told() -> None:
    at = {**spot("back_off", 86), "called_at": spot("refresh", 40)}
    links = [link(node(1), node(2), at=spot("get", 60))]
    told = report(links, "timer", "it sleeps, for 60 min in all", node(2), at=at).story
    assert told[0] == (
        "waits for a timer: thread 2 (dead) at back_off() dead.c:86, called at refresh() "
        "dead.c:40, holds mutex a: it sleeps, for 60 min in all"
    )
    links[0]["known"] = "assumed"
    assert "holds" not in report(links, "timer", "it sleeps", node(2), at=at).story[0]


def test_a_lost_wake_up_says_where_its_thread_waits() -> None:
    what = "a copy of thread 1, once woken, goes on"
    target = {"kind": "flag", "name": "condition variable", "address": "0x10"}
    alone = link(node(1), None, waits_for=target, reason=what, known="proved", at=spot("get", 7))
    told = report([alone], "lost-wakeup", what, node(1)).story
    assert told == (
        f"lost wake-up: thread 1 (dead) at get() dead.c:7 waits for condition variable: {what} "
        "[proved]",
    )


def test_of_a_circle_it_is_told_first_that_it_is_assumed() -> None:
    chain = [link(node(1), node(2)), link(node(2), node(1), known="assumed")]
    told = report(chain, "deadlock", "x", {**node(1), "assumed": True}).story
    assert told[0].endswith("wait for each other [assumed]")


def test_how_a_copy_got_there_is_told_where_nothing_else_says_it() -> None:
    reason = "a copy of it writes 0x1 there, after its `read` on fd 0 returns data"
    first = link(node(1), node(2), known="proved", reason=reason)
    followed = report([first, link(node(2), None, reason="y")], "input", "x", node(2))
    assert followed.story[1].endswith("waits for mutex a, owed by thread 2 [proved]")
    alone = report([first], "input", "x", node(3))
    assert f"owed by thread 2: {reason} [proved]" in alone.story[1]


def test_a_test_that_hangs_is_named_behind_the_cause() -> None:
    tests = [{**spot(f"test_{at}", at, "/src/test_app.py"), "pid": 1, "tid": 1} for at in range(5)]
    one = report([], "timer", "it sleeps", node(1), tests=tests[:1])
    assert one.story[1] == "test: test_0() test_app.py:0"
    many = report([], "timer", "it sleeps", node(1), tests=tests)
    assert many.story[1].endswith("test_2() test_app.py:2 and 2 more")
    chain = [link(node(at), node(at + 1)) for at in range(1, 10)]
    assert len(report(chain, "timer", "it sleeps", node(10), tests=tests).story) == 6


def test_marks_are_explained_once_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    show_why(Terminal("never"), [circle(), circle()])
    shown = capsys.readouterr().out.splitlines()
    assert [line for line in shown if "[seen]:" in line] == [shown[-1]]
    assert "[assumed]" not in shown[-1], "what no line has is not explained"


def test_of_a_link_that_is_one_line_with_the_root_the_root_s_mark_is_explained(
    capsys: pytest.CaptureFixture[str],
) -> None:
    alone = link(node(1), None, reason="it was woken before", known="proved")
    show_why(
        Terminal("never"),
        [report([alone], "lost-wakeup", "it was woken before", {**node(1), "assumed": True})],
    )
    shown = capsys.readouterr().out
    assert "[assumed]: " in shown and "[proved]" not in shown


def test_a_root_that_is_assumed_is_marked_and_not_found() -> None:
    links = [link(node(1), node(2), known="assumed"), link(node(2), None, reason="it sleeps")]
    for kind in ("timer", "stopped"):
        told = report(links, kind, "it sleeps", {**node(2), "assumed": True})
        assert told.lines[0][-1] == ("[assumed]", "unsure")
        assert not told.found and report(links, kind, "it sleeps", node(2)).found


def test_a_reader_is_sent_into_the_circle_or_to_the_end_of_the_chain() -> None:
    assert str(circle().place) == "one() dead.c:5"
    sleeps = report(
        [link(node(1), node(2), at=spot("main", 14))],
        "timer",
        "it sleeps",
        node(2),
        at=spot("nap", 3),
    )
    assert str(sleeps.place) == "nap() dead.c:3"
    nowhere = report([link(node(1), node(2), at=spot("main", 0, None))], "timer", "x", node(2))
    assert nowhere.place is None, "without a line there is nothing to show"


def test_without_lines_the_function_is_told() -> None:
    told = report([link(node(1), node(2), at=spot("one", 0, None))], "timer", "it sleeps", node(2))
    assert "thread 1 at one() in dead waits for" in told.story[1]
    bare = {**spot("", 0, None), "function": None}
    told = report([link(node(1), node(2), at=bare)], "timer", "it sleeps", node(2))
    assert "thread 1 at dead+0x1216 waits for" in told.story[1]


def test_a_statement_is_told_without_the_place_that_is_told_beside_it() -> None:
    target = {
        "kind": "flag",
        "name": "`with A` (forth at a.py:6)",
        "address": None,
        "statement": "`with A`",
    }
    at = spot("forth", 6, "/app/a.py")
    told = report([link(node(1), node(2), waits_for=target, at=at)], "timer", "x", node(2))
    assert "thread 1 at forth() a.py:6 waits for `with A`, owed" in told.story[1]
    told = report([link(node(1), node(2), waits_for=target)], "timer", "x", node(2))
    assert "waits for `with A` (forth at a.py:6), owed" in told.story[1]


def test_the_last_link_is_one_line_with_the_root() -> None:
    target = {"kind": "call", "name": "read on fd 0, a pipe", "address": None, "statement": None}
    what = "nobody has the other end"
    last = link(node(1), None, waits_for=target, reason=what, at=spot("ask", 9))
    told = report([last], "input", what, node(1), at=spot("ask", 9))
    assert told.story == (
        "waits for input: thread 1 (dead) at ask() dead.c:9 waits for read on fd 0, a pipe: "
        "nobody has the other end [seen]",
    )


def test_processes_are_named_where_there_are_several() -> None:
    chain = [
        link(node(1), node(6, 5, "server"), reason="it holds the other end, fd 4", known="assumed"),
        link(node(6, 5, "server"), node(7, 5, "server")),
    ]
    told = report(chain, "timer", "it sleeps", node(7, 5, "server"))
    assert told.story == (
        "waits for a timer: thread 7 (server) of process 5 holds mutex a: it sleeps",
        "process 1 (dead) waits for mutex a, owed by thread 6 of process 5: it holds the other "
        "end, fd 4 [assumed]",
        "thread 6 of process 5 waits for mutex a, owed by thread 7 [seen]",
    )


def test_of_a_child_that_lives_no_more_is_told() -> None:
    target = {
        "kind": "child",
        "name": "the end of child 5 (sleep)",
        "address": None,
        "statement": None,
    }
    sleep = node(5, 5, "sleep")
    reason = "its child 5 (sleep) has not ended"
    told = report([link(node(1), sleep, waits_for=target, reason=reason)], "timer", "x", sleep)
    assert told.story[1] == (
        "process 1 (dead) waits for the end of child 5 (sleep), owed by process 5 [seen]"
    )


def test_a_long_chain_is_told_in_six_lines() -> None:
    chain = [link(node(at), node(at + 1)) for at in range(1, 10)]
    told = report(chain, "timer", "it sleeps", node(10)).story
    assert len(told) == 6
    assert told[3].startswith(".. 5 more links"), told
    assert told[5].startswith("thread 9 "), told


@pytest.mark.parametrize(
    ("kind", "color"), [("deadlock", "31"), ("unknown", "33"), ("timer", None)]
)
def test_a_fault_a_gap_and_an_idle_thread_look_different(
    kind: str, color: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    show_why(Terminal("always"), [report([], kind, "why", node(1))])
    shown = capsys.readouterr().out
    assert f"\x1b[1;{color}m" in shown if color else "\x1b[1m" in shown
    assert ";32m" not in shown
    assert "\x1b[32m" not in shown, "green is for what is well"


def test_threads_that_wait_alike_are_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    def stack(tid: int, *calls: str, sure: bool = True) -> dict[str, Any]:
        frames = [{**spot(call, 3), "own": call == "take", "sure": sure} for call in calls]
        return {"tid": tid, "name": "worker", "call": "futex", "frames": frames}

    stacks = [*(stack(tid, "wait", "take") for tid in range(2, 22)), stack(1, "main", sure=False)]
    show_why(Terminal("never"), [report([], "timer", "why", node(1), stacks=stacks)])
    shown = capsys.readouterr().out.splitlines()[1:]
    assert shown == [
        "",
        "20 threads: 2, 3, 4, 5 and 16 more (worker), in futex",
        "  wait() dead.c:3",
        "  take() dead.c:3",
        "",
        "thread 1 (worker), in futex",
        "  main() dead.c:3 ?",
    ]


def test_threads_without_code_of_the_program_are_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stack(tid: int, call: str, own: bool) -> dict[str, Any]:
        frame = {**spot(f"f{tid}", tid), "own": own, "sure": True}
        return {"tid": tid, "name": f"GC {tid}", "call": call, "frames": [frame]}

    stacks = [*(stack(tid, "futex", False) for tid in range(2, 22)), stack(1, "read", True)]
    show_why(Terminal("never"), [report([], "timer", "why", node(1), stacks=stacks)])
    assert capsys.readouterr().out.splitlines()[1:] == [
        "",
        "thread 1 (GC 1), in read",
        "  f1() dead.c:1",
        "",
        "20 threads: 2, 3, 4, 5 and 16 more (GC 2, GC 3, GC 4, GC 5 and 16 more), in futex, "
        "without code of",
        "  the program",
    ]
    alike = [stack(1, "futex", False), stack(2, "futex", False)]
    show_why(Terminal("never"), [report([], "timer", "why", node(1), stacks=alike)])
    assert "  f2() dead.c:2" in capsys.readouterr().out, "where nothing is known all is shown"
