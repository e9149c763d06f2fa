"""What ``diff --emit`` writes: a debugger's script that stops where two runs part, and watches the flag.

A script is the facts of one diff, then ``elf_places.py``, then the debugger's own half: one file that needs nothing of
flagfinder, for the machine where the program runs. The halves are read as text, never imported here.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any, Literal

from flagfinder.diff import Divergence
from flagfinder.errors import UsageError
from flagfinder.flags import Code, Flag, Report
from flagfinder.trace import Trace

Debugger = Literal["gdb", "lldb"]
DEBUGGERS: tuple[Debugger, ...] = ("gdb", "lldb")
_START = {
    "gdb": "gdb -x SCRIPT --args {command}        or, of a process that spins already: gdb -p PID -x SCRIPT",
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
    command = " ".join(spin.command)
    head = [
        f"# flagfinder: stops where the runs part, shows registers and the flag, and watches it, in {debugger}.",
        f"# {_START[debugger].format(command=command)}",
        "import json",
        "",
        f"FACTS = json.loads({json.dumps(facts)!r})",
    ]
    halves = [
        resources.files(__package__).joinpath(name).read_text("utf-8")
        for name in ("elf_places.py", f"in_{debugger}.py")
    ]
    return "\n".join([*head, *halves])


def _facts(report: Report, flag: Flag, branch: Code, spin: Trace, divergence: Divergence) -> dict[str, Any]:
    tid = report.spin_thread.tid if report.spin_thread else None
    process = next((p for p in spin.processes if any(thread.tid == tid for thread in p.threads)), None)
    tids = [thread.tid for thread in process.threads] if process else []
    partings = [parting for parting in divergence.raw["partings"] if parting["thread"]["tid"] == tid]
    is_global = flag.kind == "global" and flag.module is not None and flag.offset is not None
    return {
        "branch": _place(branch),
        "thread": tids.index(tid) + 1 if tid in tids else None,
        "occurrence": max((parting.get("occurrence") or 1 for parting in partings), default=1),
        "flag": {
            "name": flag.name,
            "size": flag.size,
            "exit_when": flag.exit_when,
            "place": {"module": flag.module, "offset": flag.offset} if is_global else None,
            "reader": _place(flag.readers[0]) if flag.readers else None,
            "polled": bool(flag.readers) and report.loop is not None and (report.loop.iterations or 0) > 1,
        },
    }


def _place(code: Code) -> dict[str, Any]:
    return {"module": code.module, "offset": code.offset, "text": str(code)}
