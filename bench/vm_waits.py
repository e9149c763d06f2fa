# SPDX-License-Identifier: MIT
"""How often does `spin` name what a program in a virtual machine polls: vm_waits.py [--help].

The programs are in `vm/`. A word is right if it changes when the program's other side writes a
value with which the wait goes on, and does not change before that; or if it has the variable's
name in the source. A call is right if the program makes it to learn what it waits for. Prints a
line for each wait, or with --json the rows for results/. Asserts nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import kill_session, machine

HERE = Path(__file__).resolve().parent / "vm"
STAT = (
    "newfstatat",
    "stat",
    "statx",
    "access",
    "faccessat2",
    "faccessat",
    "lstat",
    "open",
    "openat",
)
CHILD = ("wait4", "waitid")


@dataclass(frozen=True)
class Wait:
    """One program that waits. ``calls``: those that ask for what it waits for; none for a word.
    ``wakes``: how its other side is told to write.
    """

    runtime: str
    how: str
    command: tuple[str, ...]
    calls: tuple[str, ...] = ()
    wakes: str = "line"


def waits(scratch: Path) -> Iterator[Wait]:
    """All waits of the runtimes that are installed."""
    calls = {"file": STAT, "file-sleep": STAT, "file-after": STAT, "access": STAT, "child": CHILD}
    calls["socket"] = ("read", "recvfrom", "recvmsg")
    mapped = scratch / "words"

    def each(
        runtime: str, command: Sequence[str], hows: str, wakes: str = "line"
    ) -> Iterator[Wait]:
        if shutil.which(command[0]):
            for how in hows.split():
                last = [str(mapped)] if wakes == "file" else []
                asked = calls.get(how, ())
                yield Wait(runtime, how, (*command, how, *last), asked, wakes)

    java = "nothing field spin yield sleep park atomic array map file file-sleep"
    yield from each("java", ["java", "-cp", str(scratch), "Waits"], java)
    interpreted = "nothing yield sleep park array map file"
    yield from each("java -Xint", ["java", "-Xint", "-cp", str(scratch), "Waits"], interpreted)
    node = "nothing plain short exchange immediate table timer file"
    for runtime, options in (("node", []), ("node --jitless", ["--jitless"])):
        for how in node.split():
            wakes = "usr1" if how in ("immediate", "table", "timer") else "line"
            yield from each(runtime, ["node", *options, str(HERE / "waits.js")], how, wakes)
    perl = ["perl", str(HERE / "waits.pl")]
    yield from each("perl", perl, "nothing yield sleep table cells file child socket")
    yield from each("perl", perl, "plain", "usr1")
    ruby = "global attribute table cells pass file child socket"
    yield from each("ruby", ["ruby", str(HERE / "waits.rb")], ruby)
    yield from each(
        "lua", ["lua5.3", str(HERE / "waits.lua")], "field cells global file access child", "usr1"
    )
    yield from each(
        "luajit", ["luajit", str(HERE / "waits_jit.lua")], "nothing yield sleep file", "file"
    )
    interpreted_lua = ["luajit", "-joff", str(HERE / "waits_jit.lua")]
    yield from each("luajit -joff", interpreted_lua, "nothing yield sleep", "file")
    yield from each(
        "php", ["php", str(HERE / "waits.php")], "global field static table file child", "usr1"
    )
    yield from each("guile", ["guile", str(HERE / "waits.scm")], "global cells box table file")
    erlang = [
        "erl",
        "-noshell",
        "-pa",
        str(scratch),
        "-eval",
        "waits:main(init:get_plain_arguments())",
        "-extra",
    ]
    yield from each("erlang", erlang, "atomics yield table file")
    ocaml = "ref cells sleep table file child"
    yield from each("ocaml", [str(scratch / "waits_native")], ocaml)
    yield from each("ocaml bytecode", [str(scratch / "waits_byte")], ocaml)
    yield from each("ghc", [str(scratch / "waits_ghc")], "yield delay box file")
    yield from each("tcl", ["tclsh", str(HERE / "waits.tcl")], "shared after file file-after")
    yield from each("r", ["Rscript", str(HERE / "waits.R")], "file file-sleep")
    python = "global attribute class table cells file"
    yield from each("python", [sys.executable, str(HERE / "waits.py")], python)


def build(scratch: Path) -> None:
    """Compiles what has to be compiled and whose compiler is there."""
    threads = ["-I", "+unix", "-I", "+threads"]
    commands = [
        ["javac", "-d", str(scratch), "Waits.java"],
        ["erlc", "waits.erl"],
        ["ghc", "-v0", "-threaded", "-O1", "Waits.hs", "-o", "waits_ghc"],
        ["ocamlopt", *threads, "unix.cmxa", "threads.cmxa", "waits.ml", "-o", "waits_native"],
        ["ocamlc", *threads, "unix.cma", "threads.cma", "waits.ml", "-o", "waits_byte"],
    ]
    shutil.copytree(HERE, scratch, dirs_exist_ok=True)
    for command in commands:
        if shutil.which(command[0]):
            subprocess.run(command, cwd=scratch, check=True, stderr=subprocess.DEVNULL)


@contextlib.contextmanager
def started(wait: Wait, scratch: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The program, some time after it began to wait."""
    (scratch / "words").write_bytes(bytes(4096))
    with (scratch / "errors").open("wb") as errors:
        process = subprocess.Popen(
            wait.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
    try:
        time.sleep(3)
        if process.poll() is not None:
            raise SystemExit(f"{wait.command} ended: {(scratch / 'errors').read_text()}")
        yield process
    finally:
        kill_session(process.pid)
        process.wait()


def let_write(wait: Wait, process: subprocess.Popen[bytes], scratch: Path) -> None:
    """Has the program's other side write 3."""
    if wait.wakes == "usr1":
        process.send_signal(signal.SIGUSR1)
    elif wait.wakes == "file":
        with (scratch / "words").open("r+b") as words:
            words.seek(20)
            words.write(b"\3")
    elif process.stdin:
        process.stdin.write(b"\n")
        process.stdin.flush()


def read(pid: int, address: int, size: int) -> bytes:
    file = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    try:
        return os.pread(file, size, address)
    except OSError:
        return b""
    finally:
        os.close(file)


def is_polled(
    wait: Wait, process: subprocess.Popen[bytes], flag: dict[str, Any], scratch: Path
) -> bool:
    """Does the named word change when, and only when, the other side writes?"""
    address = int(flag["address"]["spin"], 16)
    size = flag["size"] or 8
    seen = set()
    for _ in range(20):
        seen.add(read(process.pid, address, size))
        time.sleep(0.02)
    let_write(wait, process, scratch)
    time.sleep(0.5)
    after = {read(process.pid, address, size) for _ in range(20)}
    return len(seen) == 1 and not seen & after and b"" not in after


def judge(
    wait: Wait, process: subprocess.Popen[bytes], report: dict[str, Any], scratch: Path
) -> tuple[str, str, float]:
    """What the answer is worth, the answer, and how sure it is."""
    threads = report.get("threads", [])
    for thread in threads[:1]:
        loop = (thread.get("python") or {}).get("loop") or {}
        if loop.get("confidence"):
            whens = " ".join(exit_["when"] for exit_ in loop["exits"])
            named = "exists" if wait.how == "file" else {"cells": "cells[5]"}.get(wait.how, "")
            named = named or {
                "global": "state",
                "attribute": "box.state",
                "class": "Box.shared",
            }.get(wait.how, "ready")
            return ("right" if named in whens else "wrong", whens, loop["confidence"])
        for flag in thread["flags"][:1]:
            name, sure = flag["name"], flag["confidence"]
            if flag["kind"] == "syscall":
                asked = name.split("(")[0].split()[0]
                return ("right" if asked in wait.calls else "wrong", name, sure)
            right = not wait.calls and is_polled(wait, process, flag, scratch)
            return ("right" if right else "wrong", name, sure)
    reasons = [
        thread["reason"] for thread in threads if thread["class"] != "blocked" and thread["reason"]
    ]
    return "nothing", (reasons or ["no thread was looked at"])[0], 0.0


def look(command: str, wait: Wait, scratch: Path, kept: Path | None) -> dict[str, object]:
    """One row: a wait, and what `spin` says of it."""
    with started(wait, scratch) as process:
        began = time.monotonic()
        found = subprocess.run(
            [command, "spin", str(process.pid), "--json", "--explain"],
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.monotonic() - began
        report = json.loads(found.stdout) if found.stdout.startswith("{") else {}
        if kept:
            (kept / f"{wait.runtime} {wait.how}.json").write_text(found.stdout + found.stderr)
        worth, answer, sure = judge(wait, process, report, scratch)
    return {
        "runtime": wait.runtime,
        "how": wait.how,
        "worth": worth,
        "answer": answer[:150],
        "confidence": round(sure, 2),
        "seconds": round(seconds, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flagfinder", default="flagfinder", help="the command to ask")
    parser.add_argument("--only", default="", help="runtimes, by comma; all")
    parser.add_argument("--how", default="", help="ways to wait, by comma; all")
    parser.add_argument("--keep", type=Path, help="a folder for the whole answers")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    arguments = parser.parse_args()
    if arguments.keep:
        arguments.keep.mkdir(parents=True, exist_ok=True)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        build(scratch)
        for wait in waits(scratch):
            if arguments.only and wait.runtime.split()[0] not in arguments.only.split(","):
                continue
            if arguments.how and wait.how not in arguments.how.split(","):
                continue
            row = look(arguments.flagfinder, wait, scratch, arguments.keep)
            rows.append(row)
            print(*row.values(), sep="\t", file=sys.stderr, flush=True)
    count = {
        worth: sum(row["worth"] == worth for row in rows) for worth in ("right", "wrong", "nothing")
    }
    if arguments.json:
        print(json.dumps({"machine": machine(), "count": count, "rows": rows}, indent=1))
    else:
        print(
            *(f"{number} {worth}" for worth, number in count.items()), f"of {len(rows)}", sep=", "
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
