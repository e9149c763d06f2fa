# SPDX-License-Identifier: MIT
"""Which loop some lines of a Python function belong to, and what ends it: from source alone."""

from __future__ import annotations

import ast
from dataclasses import dataclass

import pytest

from flagfinder.interpreters.python_loop import Loop, find_loops, negated


@dataclass(frozen=True)
class Case:
    """``source`` is the body of ``wait``, seen at the lines that end in ``#``. ``exits``: of the
    innermost loop.
    """

    name: str
    source: str
    kind: str
    exits: tuple[str, ...]
    pure: bool = True


CASES = [
    Case("attribute", "while not self.done:\n    time.sleep(0)  #", "waits", ("self.done",)),
    Case("busy", "while not self.done:  #\n    pass", "waits", ("self.done",)),
    Case(
        "counted",
        "while not self.done:\n    n += 1  #\n    self.looks += 1",
        "waits",
        ("self.done",),
    ),
    Case(
        "event", "while not event.is_set():\n    time.sleep(0.01)  #", "waits", ("event.is_set()",)
    ),
    Case("compared", "while state['phase'] != 3:\n    pass  #", "waits", ("state['phase'] == 3",)),
    Case("both", "while not (a.x and b.x):\n    pass  #", "waits", ("a.x and b.x",)),
    Case("either", "while a.x and not b.x:\n    pass  #", "waits", ("not a.x or b.x",)),
    Case("break", "while True:\n    if a.b:  #\n        break", "waits", ("a.b",)),
    Case("return", "while 1:\n    if a.b > 2: return  #\n    time.sleep(0)", "waits", ("a.b > 2",)),
    Case(
        "two ifs",
        "while True:\n    if a.b:  #\n        if c.d or e: break",
        "waits",
        ("a.b and (c.d or e)",),
    ),
    Case(
        "else",
        "while True:\n    if a.b:  #\n        pass\n    else:\n        break",
        "waits",
        ("not a.b",),
    ),
    Case(
        "continue",
        "while True:\n    if not a.b:\n        continue  #\n    break",
        "waits",
        ("a.b",),
    ),
    Case(
        "elif",
        "while True:\n    if a:\n        x = 1  #\n    elif b.c:\n        break",
        "waits",
        ("not a and b.c",),
    ),
    Case(
        "deadline with a message",
        "while not job.done:\n    if time.monotonic() > end: raise E(str(job))\n    sleep(0)  #",
        "waits",
        ("job.done", "time.monotonic() > end"),
    ),
    Case(
        "deadline",
        "while not job.done:\n    if time.monotonic() > end: raise TimeoutError\n    time.sleep(0) "
        " #",
        "waits",
        ("job.done", "time.monotonic() > end"),
    ),
    Case(
        "walrus",
        "while (x := box.value) is None:\n    pass  #",
        "waits",
        ("(x := box.value) is not None",),
    ),
    Case(
        "many lines",
        "while (\n    not a.b  #\n    and c.d\n):\n    time.sleep(0)  #",
        "waits",
        ("a.b or not c.d",),
    ),
    Case(
        "function asked",
        "while not ready(job):\n    time.sleep(0)  #",
        "waits",
        ("ready(job)",),
        pure=False,
    ),
    Case(
        "lock",
        "while not lock.acquire(False):\n    time.sleep(0)  #",
        "waits",
        ("lock.acquire(False)",),
        pure=False,
    ),
    Case(
        "waits in test", "while not event.wait(0.01):  #\n    pass", "waits", ("event.wait(0.01)",)
    ),
    Case(
        "asked first",
        "while True:\n    x = box.value  #\n    if x is not None: break",
        "waits",
        ("x is not None",),
    ),
    Case(
        "iter",
        "for _ in iter(lambda: job.done, True):\n    pass  #",
        "waits",
        ("job.done == True",),
    ),
    Case(
        "bounded looks",
        "for _ in range(99):\n    if job.done: break  #",
        "waits",
        ("range(99) has no more", "job.done"),
    ),
    Case("await", "while not job.done:\n    await asyncio.sleep(0)  #", "waits", ("job.done",)),
    Case(
        "back-off",
        "while True:\n    x = box.take(delay)  #\n    if x: break\n    delay = min(delay * 2, 1)",
        "waits",
        ("x",),
        pure=False,
    ),
    Case("mapping", "while d.get('x') is None:\n    pass  #", "waits", ("d.get('x') is not None",)),
    Case(
        "exception",
        "while True:\n    try:\n        x = q.get_nowait()  #\n        break\n    except Empty:\n  "
        "      time.sleep(0)",
        "waits",
        ("q.get_nowait() does not raise Empty",),
        pure=False,
    ),
    Case(
        "handler",
        "while True:\n    try:\n        os.kill(pid, 0)  #\n    except OSError:\n        return",
        "waits",
        ("os.kill(pid, 0) raises OSError",),
        pure=False,
    ),
    Case(
        "pattern",
        "while True:\n    match a.b:  #\n        case 3: break",
        "waits",
        ("a.b matches 3",),
        pure=False,
    ),
    Case(
        "all of many",
        "while True:\n    time.sleep(0)  #\n    for t in ts:\n        if not t.done: break\n    "
        "else:\n        break",
        "waits",
        ("the loop of line 4 ends without break",),
        pure=False,
    ),
    Case(
        "any of many",
        "while True:\n    time.sleep(0)  #\n    for t in ts:\n        if t.done: return",
        "waits",
        ("t.done",),
    ),
    # Not waits.
    Case(
        "serves",
        "while not self.stop:\n    ready = s.select(0.5)  #\n    if ready: handle()",
        "works",
        ("self.stop",),
    ),
    Case("queue's consumer", "while not q.empty():\n    use(q.get())  #", "works", ("q.empty()",)),
    Case("hands out", "while not self.stop:\n    yield 1  #", "works", ("self.stop",)),
    Case("stores", "while not self.stop:\n    a[i] = b  #", "works", ("self.stop",)),
    Case("counts", "while i < 10:\n    i += 1  #", "counts", ("i >= 10",)),
    Case("counts by assignment", "while i < 10:\n    i = i + 1  #", "counts", ("i >= 10",)),
    Case(
        "returned once it does not raise",
        "while True:\n    n += 1\n    try: return ask()  #\n    except Busy: sleep(n)",
        "waits",
        ("ask() does not raise Busy",),
        pure=False,
    ),
    Case(
        "returns what is there",
        "while True:\n    try: return n  #\n    except Busy: sleep(n)",
        "counts",
        ("",),
    ),
    Case(
        "counts in break", "while True:\n    i += 1  #\n    if i > 9: break", "counts", ("i > 9",)
    ),
    Case("time only", "while time.time() < end:\n    pass  #", "counts", ("time.time() >= end",)),
    Case(
        "time kept",
        "while True:\n    now = time.time()  #\n    if now > end: break",
        "counts",
        ("now > end",),
    ),
    Case(
        "two that take turns",
        "while b - a > e:\n    a = b\n    b = (a + 2 / a) / 2  #",
        "counts",
        ("b - a <= e",),
    ),
    Case(
        "bisection",
        "while a < b:\n    m = (a + b) // 2  #\n    if x[m] < y: a = m + 1\n    else: b = m",
        "counts",
        ("a >= b",),
    ),
    Case(
        "remainders",
        "while True:\n    a, b = b, a % b  #\n    if b == 0: break",
        "counts",
        ("b == 0",),
    ),
    Case("list", "while node.next:\n    node = node.next  #", "counts", ("not node.next",)),
    Case(
        "scan",
        "while True:\n    c = text[i]  #\n    i += 1\n    if c == 'x': break",
        "counts",
        ("c == 'x'",),
    ),
    Case(
        "until nothing changes",
        "while x:\n    x = False  #\n    if a[i] > 1: x = True",
        "counts",
        ("not x",),
    ),
    Case("sorts", "while not self.done:\n    a[i], a[j] = a[j], a[i]  #", "works", ("self.done",)),
    Case(
        "range",
        "for i in range(9):\n    x += i  #",
        "counts",
        ("range(9) has no more",),
        pure=False,
    ),
    Case("search", "for t in ts:\n    if t.done: break  #", "counts", ("ts has no more", "t.done")),
    Case("iterator", "for row in rows(file):\n    pass  #", "works", ("rows(file) has no more",)),
    Case("endless", "while True:\n    time.sleep(1)  #", "endless", ()),
    Case("only raises", "while True:\n    if a.b: raise E  #", "endless", ("a.b",)),
    Case("count()", "for i in itertools.count():\n    pass  #", "endless", ()),
]


def loops_of(source: str, function: str = "wait") -> list[Loop]:
    lines = {number for number, line in enumerate(source.splitlines(), 1) if line.endswith("#")}
    assert lines
    return find_loops(ast.parse(source), function, lines)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_ends_it(case: Case) -> None:
    loop = loops_of(
        "async def wait():\n" + "".join(f"    {line}\n" for line in case.source.splitlines())
    )[0]
    assert (loop.kind, tuple(way.when for way in loop.exits)) == (case.kind, case.exits)
    if case.kind == "waits":
        assert all(way.pure for way in loop.exits if way.foreign) == case.pure


NESTED = """\
    @decorated(
        lambda: 1,
    )
    def wait(self):
        while not self.stop:
            for item in range(1000):
                x = item  #
"""


def test_loops_come_innermost_first_and_a_class_in_front_is_passed_over() -> None:
    loops = loops_of(f"class Job:\n{NESTED}", "Job.wait")
    assert [(loop.line, loop.kind) for loop in loops] == [(7, "counts"), (6, "waits")]


@pytest.mark.parametrize(
    ("source", "function"),
    [
        ("while True:\n    def wait():\n        return 1  #", "wait"),
        ("while a:\n    x = 1\nelse:\n    y = 1  #", "<module>"),
        ("while a:\n    x = 1  #\nwhile b:\n    y = 1  #", "<module>"),
        ("def other():\n    while a:\n        x = 1  #", "wait"),
        ("def wait():\n    while a:\n        x = lambda: (\n            1)  #", "<lambda>"),
        ("while a:\n    x = [\n        b  #\n        for b in c]", "<listcomp>"),
    ],
    ids=["function in a loop", "else", "two loops", "other function", "lambda", "comprehension"],
)
def test_no_loop(source: str, function: str) -> None:
    assert loops_of(source, function) == []


def test_a_loop_at_the_top_of_a_module() -> None:
    (loop,) = loops_of("def wait(): pass\nwhile not done:\n    pass  #", "<module>")
    assert (loop.line, loop.end_line, loop.exits[0].names) == (2, 3, ("done",))


def test_functions_of_one_name_are_told_by_their_lines() -> None:
    (loop,) = loops_of("def wait():\n    while a: pass\ndef wait():\n    while b: pass  #")
    assert loop.exits[0].when == "not b"


def test_where_a_name_comes_from() -> None:
    (loop,) = loops_of("def wait():\n    while True:\n        x = q.poll()  #\n        if x: break")
    assert loop.exits[0].where == (("x", "q.poll()"),)
    assert loop.exits[0].names == ("q", "x")


def test_lines_that_pause() -> None:
    (loop,) = loops_of(
        "def wait():\n    while a:\n        work()  #\n        time.sleep(\n            1)"
    )
    assert (loop.kind, loop.pause_lines) == ("works", frozenset({4, 5}))


@pytest.mark.parametrize(
    ("test", "opposite"),
    [
        ("a", "not a"),
        ("not a", "a"),
        ("a < b", "a >= b"),
        ("a is None", "a is not None"),
        ("a in b", "a not in b"),
        ("a < b < c", "not a < b < c"),
        ("not a or b == 1", "a and b != 1"),
    ],
)
def test_negated(test: str, opposite: str) -> None:
    assert ast.unparse(negated(ast.parse(test, mode="eval").body)) == ast.unparse(
        ast.parse(opposite, mode="eval").body
    )
