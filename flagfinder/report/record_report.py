"""What ``record`` says when it is done, as text and as JSON fields."""

from __future__ import annotations

import signal
from dataclasses import asdict
from typing import Any

from flagfinder.recorder import Progress, Recording
from flagfinder.report.terminal import ProgressLine, Terminal
from flagfinder.report.units import count, duration, size

# What a program dies of when a tracer misleads it.
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGABRT, signal.SIGFPE)


def recording_fields(recording: Recording) -> dict[str, Any]:
    """What ``record --json`` prints."""
    return {**asdict(recording), "path": str(recording.path), "exit_code": recording.exit_code}


def show_recording(terminal: Terminal, recording: Recording) -> None:
    """One line of facts, then losses and fallbacks. To stderr: stdout is the program's."""
    for note in recording.notes:
        terminal.warning(note.text)
    terminal.message(
        f"{_ending(recording)}; {recording.path} has {count(recording.threads, 'thread')}, about "
        f"{count(recording.blocks_about, 'block')} in {duration(recording.ns)}, {size(recording.stored_bytes)}"
        f"{_losses(recording)}"
    )
    if recording.ended == "target-ended" and recording.signal in _CRASHES:
        terminal.warning(
            f"If the program does not die of {recording.signal_name} on its own, the tracer broke it, which it "
            "sometimes does to Java virtual machines. `flagfinder spin PID` needs no tracer: let the program hang and "
            "ask that."
        )


def show_progress(line: ProgressLine, progress: Progress) -> None:
    """What a recording has so far, on the line that changes in place."""
    line.update(
        f"recording: {duration(progress.ns)}, {size(progress.raw_bytes)} traced, {size(progress.stored_bytes)} on disk"
    )


def _ending(recording: Recording) -> str:
    if recording.ended == "spinning":
        tids = ", ".join(str(tid) for tid in recording.spinning_threads)
        who = f"threads {tids} spin" if len(recording.spinning_threads) > 1 else f"thread {tids} spins"
        return f"{who}, recording ended"
    if recording.ended == "limit":
        return "as much as was asked for is recorded"
    if recording.ended == "interrupted":
        return "interrupted, the trace is kept"
    if recording.ended == "write-failed":
        return "the trace could not be written any further, the program ran on"
    if recording.signal_name is not None:
        return f"the program was killed by {recording.signal_name}"
    return f"the program exited with {recording.status}"


def _losses(recording: Recording) -> str:
    parts = []
    if recording.lost_flow_bytes:
        parts.append(f"{size(recording.lost_flow_bytes)} of flow")
    if recording.lost_value_chunks:
        parts.append(f"{count(recording.lost_value_chunks, 'chunk')} of values (the middle of long threads)")
    return f"; lost {' and '.join(parts)}" if parts else "; nothing lost"
