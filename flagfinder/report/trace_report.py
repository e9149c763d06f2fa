# SPDX-License-Identifier: MIT
"""``trace info`` as text and as JSON fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flagfinder.report.terminal import Terminal
from flagfinder.report.units import count, size
from flagfinder.shared.visible import quote_command
from flagfinder.trace.trace import Process, Thread, Trace

if TYPE_CHECKING:
    from flagfinder.trace.fields import ThreadFields, TraceInfoFields


def trace_fields(trace: Trace) -> TraceInfoFields:
    """What ``trace info --json`` prints."""
    return {
        "path": str(trace.path),
        "bytes": trace.path.stat().st_size,
        "complete": trace.is_complete,
        "info": trace.info,
        "end": trace.end,
        "notes": [note.as_fields() for note in trace.notes],
        "processes": [
            {
                "pid": process.pid,
                "parent_pid": process.parent_pid,
                "image": process.image,
                "replaced": process.replaced,
                "path": process.path,
                "modules": [module.path for module in process.modules],
                "threads": [_thread_fields(thread) for thread in process.threads],
            }
            for process in trace.processes
        ],
    }


def show_trace(terminal: Terminal, trace: Trace) -> None:
    """What ``trace info`` prints."""
    ended = _ending(trace)
    for label, value in (
        ("command", quote_command(*trace.command)),
        ("level", f"{trace.level}, recorded with {trace.info['tracer']}"),
        ("size", size(trace.path.stat().st_size)),
        ("ended", ended),
    ):
        terminal.line((f"{label:<9}", "bold"), (value, ""))
    for note in trace.notes:
        terminal.line((f"{'note':<9}", "bold"), (f"{note.level}: {note.text}", ""))
    for process in trace.processes:
        modules = count(len(process.modules), "module")
        facts = f"{process.pid}{_image(process)} {process.path}, {modules}"
        terminal.line((f"{'process':<9}", "bold"), (facts, ""))
        for thread in process.threads:
            summary = thread.summary()
            gaps = f", {count(summary.gaps, 'gap')}" if summary.gaps else ""
            terminal.result(
                f"  thread {thread.tid:<8} {thread.name or '':<16}"
                f" {count(summary.blocks, 'block')}, {count(summary.syscalls, 'syscall')}{gaps}"
            )


def _thread_fields(thread: Thread) -> ThreadFields:
    summary = thread.summary()
    return {
        "tid": thread.tid,
        "name": thread.name,
        "creator_tid": thread.creator_tid,
        "blocks": summary.blocks,
        "syscalls": summary.syscalls,
        "signals": summary.signals,
        "gaps": summary.gaps,
    }


def _image(process: Process) -> str:
    if process.image == 1 and not process.replaced:
        return ""
    return f" image {process.image}{', which called exec:' if process.replaced else ':'}"


def _ending(trace: Trace) -> str:
    if trace.end is None:
        return "not closed in order (the recorder was killed); all that reached the file is here"
    reason = str(trace.end["reason"]).replace("-", " ")
    details = []
    for process in trace.end["processes"]:
        if process["status"] is not None:
            details.append(f"process {process['pid']} exited with {process['status']}")
        elif process["signal"] is not None:
            details.append(f"process {process['pid']} was killed by signal {process['signal']}")
        elif process["running"]:
            details.append(f"process {process['pid']} was still running")
    return "; ".join([reason, *details])
