# SPDX-License-Identifier: MIT
"""What strangers write: each refusal names the cause and the cure.

Words in braces stand for what the fixture has. Those without rights, with damaged files or a full
disk are in other files of tests.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import started

from flagfinder.cli.command import main

HELP = "--help` shows the options and examples"
PS = "`ps -e` lists"
NO_TRACE = "This is not a trace that can be read"
RECORD = "Give a file that `flagfinder record` wrote."
NO_EVENTS = "Give a file that `flagfinder events record` wrote."
NO_GRAPH = "Give a file that `flagfinder graph build` wrote."
GCORE = "`gcore PID` or `coredumpctl dump` make one"
FLAG = "Name a file that `flagfinder diff`, `spin` or `discover` printed with --json"
# The command line, its exit code, what is found, and how to go on.
MISUSES = [
    ("why 4194305", 69, "There is no process 4194305", PS),
    ("why 1.5", 2, "'1.5' is no process id", PS),
    ("why 0x10", 2, "'0x10' is no process id", PS),
    ("why sleeep", 2, "'sleeep' is no process id", "`flagfinder why -n sleeep`"),
    ("why -n no-such-program-here", 2, "No process is called no-such-program-here", PS),
    (
        "why {pid} {parent}",
        2,
        "two process ids: {pid} and {parent}",
        "`flagfinder why {pid}` goes on",
    ),
    ("why {pid} --core text", 2, "1 word and --core", "flagfinder why --core FILE"),
    ("why --all {pid}", 2, "1 word and --all", "flagfinder why -n NAME"),
    ("why --core", 2, "--core: expected one argument", HELP),
    ("why --core folder", 65, "no regular file", "Check the path"),
    ("why --core fifo", 65, "no regular file", "Check the path"),
    ("why --core /dev/null", 65, "no regular file", "Check the path"),
    ("why --core missing", 65, "No such file", "Check the path"),
    ("why --core empty", 65, "empty is no core file", GCORE),
    ("why --core text", 65, "text is no core file", GCORE),
    ("why --core /bin/true", 65, "another kind of ELF file", GCORE),
    ("why --core {pid}", 2, "there is no file {pid}", "`flagfinder why {pid}` asks a live process"),
    ("core {pid}", 2, "there is no file {pid}", "`gcore {pid}` writes its core"),
    ("core text --sysroot missing", 2, "missing is no folder", "Name the folder"),
    ("why {pid} --sysroot folder", 2, "--sysroot would have no effect", "Leave it out"),
    ("why {pid} --thread {parent}", 69, "has no thread {parent}", "`ls /proc/{pid}/task`"),
    ("spin {pid} --thread {parent}", 69, "has no thread {parent}", "`ls /proc/{pid}/task`"),
    ("why {pid} --html missing/x.html", 2, "missing is no folder to write to", "Name a file"),
    ("why {pid} --html folder", 2, "folder is a folder", "Name a file"),
    ("why {pid} --json-file missing/x", 2, "No such file", "Check the path"),
    ("why {pid} --json --json-file x", 2, "not allowed with argument --json", HELP),
    ("why {pid} --for 3", 2, "it goes with --all only", "Leave it out"),
    ("why {pid} --locals", 2, "it goes with --stacks", "Leave it out"),
    ("why {pid} --budget 0", 2, "no number of seconds", HELP),
    ("why {pid} --reads", 2, "unknown: --reads", "--reads is an option of `watch`"),
    ("spin {pid} --html x", 2, "unknown: --html x", "--html is an option of `why`"),
    ("spin {pid} --bugdet 1", 2, "unknown: --bugdet", "Did you mean --budget?"),
    ("spin {pid} {parent}", 2, "unknown: {parent}", HELP),
    ("spin", 2, "arguments are required: PID", HELP),
    ("spin sleep", 2, "'sleep' is no process id", "`flagfinder why -n sleep` finds it by name"),
    ("poke {pid} --address 0x10", 2, "--address goes with --size", "Give both, or --flag"),
    ("poke {pid} --address zz --size 4", 2, "'zz' is no address", HELP),
    ("poke {pid} --address 0x1000 --size 3", 2, "invalid choice: 3", HELP),
    ("poke {pid} --flag missing#1", 2, "No such file", FLAG),
    ("poke {pid} --flag text#1", 2, "--flag text#1 can't be read", FLAG),
    ("watch {pid}", 2, "no variable, address, expression, flag or site", "`flagfinder spin PID`"),
    ("watch {pid} sleep", 2, "There is an image but no variable", "watch PID IMAGE SYMBOL"),
    ("watch {pid} --address 0x10", 2, "--size is missing", "Add --size"),
    ("watch {pid} --site sleep", 2, "'sleep' is no site", HELP),
    ("record -- true", 2, "-o is missing", "flagfinder record -o FILE -- PROGRAM"),
    ("record -o x", 2, "nothing follows `--`", "flagfinder record -o FILE -- PROGRAM"),
    ("record -o missing/x -- true", 2, "no directory missing", "mkdir -p missing"),
    ("record -o folder -- true", 2, "folder is a directory", "-o folder/spin.trace"),
    ("record -o x -- ./missing", 2, "there is no ./missing", "Check the path"),
    ("record -o x -- ./folder", 2, "./folder is a directory", "Name the program inside"),
    ("record -o x -- ./text", 77, "not executable", "chmod +x ./text"),
    ("record -o x --tracer gdb -- true", 2, "invalid choice: 'gdb'", HELP),
    ("diff", 2, "required: NORMAL, SPIN", HELP),
    ("diff text missing", 2, "The trace missing can't be read", "Check the path"),
    ("diff text /bin/true", 65, NO_TRACE, RECORD),
    ("diff empty empty", 65, "an empty file", "flagfinder record"),
    ("trace nosuch text", 2, "invalid choice: 'nosuch'", HELP),
    ("trace import text -o x", 2, "required: --image", HELP),
    ("find --normal true", 2, "--spin --pid is required", HELP),
    ("guard --after 1 sleep 100", 2, "unknown: sleep 100", "flagfinder guard .. -- sleep 100"),
    ("guard --after 1 --junit missing/x -- true", 2, "No such file", "Check the path"),
    ("guard --after 1 -- 'sleep 1'", 127, "No such file", "sh -c '..' runs one"),
    ("events record -- true", 2, "-o is missing", "events record -o FILE -- PROGRAM"),
    ("events record -o x true", 2, "unknown: true", "flagfinder events record .. -- true"),
    ("events record -o x", 2, "no program, no --pid, no --all", "`-- PROGRAM`"),
    ("events info text", 65, "not an event file", NO_EVENTS),
    ("events import text -o x", 65, "neither perf.data nor a Perfetto trace", "perf record -a"),
    ("graph build empty -o x", 65, "an empty file", "flagfinder events record"),
    ("graph bottleneck text", 65, "not a graph", NO_GRAPH),
    ("diagnose missing", 2, "The graph missing can't be read", "Check the path"),
    ("report text -o x", 65, "not a graph", NO_GRAPH),
    ("critical-path text", 2, "required: --thread", HELP),
    ("compare text text", 65, "not an event file", NO_EVENTS),
    ("hosts ingest text --host a -o x", 65, "not an event file", NO_EVENTS),
    ("overhead", 2, "no program", "flagfinder overhead -- PROGRAM"),
    ("doctor --pid 4194305", 2, "no process 4194305", PS),
    ("whi 1", 2, "'whi' is no verb", "Did you mean `flagfinder why`?"),
    ("{pid}", 2, "'{pid}' is no verb", "Did you mean `flagfinder why {pid}`?"),
    ("help whi", 2, "'whi' is no verb", "Did you mean `flagfinder why`?"),
]


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    """A process, its parent, and a folder with files of the wrong kind."""
    folder = tmp_path_factory.mktemp("misuses")
    (folder / "text").write_text("no such thing\n" * 50)
    (folder / "empty").write_bytes(b"")
    (folder / "folder").mkdir()
    os.mkfifo(folder / "fifo")
    with started(["sleep", "1000"], stdin=subprocess.DEVNULL) as process:
        yield {"pid": process.pid, "parent": os.getpid(), "in": folder}


@pytest.mark.parametrize(
    ("line", "status", "found", "fix"), MISUSES, ids=[row[0] for row in MISUSES]
)
def test_what_is_wrong_and_what_to_do_is_told(
    line: str,
    status: int,
    found: str,
    fix: str,
    words: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(Path(str(words["in"])))
    before = sorted(Path.cwd().iterdir())
    given, found, fix = (text.format_map(words) for text in (line, found, fix))
    assert main(shlex.split(given)) == status
    _, said = capfd.readouterr()
    cause, _, cure = said.partition("\n  fix: ")
    assert found in cause, said
    assert fix in cure, said
    assert "\n  still works: " in cure
    assert sorted(Path.cwd().iterdir()) == before, "nothing is left behind"
