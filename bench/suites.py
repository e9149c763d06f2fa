# SPDX-License-Identifier: MIT
"""Do programs behave the same when they are recorded? Runs their own tests both ways: suites.py
[--suites NAMES] [--sources DIR] [--json FILE]

A test that ends otherwise in one of the runs is run again both ways, by its suite's command; it
differs if it does so again. Nothing else counts: a suite that fails by itself is no fault of ours.
DIR holds what is not installed: ``redis-*`` (unpacked sources), ``sqlite3-*`` (sources with
``testfixture`` built in them), ``go/*.test`` (``go test -c -o DIR/go/ sync sync/atomic runtime``).
CPython's tests come with libpython3.11-testsuite.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
PATIENCE = 900.0
Outcomes = dict[str, str]


@dataclass(frozen=True)
class Part:
    """One command of a suite. ``lines`` finds a test's name and outcome in what it prints."""

    name: str
    command: list[str]
    lines: str
    folder: Path | None = None
    xml: bool = False


@dataclass
class Row:
    """How a suite ended, both ways."""

    suite: str
    tests: int = 0
    passed: int = 0
    recorded: int = 0
    differ: list[str] = field(default_factory=list)


CPYTHON = (
    "test_queue test_thread test_threading test_threading_local test_signal test_subprocess "
    "test_asyncio test_concurrent_futures test_socket test_select test_selectors test_mmap "
    "test_faulthandler test_gc test_fork1 test_posix test_os test_ctypes test_generators "
    "test_exceptions"
)
REDIS = (
    "unit/protocol unit/keyspace unit/scan unit/expire unit/multi unit/pubsub unit/info "
    "unit/scripting unit/dump unit/type/list unit/type/hash unit/type/set unit/type/zset "
    "unit/type/string unit/auth unit/quit unit/bitops"
)
SQLITE = (
    "main select1 insert trans lock wal thread001 thread002 walthread shared vacuum crash "
    "attach index where func"
)
GO_RUNTIME = (
    "^Test(Chan|Select|Lock|RWMutex|Map|Sema|Note|Proc|Stop|GC|Defer|Panic|Timer|Yield|"
    "Goroutine|Signal|Stack)"
)


def parts(suite: str, sources: Path, scratch: Path) -> Iterator[Part]:
    """A suite's commands; none where it is not installed."""
    if suite == "cpython" and Path("/usr/lib/python3.11/test/test_threading.py").exists():
        for module in CPYTHON.split():
            report = scratch / "report.xml"
            command = [
                "/usr/bin/python3.11",
                "-m",
                "test",
                "--timeout",
                "850",
                "--junit-xml",
                str(report),
                module,
            ]
            yield Part(module, command, "", xml=True)
    if suite == "go":
        for program in sorted((sources / "go").glob("*.test")):
            command = [str(program), "-test.short", "-test.v"]
            command += ["-test.run", GO_RUNTIME] if program.stem == "runtime" else []
            yield Part(
                program.stem, command, r"^\s*--- (?P<outcome>\w+): (?P<name>\S+)", folder=scratch
            )
    if suite == "redis":
        for folder in sources.glob("redis-*/tests"):
            for name in REDIS.split():
                command = [
                    "tclsh",
                    "tests/test_helper.tcl",
                    "--single",
                    name,
                    "--clients",
                    "1",
                    "--timeout",
                    "600",
                ]
                yield Part(
                    name,
                    command,
                    r"^\[(?P<outcome>ok|err|exception)\]: (?P<name>.*?)(?: \(\d+ ms\))?$",
                    folder.parent,
                )
    if suite == "sqlite":
        for program in sources.glob("sqlite3-*/testfixture"):
            for name in SQLITE.split():
                command = [str(program), str(program.parent / "test" / f"{name}.test")]
                yield Part(
                    name, command, r"^(?P<name>\S+)\.\.\. (?P<outcome>Ok|.*)$", folder=scratch
                )
    if suite == "java":
        subprocess.run(["javac", "-d", scratch, HERE / "suites" / "Suite.java"], check=True)
        yield Part(
            "Suite",
            ["java", "-cp", str(scratch), "Suite"],
            r"^(?P<name>\w+) (?P<outcome>ok|wrong|threw.*)$",
        )


def outcomes(part: Part, scratch: Path, recorded: bool) -> Outcomes:
    """What each test came to; "the command itself" is how that ended."""
    before = ["flagfinder", "record", "-o", str(scratch / "trace"), "-q", "--"] if recorded else []
    report = scratch / "report.xml"
    report.unlink(missing_ok=True)
    process = subprocess.Popen(
        [*before, *part.command],
        cwd=part.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        printed = process.communicate(timeout=PATIENCE)[0].decode(errors="replace")
        found = {"the command itself": str(process.returncode)}
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        printed = process.communicate()[0].decode(errors="replace")
        found = {"the command itself": "endless"}
    printed = re.sub(r"\x1b\[[0-9;]*m", "", printed)
    if part.xml and report.exists():
        for case in ET.parse(report).getroot().iter("testcase"):
            bad = case.find("error") is not None or case.find("failure") is not None
            found[f"{case.get('classname')}.{case.get('name')}"] = "bad" if bad else "ok"
    for match in re.finditer(part.lines, printed, re.MULTILINE) if part.lines else ():
        found[match["name"]] = match["outcome"]
    return found


def differing(plain: Outcomes, recorded: Outcomes) -> set[str]:
    """Tests that ended otherwise, or were not reached."""
    return {
        name for name in plain.keys() | recorded.keys() if plain.get(name) != recorded.get(name)
    }


def main() -> None:
    """Prints a row for each suite, and which tests differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suites", default="cpython,go,redis,sqlite,java")
    parser.add_argument("--parts", help="only those")
    parser.add_argument("--sources", type=Path, default=Path())
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    for suite in options.suites.split(","):
        row = Row(suite)
        with tempfile.TemporaryDirectory(prefix="flagfinder-suites-") as name:
            scratch = Path(name)
            for part in parts(suite, options.sources.resolve(), scratch):
                if options.parts is None or part.name in options.parts.split(","):
                    compare(part, scratch, row)
        rows.append(vars(row) | {"differ": len(row.differ), "which": row.differ})
        print({name: value for name, value in rows[-1].items() if name != "which"}, flush=True)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1) + "\n")


GOOD = ("ok", "Ok", "PASS", "0")


def compare(part: Part, scratch: Path, row: Row) -> None:
    """Runs one command both ways; again if anything differs."""
    began = time.monotonic()
    plain = outcomes(part, scratch, recorded=False)
    between = time.monotonic()
    recorded = outcomes(part, scratch, recorded=True)
    seconds = (between - began, time.monotonic() - between)
    different = differing(plain, recorded)
    if different:
        plain_again, recorded_again = (
            outcomes(part, scratch, recorded=way) for way in (False, True)
        )
        # Of those that are not the same twice without us nothing can be said.
        different &= differing(plain, recorded_again) - differing(plain, plain_again)
    row.tests += len(plain)
    row.passed += sum(outcome in GOOD for outcome in plain.values())
    row.recorded += sum(recorded.get(name) in GOOD for name in plain)
    row.differ += [
        f"{part.name}: {name}: {plain.get(name)}, recorded {recorded.get(name)}"
        for name in sorted(different)
    ]
    print(
        f"{row.suite} {part.name}: {len(plain)} tests, {len(different)} differ, {seconds[0]:.0f} "
        f"s, {seconds[1]:.0f} s"
    )
    for line in row.differ[-len(different) :] if different else ():
        print(f"  {line}", flush=True)


if __name__ == "__main__":
    main()
