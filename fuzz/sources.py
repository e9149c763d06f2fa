#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Feeds changed sources of Python programs and shell scripts to what tells their loops.

    fuzz/sources.py [--inputs N] [--seconds N] [--seed N] [--failures FOLDER] [FILE...]

The same seed gives the same inputs. An input that raises an exception, takes too long or needs too
much memory is left in the folder of failures, and fails; a FILE is fed once more. Changes are made
to the parts of a text that mean something: of changed bytes nearly all are no Python any more.
"""

from __future__ import annotations

import argparse
import ast
import faulthandler
import os
import random
import re
import resource
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # each takes address space

from flagfinder.interpreters.asyncio_owed import loop_wait  # noqa: E402
from flagfinder.interpreters.asyncio_tasks import Task  # noqa: E402
from flagfinder.interpreters.py_spy import SeenFrame, SeenStack  # noqa: E402
from flagfinder.interpreters.python import PythonFrame, _codes  # noqa: E402
from flagfinder.interpreters.python_blocked import awaited  # noqa: E402
from flagfinder.interpreters.python_owed import asked_of, asks_between  # noqa: E402
from flagfinder.interpreters.python_sources import Sources, script_of  # noqa: E402
from flagfinder.interpreters.shell import operand, parsed, polling  # noqa: E402

MEMORY = 1 << 30  # bytes of address space
LONGEST = 25  # seconds for one input
LARGEST = 64 << 10  # bytes of an input
LOOKS = 6
LOOPS = 8  # of one source that threads are in
FILE = "/app.py"

PYTHON_SEEDS = (
    """\
import threading
ready = False
class Job:
    def wait(self, event, lock, jobs, *rest, **more):
        limit = time.monotonic() + 5
        while not self.done and time.monotonic() < limit:
            time.sleep(0.01)
        while True:
            if event.is_set() or self.state['phase'] != 3:
                break
            elif jobs and (first := jobs[0]) is not None:
                return first
            else:
                n += 1
        with lock:
            try:
                item = jobs.get(timeout=0x10)
            except (OSError, queue.Empty) as error:
                raise RuntimeError from error
            finally:
                lock.release()
    def finish(self):
        global ready
        self.done, ready = True, not ready
        self.state['phase'] = 3
        self.event.set()
def wait_until(asked, pause=lambda: time.sleep(1)):
    while not asked():
        pause()
    else:
        return 7
wait_until(lambda: ready and job.done)
for line in iter(lambda: job.poll(), None):
    match line:
        case {'a': [1, *rest], **more} if rest:
            break
        case Job(done=True) | None:
            continue
""",
    """\
import asyncio
async def main(queue, stop):
    tasks = [asyncio.create_task(work(n)) for n in range(3) if n % 2]
    async with asyncio.timeout(5) as limit, stop:
        async for item in queue:
            await asyncio.sleep(0)
            yield item
    while (await queue.get()) != f'{stop!r:>{10}} {1 + 2}':
        try:
            await asyncio.wait_for(stop.wait(), 1)
        except* ValueError:
            del tasks[0]
        assert stop, 'x'
    return [*tasks, {**limit}, {a: b for a, b in stop}, -1 ** ~2, 1 if stop else 2, b'\\x00']
""",
)
SHELL_SEEDS = (
    """\
#!/bin/bash
f() { until [ -s a ]; do
 sleep $N; done; }
while ! test -f ready && [[ $x == "${y[@]}" ]]; do sleep 1; done
for i in 1 2 3; do if pgrep -x x; then break; elif a; then exit 1; else :; fi; sleep 1; done
while :; do nc -z h 1 || exit 1; curl -sf "$URL" > /dev/null 2>&1 && break; sleep 0.5; done
for ((i = 0; i < 10; i++)); do case $i in a|b) continue;; *) return;; esac; sleep 1; done
until pg_isready -h db <<EOF | cat; do sleep 2 & wait; done
$(echo `date`)
EOF
while read -r line; do (sleep 1; break); done < <(ls)
""",
)
CHILDREN = ([b"sleep", b"1"], [b"/usr/bin/pg_isready", b"-h", b"db"], [b""], [b"pgrep\xff", b"x"])

_PARTS = re.compile(r"\w+|[ \t]+|\n|[^\w\s]|\s")
_REPLACEMENTS = (
    *("while", "for", "if", "elif", "else", "try", "with", "async", "await", "lambda", "not", "in"),
    *("is", "and", "or", "yield", "return", "raise", "break", "continue", "def", "class", "match"),
    *("(", ")", "[", "]", "{", "}", ":", ";", ",", ".", "=", "==", ":=", "*", "**", "-", "~", "@"),
    *("None", "True", "0", "1", "1e999", "1j", "...", "''", '"""', "b'\\xff'", "'\\ud800'", "self"),
    *("sleep", "is_set", "set", "get", "put", "time", "event", "done", "\\\n", "#", "\0", "\f"),
    *("do", "until", "fi", "case", "esac", "function", "$((", "${", "`", "<<EOF", "&&", "|", "$"),
    *("f'{'", "f'{x!r:{y}}'", "0x" + "f" * 5000, "0b" + "1" * 9000, "1_0", "é", "🏳", "\ufeff"),
)


_ENTERED = (ast.While, ast.For, ast.AsyncFor, ast.With, ast.AsyncWith)


class _Given(Sources):
    """One source, whichever is asked for."""

    def __init__(self, content: bytes) -> None:
        super().__init__(lambda _: (content, 0.0), lambda: b"", 0.0)
        self._given = content

    def _parse(self, file: str) -> ast.Module | str:
        return self._parse_content(file, self._given)


def feed_python(content: bytes) -> None:
    """Threads are in the loops of the source and at other places of it."""
    sources = _Given(content)
    script_of(content.split(b"\n"))
    tree = sources.tree(FILE)
    if tree is None:
        return
    places = list(_places(tree))
    stacks = {tid: _stack(place) for tid, place in enumerate(places, 1)}
    codes = _codes([stacks] * LOOKS, sources, stacks.keys())
    asked_of(codes, sources)
    tasks = []
    for tid, code in codes.items():
        if code.loop is not None:
            asks_between(tid, code.loop)
        for frame in code.frames:
            awaited(frame, sources)
        library = PythonFrame("wait", "/usr/lib/python3.11/asyncio/locks.py", 1)
        tasks.append(Task(tid, 7, f"Task-{tid}", (library, *code.frames), 0, "Future"))
    loop_wait(1, tasks, sources, ["SIGTERM"])
    sources.lines(FILE, 1, 1 << 20)


def _places(tree: ast.Module) -> Iterator[tuple[str, Sequence[int]]]:
    """Functions, and the lines at which threads are seen in them."""
    found = 0
    left: list[tuple[ast.AST, str]] = [(tree, "<module>")]
    while left and found < LOOPS:
        node, function = left.pop(0)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            function = node.name
        if isinstance(node, ast.Lambda):
            function = "<lambda>"
        if isinstance(node, _ENTERED) or (isinstance(node, (ast.Call, ast.Lambda)) and found % 2):
            found += 1
            yield function, sorted({node.lineno, node.end_lineno or 0})
        left += [(child, function) for child in ast.iter_child_nodes(node)]


def _stack(place: tuple[str, Sequence[int]]) -> SeenStack:
    function, lines = place
    local = {"self": ("<Job>", 1), "n": ("7", 2)}
    outer = SeenFrame("<module>", FILE, lines[0], local)
    return SeenStack((outer, SeenFrame(function, FILE, lines[-1], local)), False)


def feed_shell(content: bytes) -> None:
    """A script, and commands that may be its children."""
    operand(content.split())
    root = parsed(content)
    if root is not None:
        for child in CHILDREN:
            polling(root, child)


def _changed(seeds: Sequence[str], rng: random.Random) -> bytes:
    parts = _PARTS.findall(rng.choice(seeds))
    for _ in range(1 << rng.randrange(6)):
        _change(parts, seeds, rng)
    text = "".join(parts).encode(errors="surrogatepass")
    if rng.randrange(8) == 0 and text:
        at = rng.randrange(len(text))
        text = text[:at] + rng.randbytes(rng.randrange(4)) + text[at + 1 :]
    return text[:LARGEST]


def _change(parts: list[str], seeds: Sequence[str], rng: random.Random) -> None:
    at = rng.randrange(len(parts) + 1)
    end = min(len(parts), at + 1 + rng.randrange(12))
    match rng.randrange(8):
        case 0:
            del parts[at:end]
        case 1:
            parts[at:at] = parts[at:end]
        case 2:
            parts[at : at + 1] = [rng.choice(_REPLACEMENTS)]
        case 3:
            parts.insert(at, rng.choice(_REPLACEMENTS))
        case 4:
            other = _PARTS.findall(rng.choice(seeds))
            start = rng.randrange(len(other))
            parts[at:end] = other[start : start + rng.randrange(40)]
        case 5:
            parts[at:end] = rng.sample(parts[at:end], end - at)
        case 6 if at < len(parts) and rng.randrange(4) == 0:
            _nest(parts, at, rng)
        case _:
            words = [number for number, part in enumerate(parts) if part.isidentifier()]
            if len(words) > 1:
                one, other_one = rng.sample(words, 2)
                parts[one] = parts[other_one]


def _nest(parts: list[str], at: int, rng: random.Random) -> None:
    """Something stands within itself, often."""
    times = 1 << rng.randrange(13)
    before, behind = rng.choice(
        [
            ("(", ")"),
            ("not ", ""),
            ("-", ""),
            ("", ".next"),
            ("", "[0]"),
            ("", "()"),
            ("a + ", ""),
            ("a if b else ", ""),
            ("lambda: ", ""),
            ("[", "]"),
            ("f(", ")"),
            ("$(", ")"),
            ("{ ", "; }"),
            ("! ", ""),
            ("x = ", ""),
        ]
    )
    parts[at] = before * times + parts[at] + behind * times


def _deep(rng: random.Random) -> str:
    """Statements within statements."""
    times = rng.randrange(1, 95)
    head = rng.choice(["while a.b", "if a.b", "with a.b", "try", "def f()", "for a in b"])
    lines = [" " * depth + f"{head}:" for depth in range(times)]
    lines.append(" " * times + "sleep(1)")
    if rng.randrange(2):
        ways = "".join(f"    elif a.b == {n}: break\n" for n in range(1 << rng.randrange(13)))
        lines = [f"while True:\n    if a: pass\n{ways}    sleep(1)"]
    if head == "try":
        lines += [" " * depth + "finally: pass" for depth in reversed(range(times))]
    return "\n".join(lines) + "\n"


def inputs(seed: int) -> Iterator[tuple[str, bytes]]:
    """Ever more of them: `py` or `sh`, and the text. The seeds come first."""
    for text in PYTHON_SEEDS:
        yield "py", text.encode()
    for text in SHELL_SEEDS:
        yield "sh", text.encode()
    rng = random.Random(seed)
    while True:
        if rng.randrange(4) == 0:
            yield "sh", _changed(SHELL_SEEDS, rng)
        elif rng.randrange(16) == 0:
            yield "py", _deep(rng).encode()[:LARGEST]
        else:
            yield "py", _changed(PYTHON_SEEDS, rng)


def _feed(kind: str, content: bytes) -> None:
    faulthandler.dump_traceback_later(LONGEST, exit=True)
    if kind == "sh":
        feed_shell(content)
    else:
        feed_python(content)
    faulthandler.cancel_dump_traceback_later()


def _warned(message: object, *_: object, **__: object) -> None:
    raise AssertionError(f"a warning on the terminal: {message}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Feeds changed sources to what tells their loops.")
    parser.add_argument("--inputs", type=int, default=1 << 62)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--failures", type=Path, default=ROOT / "fuzz/artifacts/sources")
    parser.add_argument("files", nargs="*", type=Path)
    asked = parser.parse_args()
    warnings.showwarning = _warned
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for file in asked.files:
        _feed(file.suffix.lstrip("."), file.read_bytes())
    if asked.files:
        return 0
    asked.failures.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + asked.seconds
    count = 0
    for kind, content in inputs(asked.seed):
        if count >= asked.inputs or time.monotonic() > end:
            break
        count += 1
        last = asked.failures / f"last.{kind}"
        # An input that ends this process is there afterwards.
        last.write_bytes(content)
        try:
            _feed(kind, content)
        except BaseException:
            print(f"sources: FAILED by input {count}, see {last}", file=sys.stderr)
            raise
        last.unlink()
    print(f"sources: {count} inputs, no failure")
    return 0


if __name__ == "__main__":
    sys.exit(main())
