# SPDX-License-Identifier: MIT
"""The whole chain: record a good run, record the run that spins, compare, name the flag.

Recordings at level ``flow`` say where the runs part but not what was read there. Then both are
recorded once more with values, in the modules the first pass points to only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flagfinder.diff.diff import Divergence, diff
from flagfinder.flags.flags import Report, find_flags
from flagfinder.record.record import record
from flagfinder.record.recorder import Progress, Recording, RecordOptions
from flagfinder.shared.errors import TargetError, UsageError
from flagfinder.shared.private_file import create_private
from flagfinder.shared.record import dataclass, replace
from flagfinder.trace.trace import Trace, open_trace

if TYPE_CHECKING:
    from flagfinder.diff.fields import PartingFields, PlaceFields

_WHOLE_MODULE = "0x0-0xffffffffffff"


@dataclass(frozen=True)
class Found:
    """The answer, and the traces it came from."""

    report: Report
    normal: Path
    spin: Path


@dataclass(frozen=True)
class Observer:
    """Whom to tell what goes on: ``announce`` gets lines, ``recorded`` each finished recording."""

    announce: Callable[[str], None] = lambda _text: None
    progress: Callable[[Progress], None] | None = None
    recorded: Callable[[Recording], None] = lambda _recording: None


def find(
    normal_command: Sequence[str],
    spin_command: Sequence[str],
    directory: Path,
    options: RecordOptions,
    observer: Observer,
    overwrite: bool = False,
) -> Found:
    """Runs both commands and compares them. ``directory`` gets ``normal.trace`` and ``spin.trace``.

    The spinning program is ended when it has spun for ``options.stop_when_spinning`` seconds. A
    note of the report says when the good run ended with another status than 0. Raises what
    ``record`` and ``find_flags`` raise, TargetError when a signal kills the good run, UsageError
    when there are such files already, unless ``overwrite``.
    """
    normal, spin, listed = (
        directory / name for name in ("normal.trace", "spin.trace", "values-in.txt")
    )
    there = [path.name for path in (normal, spin, listed) if path.exists()]
    if there and not overwrite:
        raise UsageError(
            "find would overwrite files",
            f"{directory.absolute()} holds {' and '.join(there)}",
            "Name another folder with -d, or allow it with --overwrite.",
        )
    doubts: set[str] = set()
    normal_options = replace(options, stop_when_spinning=None)

    def record_both(
        normal_chosen: RecordOptions, spin_chosen: RecordOptions
    ) -> tuple[Trace, Trace]:
        for command, path, chosen, kind in (
            (normal_command, normal, normal_chosen, "good"),
            (spin_command, spin, spin_chosen, "spinning"),
        ):
            observer.announce(f"recording the {kind} run at level {chosen.level}")
            recording = record(
                command, path, chosen, announce=observer.announce, progress=observer.progress
            )
            observer.recorded(recording)
            if path == normal and recording.signal is not None:
                raise TargetError(
                    "The good run did not end well",
                    f"it was killed by {recording.signal_name}",
                    "Name a command that ends by itself: --normal CMD.",
                    f"{path} holds what was recorded.",
                )
            if path == normal and recording.status:
                doubts.add(
                    f"the good run ended with status {recording.status}: if that is a failure, it "
                    "is the wrong run to compare with"
                )
        return open_trace(normal), open_trace(spin)

    good, bad = record_both(normal_options, options)
    divergence = diff(good, bad)
    ranges = value_ranges(divergence)
    if options.level == "flow" and ranges:
        with create_private(listed) as file:
            file.write("".join(f"{line}\n" for line in ranges).encode())
        observer.announce(f"recording again with values in {len(ranges)} modules ({listed})")
        good, bad = record_both(
            replace(normal_options, level="values", values_in=listed),
            replace(options, level="values", values_in=listed),
        )
        divergence = diff(good, bad)
    return Found(_with_notes(find_flags(bad, [good], divergence), sorted(doubts)), normal, spin)


def _with_notes(report: Report, notes: list[str]) -> Report:
    every = [*report.notes, *notes]
    return replace(report, notes=tuple(every), raw={**report.raw, "notes": every})


def value_ranges(divergence: Divergence) -> list[str]:
    """Where values would decide: the modules of the loops and of the calls open around them.

    Whole modules, as the loop's callees matter too. Lines for ``RecordOptions.values_in``; empty
    when no thread spins.
    """
    modules: dict[str, None] = {}
    for parting in divergence.raw["partings"]:
        for place in _places(parting):
            if place and place["module"]:
                modules.setdefault(place["module"])
    return [f"{module}+{_WHOLE_MODULE}" for module in modules]


def _places(parting: PartingFields) -> list[PlaceFields | None]:
    places = [parting["branch"], parting["spin_loop"]["header"], *parting["spin_loop"]["blocks"]]
    for frame in parting["stack"]:
        places += [frame["function"], frame["call_site"]]
    return places
