"""``flagfinder watch`` inside lldb, on the process that it debugs.

    (lldb) command script import .../lldb_scripts/flagfinder_lldb.py
    (lldb) flagfinder watch app done --until write
    (lldb) flagfinder watch --expr 'pool->workers[2].state' --reads -o events.jsonl

Words, options and output are those of the command line, without the process id and ``--duration``. The process runs
until the condition is met, until Ctrl-C, or until something else stops it (a breakpoint). Then it stays stopped, at the
last access.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import lldb

_HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(_HERE))
import ff_trap  # noqa: E402

_USAGE = "write `flagfinder watch IMAGE SYMBOL [options]`; `flagfinder watch --help` shows the options"


class _Inside:
    """A ``flagfinder.trappers.Trapper`` on a process that somebody debugs."""

    def __init__(self, process: lldb.SBProcess, words: list[Any]) -> None:
        self._traps = ff_trap.Traps(process, [(word.address, word.size, word.reads) for word in words])
        self.notes: list[str] = []
        self.over = False

    def take(self, patience: float) -> bytes:
        del patience  # the next stop ends the wait
        records, self.over = self._traps.resume()
        if not records and not self.over:
            raise KeyboardInterrupt  # Ctrl-C, or somebody's breakpoint
        return b"".join(records)

    def stop(self) -> bytes:
        self._traps.remove()
        return b""


def _main() -> Any:
    """flagfinder's command line. lldb's Python knows nothing of the environment that this file was installed into."""
    # <environment>/lib/python3.x/site-packages/flagfinder/_tracer_sources/lldb_scripts
    packages = _HERE.parents[2]
    if (packages / "flagfinder").is_dir() and str(packages) not in sys.path:
        sys.path.append(str(packages))
    from flagfinder.cli import main  # noqa: PLC0415

    return main


def command(
    debugger: lldb.SBDebugger,
    line: str,
    context: lldb.SBExecutionContext,
    result: lldb.SBCommandReturnObject,
    _names: dict[str, Any],
) -> None:
    """The lldb command ``flagfinder``."""
    words = shlex.split(line)
    process = context.GetProcess()
    if words[:1] != ["watch"] or "--duration" in words:
        result.SetError(_USAGE)
        return
    if not process.IsValid() or process.GetState() != lldb.eStateStopped:
        result.SetError("there is no stopped process; `process attach --pid N` or `run` it up to a breakpoint")
        return

    def start(_pid: int, wanted: list[Any]) -> _Inside:
        return _Inside(process, wanted)

    was_async = debugger.GetAsync()
    debugger.SetAsync(False)
    try:
        code = _main()(["watch", str(process.GetProcessID()), *words[1:]], {"trapper": start})
        result.SetStatus(lldb.eReturnStatusFailed if code == 2 else lldb.eReturnStatusSuccessFinishResult)
    except SystemExit:
        pass  # --help
    except ImportError as error:
        result.SetError(f"flagfinder can't be imported ({error}); import this file from where flagfinder is installed")
    except ff_trap.Refused as error:
        result.SetError(str(error))
    finally:
        debugger.SetAsync(was_async)


def __lldb_init_module(debugger: lldb.SBDebugger, _names: dict[str, Any]) -> None:
    debugger.HandleCommand(f"command script add --overwrite --function {__name__}.command flagfinder")
