# SPDX-License-Identifier: MIT
"""What ``diff --emit`` and ``diagnose --emit`` write: a debugger's script that stops where a run
went another way.

There it shows registers and the flag, and watches the flag. A script is the facts of one diff or
hang, then ``regular_file.py``, ``elf_places.py`` and the debugger's own part: one file that needs
nothing of flagfinder, for the machine where the program runs. The parts are read as text, never
imported here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING, Literal

from flagfinder.shared.errors import UsageError
from flagfinder.shared.visible import quote_command

if TYPE_CHECKING:  # `diff` needs nothing of the graph
    from flagfinder.diff.diff import Divergence
    from flagfinder.flags.code import Code
    from flagfinder.flags.flags import Flag, Report
    from flagfinder.graph.diagnose import Culprit
    from flagfinder.trace.trace import Trace

_SYSCALL_BYTES = 2
_LOOP_ENDS = "the loop ends when"
_FUTEX_WORD = {
    "name": "the futex",
    "size": 4,
    "exit_when": "another thread changes it and wakes this one",
    "place": None,
    "reader": None,
    "register": "rdi",
}
Debugger = Literal["gdb", "lldb"]
DEBUGGERS: tuple[Debugger, ...] = ("gdb", "lldb")
_START = {
    "gdb": "gdb -x SCRIPT --args {command}        or, of a process that spins already: gdb -p PID "
    "-x SCRIPT",
    "lldb": "lldb -o 'command script import SCRIPT' -- {command}        or lldb -p PID -o ...",
}


def script(debugger: Debugger, report: Report, spin: Trace, divergence: Divergence) -> str:
    """The script's text. Raises UsageError when the report names no place to stop at."""
    if report.divergence is None or report.flag is None:
        raise UsageError(
            "There is nothing to stop at",
            f"the verdict is {report.verdict}: {report.reason}",
            "`flagfinder diff` without --emit tells more.",
        )
    facts = _facts(report, report.flag, report.divergence.branch, spin, divergence)
    return _assembled(debugger, facts, spin.command)


def hang_script(
    debugger: Debugger, culprit: Culprit, flag: Flag | None, command: Sequence[str]
) -> str:
    """The text of a script that stops where the culprit of a hang went another way.

    A culprit that waits or polls is stopped before the system call that the same place in the
    program leads to; one that computes, where the wait before that returns. ``flag`` is what it
    polls; the word of a futex is known without it. Raises UsageError when the recording holds no
    stack of it.
    """
    computes = culprit.hang_class == "LongRunning"
    places = culprit.places_before if computes else culprit.places
    known = [place for place in places if place is not None]
    if len(known) < 2 or places[0] is None:
        raise UsageError(
            "There is nothing to stop at",
            f"no call site of thread {culprit.tid} ({culprit.thread}) is known",
            "Record with `flagfinder events record --stacks all`, and build the graph where the "
            "programs are.",
            "The diagnosis without --emit stands.",
        )
    # The C library's function that makes the call serves many; its caller is the program's own
    # place.
    innermost = known[0]
    caller = next((place for place in known[1:] if place.module != innermost.module), known[1])
    # A stack begins behind the instruction that made the system call.
    wait = {"module": innermost.module, "offset": innermost.offset - _SYSCALL_BYTES}
    facts: dict[str, object] = {
        "branch": {
            "module": caller.module,
            "offset": caller.offset,
            "text": f"{caller.module}+{caller.offset:#x}",
        },
        "hang": "computes" if computes else "waits",
        "wait": wait,
        "where": "where the culprit "
        f"{'came back from its wait, and computed' if computes else 'waited'}",
        "ends": "it goes on when" if flag is None else _LOOP_ENDS,
        "flag": _flag_facts(flag)
        if flag
        else _FUTEX_WORD
        if culprit.call == "futex" and not computes
        else None,
    }
    return _assembled(debugger, facts, command)


def _assembled(debugger: Debugger, facts: dict[str, object], command: Sequence[str]) -> str:
    head = [
        f"# flagfinder: stops {facts['where']}, shows registers and the flag, and watches it, in "
        f"{debugger}.",
        f"# {_START[debugger].format(command=quote_command(*command))}",
        "import json",
        "",
        # ASCII, twice quoted: no text of a file is more than text here.
        f"FACTS = json.loads({json.dumps(facts)!r})",
    ]
    places = resources.files(__package__)
    files = (
        resources.files("flagfinder.shared").joinpath("regular_file.py"),
        places.joinpath("elf_places.py"),
        places.joinpath(f"in_{debugger}.py"),
    )
    return "\n".join([*head, *(file.read_text("utf-8") for file in files)])


def _facts(
    report: Report, flag: Flag, branch: Code, spin: Trace, divergence: Divergence
) -> dict[str, object]:
    tid = report.spin_thread.tid if report.spin_thread else None
    process = next(
        (p for p in spin.processes if any(thread.tid == tid for thread in p.threads)), None
    )
    tids = [thread.tid for thread in process.threads] if process else []
    partings = [
        parting for parting in divergence.raw["partings"] if parting["thread"]["tid"] == tid
    ]
    polled = bool(flag.readers) and report.loop is not None and (report.loop.iterations or 0) > 1
    return {
        "branch": _place(branch),
        "hang": None,
        "where": "where the runs part",
        "ends": _LOOP_ENDS,
        "thread": tids.index(tid) + 1 if tid in tids else None,
        "occurrence": max((parting.get("occurrence") or 1 for parting in partings), default=1),
        "flag": {**_flag_facts(flag), "polled": polled},
    }


def _flag_facts(flag: Flag) -> dict[str, object]:
    is_global = flag.kind == "global" and flag.module is not None and flag.offset is not None
    return {
        "name": flag.name,
        "size": flag.size,
        "exit_when": flag.exit_when,
        "place": {"module": flag.module, "offset": flag.offset} if is_global else None,
        "reader": _place(flag.readers[0]) if flag.readers else None,
        "register": None,
    }


def _place(code: Code) -> dict[str, object]:
    return {"module": code.module, "offset": code.offset, "text": str(code)}
