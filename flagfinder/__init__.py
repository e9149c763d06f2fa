"""flagfinder names the memory location that a spinning thread waits for, from two recorded runs.

    import flagfinder
    flagfinder.record(["./app"], "normal.trace")
    spin = flagfinder.open_trace("spin.trace")
    normal = flagfinder.open_trace("normal.trace")
    report = flagfinder.find_flags(spin, [normal], flagfinder.diff(normal, spin))
    print(report.flag)

``docs/python.md`` shows more.
"""

from flagfinder.diagnose import Choice, Culprit, Diagnosis, Question, diagnose
from flagfinder.diff import Divergence, diff
from flagfinder.errors import (
    BadTraceError,
    FlagfinderError,
    PermissionDeniedError,
    TargetError,
    UnavailableError,
    UsageError,
)
from flagfinder.events import EventFile, EventImport, EventOptions, EventRecording, import_events, record_events
from flagfinder.flags import Code, DivergencePoint, Flag, Loop, Report, ThreadName, Writer, find_flags
from flagfinder.graph import EventGraph, build_graph, open_graph
from flagfinder.poke import Poked, plan_poke, poke
from flagfinder.record import record
from flagfinder.record_lldb import record_lldb
from flagfinder.recorder import Recording, RecordOptions
from flagfinder.spin import SpinReport, SpinThread, Wait, spin
from flagfinder.stepping import StepOptions
from flagfinder.trace import BlockTable, Module, Process, Syscalls, Thread, Trace, Values, open_trace

__all__ = [
    "BadTraceError",
    "BlockTable",
    "Choice",
    "Code",
    "Culprit",
    "Diagnosis",
    "Divergence",
    "DivergencePoint",
    "EventFile",
    "EventGraph",
    "EventImport",
    "EventOptions",
    "EventRecording",
    "Flag",
    "FlagfinderError",
    "Loop",
    "Module",
    "PermissionDeniedError",
    "Poked",
    "Process",
    "Question",
    "RecordOptions",
    "Recording",
    "Report",
    "SpinReport",
    "SpinThread",
    "StepOptions",
    "Syscalls",
    "TargetError",
    "Thread",
    "ThreadName",
    "Trace",
    "UnavailableError",
    "UsageError",
    "Values",
    "Wait",
    "Writer",
    "build_graph",
    "diagnose",
    "diff",
    "find_flags",
    "import_events",
    "open_graph",
    "open_trace",
    "plan_poke",
    "poke",
    "record",
    "record_events",
    "record_lldb",
    "spin",
]
