# SPDX-License-Identifier: MIT
"""``flagfinder`` inside lldb, on the process or core that it debugs: ``why``, ``spin``, ``record``,
``registers`` and ``watch``.

    (lldb) command script import .../lldb_scripts/flagfinder_lldb.py
    (lldb) flagfinder why --stacks
    (lldb) flagfinder record -o spin.trace --max-steps 5000
    (lldb) flagfinder registers spin.trace --before-divergence normal.trace
    (lldb) flagfinder watch app done --until write
    (lldb) flagfinder watch --expr 'pool->workers[2].state' --reads -o events.jsonl

Words, options and output are those of the command line, without the process. lldb holds every
thread of the process, and who is held tells nothing: ``why`` and ``spin`` let the process go for
the time of the look, and take it back. They refuse unless Ctrl-C or lldb itself stopped it: from a
breakpoint or a step it would go on, and of a signal it might die. ``record`` steps the selected
thread, or with ``--from-break`` the one that comes there first. ``watch`` lets the process
run until the condition is met, until Ctrl-C, or until something else stops it (a breakpoint). Then
it stays stopped, at the last access.
"""

from __future__ import annotations

import shlex
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lldb

_HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(_HERE))
import ff_start  # noqa: E402
import ff_step  # noqa: E402
import ff_trap  # noqa: E402

_USAGE = (
    "write `flagfinder why|spin|record|registers|watch ...`; `flagfinder why --help` shows the "
    "options"
)
_OF_CORE = {"why": ["why", "--core"], "spin": ["core"]}  # by the verb
_STOPS = (signal.SIGINT, signal.SIGSTOP)  # Ctrl-C, and what lldb stops threads with


class _Watching:
    """A ``flagfinder.watch.trapper.Trapper`` on a process that somebody debugs."""

    def __init__(self, process: lldb.SBProcess, words: list[Any]) -> None:
        self._traps = ff_trap.Traps(
            process, [(word.address, word.size, word.reads) for word in words]
        )
        self.notes: list[str] = []
        self.lost = 0
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


def _record(process: lldb.SBProcess, path: Path, options: Any) -> Any:
    """In place of ``flagfinder.record_lldb``: the process is stopped, and stays so."""
    from flagfinder.record.record import check_output  # noqa: PLC0415
    from flagfinder.record.stepping import Sink  # noqa: PLC0415

    check_output(path)
    debugger = process.GetTarget().GetDebugger()
    thread = _thread(process, options)
    sink = Sink([], options)
    sink.begin(ff_start.facts(process, thread))
    end = time.monotonic() + (options.stop_after or float("inf"))
    stopping = lambda: debugger.InterruptRequested() or time.monotonic() > end  # noqa: E731
    try:
        why = ff_step.Stepper(process, thread, sink, stopping).run(options.max_steps)
    except KeyboardInterrupt:
        why = "interrupted"
    return sink.finish(path, why, None, None)


def _thread(process: lldb.SBProcess, options: Any) -> lldb.SBThread:
    if not options.from_break:
        thread = (
            process.GetThreadByID(options.thread) if options.thread else process.GetSelectedThread()
        )
        if not thread.IsValid():
            raise ff_start.Refused("thread", f"the process has no thread {options.thread}")
        return thread
    points = ff_start.break_at(process.GetTarget(), options.from_break)
    try:
        process.Continue()
        thread = ff_start.stopped_at(process, points)
    finally:
        for point in points:
            process.GetTarget().BreakpointDelete(point)
    if thread is None:
        raise ff_start.Refused(
            "unreached", f"the process ended or stopped before {options.from_break} was called"
        )
    return thread


def _run(words: list[str], preset: dict[str, Any]) -> int:
    """A command line. lldb's Python knows nothing of the environment that this file was installed
    into.
    """
    # <environment>/lib/python3.x/site-packages/flagfinder/_tracer_sources/lldb_scripts
    packages = _HERE.parents[2]
    if (packages / "flagfinder").is_dir() and str(packages) not in sys.path:
        sys.path.append(str(packages))
    from flagfinder.cli.command import run  # noqa: PLC0415
    from flagfinder.shared.lldb_helper import require_version  # noqa: PLC0415

    if preset:  # it is this lldb that traps or steps
        require_version(
            lldb.SBDebugger.GetVersionString(), "`flagfinder registers` needs no newer lldb."
        )
    return run(words, preset)


def _stays(thread: lldb.SBThread) -> bool:
    """Whether only lldb stopped it."""
    reason = thread.GetStopReason()
    if reason == lldb.eStopReasonSignal:
        return thread.GetStopReasonDataAtIndex(0) in _STOPS
    return reason in (lldb.eStopReasonNone, lldb.eStopReasonInvalid)


def _look(verb: str, words: list[str], process: lldb.SBProcess) -> None:
    """Asks about the core, or about the process while lldb does not hold it."""
    core = process.GetCoreFile()
    if core.IsValid():
        _run([*_OF_CORE[verb], core.fullpath, *words], {})
        return
    if not all(map(_stays, process)):
        raise ff_start.Refused(
            "breakpoint",
            "it stopped at a breakpoint, after a step or for a signal, and would go on from there: "
            "continue till it hangs, then press Ctrl-C",
        )
    target, pid = process.GetTarget(), process.GetProcessID()
    selected = process.GetSelectedThread().GetThreadID()
    process.Detach()
    try:
        _run([verb, str(pid), *words], {})
    finally:
        error = lldb.SBError()
        again = target.AttachToProcessWithID(target.GetDebugger().GetListener(), pid, error)
        again.SetSelectedThreadByID(selected)


def _on_process(
    verb: str, words: list[str], process: lldb.SBProcess
) -> tuple[list[str], dict[str, Callable[..., Any]]]:
    pid = str(process.GetProcessID())
    if verb == "watch":
        return [verb, pid, *words], {
            "trapper": lambda _pid, wanted, _config: _Watching(process, wanted)
        }

    def record(_command: Any, _pid: int, path: Path, options: Any, **_progress: Any) -> Any:
        return _record(process, path, options)

    return [verb, "--tracer", "lldb", "--pid", pid, *words], {"stepper": record}


def command(
    debugger: lldb.SBDebugger,
    line: str,
    context: lldb.SBExecutionContext,
    result: lldb.SBCommandReturnObject,
    _names: dict[str, Any],
) -> None:
    """
    flagfinder why|spin [--stacks]
        Says who keeps the process from going on, or what its threads poll. It goes on meanwhile.
    flagfinder record -o FILE [--from-break SYMBOL] [--max-steps N] [--into LIBRARY]
        Steps the selected thread and records what it executes, for `flagfinder diff NORMAL FILE`.
    flagfinder registers SPIN --before-divergence NORMAL
        Shows the registers at the blocks before two recorded runs part.
    flagfinder watch IMAGE SYMBOL [--until write] [--reads]
        Lets the process run and shows who writes a word, with stacks.
    Each has --help, with all options and examples.
    """
    words = shlex.split(line)
    preset: dict[str, Any] = {}
    process = context.GetProcess()
    verb = words[0] if words else ""
    if verb not in (*_OF_CORE, "record", "registers", "watch") or {
        "--duration",
        "--pid",
        "--tracer",
        "--",
    } & set(words):
        result.SetError(_USAGE)
        return
    is_asked = verb != "registers" and not {"-h", "--help"} & set(words)
    if is_asked:
        if not process.IsValid() or process.GetState() != lldb.eStateStopped:
            result.SetError(
                "there is no stopped process; `process attach --pid N` or `run` it up to a "
                "breakpoint"
            )
            return
        if verb not in _OF_CORE:
            words, preset = _on_process(verb, words[1:], process)
    was_async = debugger.GetAsync()
    debugger.SetAsync(False)
    try:
        if verb in _OF_CORE and is_asked:
            _look(verb, words[1:], process)
        else:
            _run(words, preset)
        result.SetStatus(lldb.eReturnStatusSuccessFinishResult)
    except SystemExit:
        pass  # --help
    except KeyboardInterrupt:
        result.SetError("interrupted")
    except ImportError as error:
        result.SetError(
            f"flagfinder can't be imported ({error}); import this file from where flagfinder is "
            "installed"
        )
    except Exception as error:
        parts = [str(error), *str(getattr(error, "hint", "")).splitlines()]
        result.SetError(error.found if isinstance(error, ff_start.Refused) else "\n".join(parts))
    finally:
        debugger.SetAsync(was_async)


def __lldb_init_module(debugger: lldb.SBDebugger, _names: dict[str, Any]) -> None:
    summary = "Says why a process hangs; records, watches and compares what threads execute."
    debugger.HandleCommand(
        f"command script add --overwrite --help '{summary}' --function {__name__}.command "
        "flagfinder"
    )
