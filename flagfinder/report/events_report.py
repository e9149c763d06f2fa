# SPDX-License-Identifier: MIT
"""Recordings of events on a screen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from flagfinder.graph.events import EventImport, EventRecording
from flagfinder.report.terminal import Terminal
from flagfinder.report.units import count, duration, size

if TYPE_CHECKING:
    from flagfinder.graph.event_fields import (
        EventsEndFields,
        EventsImportFields,
        EventsInfoFields,
        EventsRecordFields,
    )

_REASONS = {
    "program-ended": "the program ended",
    "target-ended": "the process ended",
    "duration": "the time is over",
    "interrupted": "interrupted",
    "imported": "imported",
}


def recording_fields(recording: EventRecording) -> EventsRecordFields:
    return {
        "file": str(recording.path),
        "ended": recording.ended,
        "exit_status": recording.exit_status,
        "events": recording.events,
        "raw_bytes": recording.raw_bytes,
        "file_bytes": recording.file_bytes,
        "lost": {
            "total": recording.lost,
            "cpus": dict(recording.lost_cpus),
            "processes": recording.lost_processes,
        },
        "notes": [note.as_fields() for note in recording.notes],
    }


def show_recording(terminal: Terminal, recording: EventRecording) -> None:
    """What a recording came to, to stderr; fallbacks and losses always."""
    for note in recording.notes:
        terminal.warning(note.text)
    ending = "" if recording.lost or recording.lost_processes else "; nothing lost"
    terminal.message(
        f"{_REASONS[recording.ended]}; {count(recording.events, 'event')} in {recording.path} "
        f"({size(recording.file_bytes)}){ending}"
    )
    if recording.lost:
        cpus = ", ".join(f"CPU {cpu}: {number:,}" for cpu, number in recording.lost_cpus.items())
        terminal.warning(
            f"lost {recording.lost:,} events, the buffer was full ({cpus}); try a larger --buffer"
        )
    if recording.lost_processes:
        terminal.warning(
            f"{recording.lost_processes:,} of the processes that the target started are not "
            "recorded: there was no room for more; record a part of the target with --pid"
        )


def import_fields(imported: EventImport) -> EventsImportFields:
    return {
        "file": str(imported.path),
        "events": imported.events,
        "lost": imported.lost,
        "skipped": dict(imported.skipped),
    }


def show_import(terminal: Terminal, imported: EventImport) -> None:
    """What an import came to, to stderr; losses and what was left out always."""
    terminal.message(f"{count(imported.events, 'event')} in {imported.path}")
    if imported.lost:
        lost = count(imported.lost, "event")
        terminal.warning(
            f"its recorder lost at least {lost}; try larger buffers there (perf: --mmap-pages)"
        )
    if imported.skipped:
        terminal.warning(f"left out: {_numbers(imported.skipped)}")


def _numbers(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number:,}" for name, number in counts.items()) or "none"


def _limit(summary: EventsInfoFields) -> str:
    if summary["size_bytes"] is None:
        return ""
    before = summary["before"]["events"]
    return (
        f" of at most {size(summary['size_bytes'])}; {count(before, 'event')} before were dropped"
    )


def _lost_processes(end: EventsEndFields | None) -> dict[str, int]:
    number = 0 if end is None else end["lost_processes"]
    return {"whole processes": number} if number else {}


def show_summary(terminal: Terminal, summary: EventsInfoFields) -> None:
    end = summary["end"]
    program = [" ".join(summary["command"])] if summary["command"] else []
    pids = summary["pids"][len(program) :]  # the first is the program's own
    target = ", ".join([*program, *(f"process {pid}" for pid in pids)]) or "all processes"
    rows = [
        (
            "target",
            target
            + (" and the scheduling of all" if summary["everything"] and summary["pids"] else ""),
        ),
        ("threads", ", ".join(summary["thread_names"]) or "all"),
        ("time", duration(summary["span"])),
        ("events", _numbers(summary["events"])),
        ("wakes by", _numbers(summary["wakes"])),
        ("system calls", summary["syscalls"]),
        ("stacks", f"{summary['stacks']}, {summary['different_stacks']:,} different"),
        ("size", size(summary["bytes"]) + _limit(summary)),
        (
            "ended",
            "unknown: the recorder was killed"
            if end is None
            else _REASONS.get(end["reason"], end["reason"]),
        ),
        (
            "lost",
            _numbers(
                {**{f"CPU {cpu}": n for cpu, n in summary["lost"].items()}, **_lost_processes(end)}
            ),
        ),
    ]
    rows += [("mark", f"{mark['ts']}: {mark['text']}") for mark in summary["marks"]]
    rows += [(note["level"], note["text"]) for note in summary["notes"]]
    if summary["damaged_blocks"]:
        rows.append(("damage", count(summary["damaged_blocks"], "block")))
    for label, value in rows:
        terminal.line((f"{label:<13}", "bold"), (value, ""))
