# SPDX-License-Identifier: MIT
"""Do programs behave the same when they are recorded? Runs their own tests both ways: suites.py
[--suites NAMES] [--sources DIR] [--json FILE]

A test that ends otherwise in one of the runs is run again both ways, by its suite's command; it
differs if it does so again. Nothing else counts: a suite that fails by itself is no fault of ours.
DIR holds what is not installed: ``redis-*`` (unpacked sources), ``sqlite3-*`` (sources with
``testfixture`` built in them), ``go/*.test`` (``go test -c -o DIR/go/ sync sync/atomic runtime``),
``java/*.jar`` (JUnit's console and commons-lang3 with its tests).
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
from fnmatch import fnmatch
from pathlib import Path

HERE = Path(__file__).resolve().parent
TESTS = Path("/usr/lib/python3.11/test")
Outcomes = dict[str, str]
ITSELF = "the command itself"
GOOD = ("ok", "Ok", "PASS", "0")


@dataclass(frozen=True)
class Part:
    """One command of a suite. ``lines`` finds a test's name and outcome in what it prints.
    Reports in XML that it leaves count too.
    """

    name: str
    command: list[str]
    lines: str = ""
    folder: Path | None = None


@dataclass
class Row:
    """How a suite ended, both ways."""

    suite: str
    tests: int = 0
    passed: int = 0
    recorded: int = 0
    differ: list[str] = field(default_factory=list)


# Modules that a command of its own runs, as they start threads and processes, take seconds,
# or (test_xml_etree) change the module that writes the report.
# Behind a colon: a pattern of the tests' names, where all of a module's take too long recorded.
ALONE = (
    "test_queue test_thread test_threading test_threading_local test_signal "
    "test_subprocess:*.ProcessTestCase.test_[a-d]* test_subprocess:*.ProcessTestCase.test_[e-o]* "
    "test_subprocess:*.ProcessTestCase.test_[p-r]* test_subprocess:*.ProcessTestCase.test_[s-z]* "
    "test_subprocess:*.POSIXProcessTestCase.test_[a-c]* "
    "test_subprocess:*.POSIXProcessTestCase.test_[d-p]* "
    "test_subprocess:*.POSIXProcessTestCase.test_r* "
    "test_subprocess:*.POSIXProcessTestCase.test_s* "
    "test_subprocess:*.POSIXProcessTestCase.test_[t-z]* test_subprocess:RunFuncTestCase "
    "test_subprocess:CommandsWithSpaces test_subprocess:ContextManagerTests "
    "test_concurrent_futures test_socket test_select test_selectors test_mmap test_faulthandler "
    "test_gc test_fork1 test_posix test_os test_ctypes test_generators test_exceptions test_poll "
    "test_epoll test_sched test_weakref test_io test_pty test_wait3 test_wait4 test_threadsignals "
    "test_socketserver test_asyncore test_multiprocessing_fork test_multiprocessing_spawn "
    "test_eintr test_threadedtempfile test_popen test_pipes test_fcntl test_ioctl test_openpty "
    "test_file_eintr test_fileio test_file test_bufio test_tempfile test_atexit test_timeout "
    "test_asyncgen test_coroutines test_contextlib_async test_context test_finalization "
    "test_resource test_time test_sys_settrace test_sys_setprofile test_syslog test_cmd_line "
    "test_script_helper test_multiprocessing_forkserver test_multiprocessing_main_handling "
    "test_interpreters test_tracemalloc test_zlib test_largefile test_shutil test_glob test_json "
    "test_pickle test_import test_importlib test_ssl test_runpy test_site test_zipimport test_sys "
    "test_marshal test_logging test_httpservers test_pathlib test_zipfile test_gzip test_audit "
    "test__xxsubinterpreters test_stable_abi_ctypes test_struct test_memoryview test_re test_csv "
    "test___all__ test_argparse test_ast test_buffer test_bytes test_bz2 test_c_locale_coercion "
    "test_calendar test_cmd_line_script test_codecs test_compile test_compileall test_crypt "
    "test_cprofile test_datetime test_decimal test_deque test_descr test_doctest test_email "
    "test_ftplib test_hashlib test_httplib test_imaplib test_inspect test_itertools test_lib2to3 "
    "test_long test_lzma test_mailbox test_math test_pdb test_pickletools test_poplib test_pyclbr "
    "test_pydoc test_regrtest test_set test_source_encoding test_statistics test_support "
    "test_tarfile test_tokenize test_trace test_traceback test_unicode test_unicodedata "
    "test_unittest test_unparse test_urllib test_xml_etree test_xmlrpc"
)
LEFT_OUT = {
    "need a network": (
        "test_codecmaps_* test_smtpnet test_urllib2net test_urllibnet test_xmlrpc_net test_nntplib"
    ),
    "need a display": "test_idle test_tix test_tk test_ttk_* test_turtle",
    "are for another system": (
        "test_devpoll test_kqueue test_launcher test_msilib test_ossaudiodev test_startfile "
        "test_winconsoleio test_winreg test_winsound"
    ),
    "trace a process of their own, or crash it": "test_crashers test_gdb test_dtrace",
    "build or install programs": (
        "test_check_c_globals test_cppext test_distutils test_embed test_ensurepip "
        "test_peg_generator test_tools test_venv"
    ),
}
ASYNCIO = (
    "base_events buffered_proto context events futures futures2 locks pep492 protocols queues "
    "runners selector_events sendfile server sock_lowlevel ssl sslproto streams "
    "subprocess:SubprocessTransportTests subprocess:SubprocessThreadedWatcherTests "
    "subprocess:SubprocessSafeWatcherTests subprocess:SubprocessFastWatcherTests "
    "subprocess:SubprocessMultiLoopWatcherTests subprocess:SubprocessPidfdWatcherTests "
    "subprocess:GenericWatcherTests "
    "taskgroups tasks threads timeouts transports unix_events waitfor"
)
RUNTIME = "AB C DEF G HIJK L M NO P QR S T-Z"
SQLITE = (
    "main select1 insert trans lock wal thread001 thread002 walthread shared vacuum crash "
    "attach index where func wal2 wal3 walslow busy pragma trigger1 update delete join select2 "
    "savepoint memdb tempdb thread003 thread004 thread005 notify1 notify2 shared2 mutex1 "
    "mutex2 backup journal1 collate1 cast date alter alter2 alter3 altertab altertrig "
    "e_changes e_delete e_droptrigger e_dropview e_insert e_reindex e_resolve e_totalchanges "
    "e_update e_uri e_vacuum e_wal e_walauto e_walckpt e_walhook fts3aa fts3ab fts3ad fts3d "
    "fts3near fts3prefix fts3snippet fts3sort fts3tok1 func2 func3 func4 index2 index3 index5 "
    "index7 join2 join3 join5 lock2 lock3 lock4 lock5 lock6 pragma2 pragma3 shared3 shared4 "
    "shared6 shared_err trans2 trans3 trigger2 trigger3 trigger4 trigger5 trigger9 vacuum2 "
    "vacuum3 wal5 wal7 wal8 walhook walmode walro walshared"
)
JUNIT = "org.apache.commons.lang3.concurrent org.apache.commons.lang3.event"


def parts(suite: str, sources: Path, scratch: Path) -> Iterator[Part]:
    """A suite's commands; none where it is not installed."""
    if suite == "cpython" and (TESTS / "test_threading.py").exists():
        command = ["/usr/bin/python3.11", "-m", "test", "--timeout", "850"]
        command += ["--junit-xml", str(scratch / "report.xml")]
        asyncio = [f"test.test_asyncio.test_{module}" for module in ASYNCIO.split()]
        for name in ALONE.split() + asyncio:
            module, _, pattern = name.partition(":")
            chosen = ["-m", pattern] if pattern else []
            yield Part(name, [*command, *chosen, module])
        for modules in together():
            yield Part(f"{modules[0]} to {modules[-1]}", [*command, *modules])
    if suite == "go":
        yield from go_parts(sources, scratch)
    if suite == "redis":
        for folder in sources.glob("redis-*/tests"):
            files = sorted([*folder.glob("unit/*.tcl"), *folder.glob("unit/type/*.tcl")])
            for name in (str(file.relative_to(folder).with_suffix("")) for file in files):
                command = ["tclsh", "tests/test_helper.tcl", "--single", name]
                # A time limit of its own would look like a difference: patience ends it.
                command += ["--clients", "1", "--timeout", "86400"]
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
                # Threads print dots of their own before it.
                lines = r"^\.*(?P<name>[^.\s]\S*)\.\.\. (?P<outcome>Ok|.*)$"
                yield Part(name, command, lines, folder=scratch)
    if suite == "java":
        subprocess.run(["javac", "-d", scratch, HERE / "suites" / "Suite.java"], check=True)
        yield Part(
            "Suite",
            ["java", "-cp", str(scratch), "Suite"],
            r"^(?P<name>\w+) (?P<outcome>ok|wrong|threw.*)$",
        )
    if suite == "junit":
        path = ":".join(map(str, (sources / "java").glob("*.jar")))
        command = ["java", "-cp", path, "org.junit.platform.console.ConsoleLauncher"]
        command += ["--include-classname", ".*Test", "--reports-dir", str(scratch)]
        yield from (Part(name, [*command, "--select-package", name]) for name in JUNIT.split())


def together() -> Iterator[list[str]]:
    """The other modules, sixteen to a command: most of their time is Python's start."""
    apart = [name.partition(":")[0] for name in ALONE.split()] + ["test_asyncio"]
    left_out = " ".join(LEFT_OUT.values()).split()
    there = {path.stem for path in TESTS.glob("test_*.py")}
    there |= {path.parent.name for path in TESTS.glob("test_*/__init__.py")}
    names = sorted(
        name
        for name in there - set(apart)
        if not any(fnmatch(name, pattern) for pattern in left_out)
    )
    yield from (names[at : at + 16] for at in range(0, len(names), 16))


def go_parts(sources: Path, scratch: Path) -> Iterator[Part]:
    """Each package's tests; those of runtime by their first letters."""
    for program in sorted((sources / "go").glob("*.test")):
        for letters in RUNTIME.split() if program.stem == "runtime" else ("",):
            name = f"{program.stem}:{letters}" if letters else program.stem
            # With the variable, tests that compile programs are skipped.
            command = ["env", "GO_GCFLAGS=-N", str(program), "-test.short", "-test.v"]
            # This test takes half a minute by itself.
            command += [f"-test.run=^Test[{letters}]"] if letters else []
            command += ["-test.skip=^TestMemmoveOverflow$"]
            yield Part(name, command, r"^\s*--- (?P<outcome>\w+): (?P<name>\S+)", folder=scratch)


def outcomes(part: Part, scratch: Path, patience: float, *, recorded: bool) -> Outcomes:
    """What each test came to; "the command itself" is how that ended."""
    before = ["flagfinder", "record", "-o", str(scratch / "trace"), "-q", "--"] if recorded else []
    for report in scratch.glob("*.xml"):
        report.unlink()
    process = subprocess.Popen(
        [*before, *part.command],
        cwd=part.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        printed = process.communicate(timeout=patience)[0].decode(errors="replace")
        found = {ITSELF: str(process.returncode)}
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        printed = process.communicate()[0].decode(errors="replace")
        found = {ITSELF: "endless"}
    printed = re.sub(r"\x1b\[[0-9;]*m", "", printed)
    for report in scratch.glob("*.xml"):
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
    parser.add_argument("--suites", default="cpython,go,redis,sqlite,java,junit")
    parser.add_argument("--parts", help="only those")
    parser.add_argument("--sources", type=Path, default=Path())
    parser.add_argument("--patience", type=float, default=900, help="seconds for each command")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    # A shell may have started this with SIGINT ignored, which the suites would inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rows = []
    for suite in options.suites.split(","):
        row = Row(suite)
        with tempfile.TemporaryDirectory(prefix="flagfinder-suites-") as name:
            scratch = Path(name)
            for part in parts(suite, options.sources.resolve(), scratch):
                if options.parts is None or part.name in options.parts.split(","):
                    compare(part, scratch, options.patience, row)
        rows.append(vars(row) | {"differ": len(row.differ), "which": row.differ})
        print({name: value for name, value in rows[-1].items() if name != "which"}, flush=True)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1) + "\n")


def compare(part: Part, scratch: Path, patience: float, row: Row) -> None:
    """Runs one command both ways; again if anything differs."""
    began = time.monotonic()
    plain = outcomes(part, scratch, patience, recorded=False)
    between = time.monotonic()
    recorded = outcomes(part, scratch, patience, recorded=True)
    seconds = (between - began, time.monotonic() - between)
    if "endless" in (plain[ITSELF], recorded[ITSELF]):
        # Tests that it did not reach say nothing.
        print(
            f"{row.suite} {part.name}: given up, {seconds[0]:.0f} s, {seconds[1]:.0f} s", flush=True
        )
        return
    different = differing(plain, recorded)
    if different:
        plain_again, recorded_again = (
            outcomes(part, scratch, patience, recorded=way) for way in (False, True)
        )
        # Tests that differ between two runs without flagfinder say nothing.
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
        f"s, {seconds[1]:.0f} s",
        flush=True,
    )
    for line in row.differ[-len(different) :] if different else ():
        print(f"  {line}", flush=True)


if __name__ == "__main__":
    main()
