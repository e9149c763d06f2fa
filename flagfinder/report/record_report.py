# SPDX-License-Identifier: MIT
"""What ``record`` says when it is done, as text and as JSON fields."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from flagfinder.record.recorder import Progress, Recording
from flagfinder.report.terminal import ProgressLine, Terminal
from flagfinder.report.units import count, duration, size

if TYPE_CHECKING:
    from flagfinder.record.fields import RecordFields

_ENDINGS = {
    "limit": "as much as was asked for is recorded",
    "printed": "the program printed {text!r}, recording ended",
    "marked": "the mark {text!r} ended the recording",
    "interrupted": "interrupted, the trace is kept",
    "write-failed": "the trace could not be written any further; {fate}",
}
# What a program dies of when a tracer misleads it.
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGABRT, signal.SIGFPE)


def recording_fields(recording: Recording) -> RecordFields:
    """What ``record --json`` prints."""
    return {
        "path": str(recording.path),
        "pid": recording.pid,
        "ended": recording.ended,
        "status": recording.status,
        "signal": recording.signal,
        "threads": recording.threads,
        "ns": recording.ns,
        "stored_bytes": recording.stored_bytes,
        "flow_bytes": recording.flow_bytes,
        "values_bytes": recording.values_bytes,
        "lost_flow_bytes": recording.lost_flow_bytes,
        "lost_value_chunks": recording.lost_value_chunks,
        "spinning_threads": list(recording.spinning_threads),
        "notes": [note.as_fields() for note in recording.notes],
        "ended_by": recording.ended_by,
        "exit_code": recording.exit_code,
    }


def show_recording(terminal: Terminal, recording: Recording) -> None:
    """One line of facts, then losses and fallbacks. To stderr: stdout is the program's."""
    for note in recording.notes:
        terminal.warning(note.text)
    terminal.message(
        f"{_ending(recording)}; {recording.path} has {count(recording.threads, 'thread')}, about "
        f"{count(recording.blocks_about, 'block')} in {duration(recording.ns)}, "
        f"{size(recording.stored_bytes)}{_losses(recording)}"
    )
    if recording.ended == "target-ended" and recording.signal in _CRASHES:
        terminal.warning(
            f"If the program does not die of {recording.signal_name} on its own, the tracer broke "
            "it, which it sometimes does to Java virtual machines. `flagfinder spin PID` needs no "
            "tracer: let the program hang and ask that."
        )


def show_progress(line: ProgressLine, progress: Progress) -> None:
    """What a recording has so far, on the line that changes in place."""
    line.update(
        f"recording: {duration(progress.ns)}, {size(progress.raw_bytes)} traced, "
        f"{size(progress.stored_bytes)} on disk"
    )


def _ending(recording: Recording) -> str:
    if recording.ended == "spinning":
        tids = ", ".join(str(tid) for tid in recording.spinning_threads)
        who = (
            f"threads {tids} spin"
            if len(recording.spinning_threads) > 1
            else f"thread {tids} spins"
        )
        return f"{who}, recording ended"
    if recording.ended in _ENDINGS:
        return _ENDINGS[recording.ended].format(text=recording.ended_by, fate=_fate(recording))
    return _fate(recording)


def _fate(recording: Recording) -> str:
    if recording.signal_name is not None:
        return f"the program was killed by {recording.signal_name}"
    if recording.status is None:
        return "the program runs on"
    return f"the program exited with {recording.status}"


def _losses(recording: Recording) -> str:
    parts = []
    if recording.lost_flow_bytes:
        parts.append(f"{size(recording.lost_flow_bytes)} of flow")
    if recording.lost_value_chunks:
        parts.append(
            f"{count(recording.lost_value_chunks, 'chunk')} of values (the middle of long threads)"
        )
    if parts:
        return f"; lost {' and '.join(parts)}"
    # What notes name as lost stands above.
    return "" if any(note.level == "lost" for note in recording.notes) else "; nothing lost"
