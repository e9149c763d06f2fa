# SPDX-License-Identifier: MIT
"""What the package offers to programs: ``import flagfinder`` shows these names as its own."""

from flagfinder.chain.to_its_end import record
from flagfinder.diff.diff import Divergence, diff
from flagfinder.flags.code import Code
from flagfinder.flags.discover import Discovered, Discovery, discover
from flagfinder.flags.flags import (
    DivergencePoint,
    Flag,
    Loop,
    Owed,
    Proof,
    Report,
    ThreadName,
    Writer,
    find_flags,
)
from flagfinder.graph.diagnose import (
    Choice,
    Culprit,
    Diagnosis,
    Hang,
    Question,
    diagnose,
    find_hangs,
)
from flagfinder.graph.events import (
    EventFile,
    EventImport,
    EventOptions,
    EventRecording,
    import_events,
    record_events,
)
from flagfinder.graph.graph import EventGraph, build_graph, open_graph
from flagfinder.live.poke import Poked, poke, try_poke
from flagfinder.live.poke_plan import plan_poke
from flagfinder.live.spin import SpinReport, SpinThread, Wait, look_at_core, spin
from flagfinder.live.why import why, why_of_core, why_recorded
from flagfinder.live.why_chain import WhyReport
from flagfinder.live.why_links import WhyLink, WhyNode, WhyRoot
from flagfinder.record.recorder import Recording, RecordOptions
from flagfinder.record.stepping import StepOptions
from flagfinder.record.with_lldb import record_lldb
from flagfinder.shared.errors import (
    BadTraceError,
    FlagfinderError,
    PermissionDeniedError,
    TargetError,
    UnavailableError,
    UsageError,
)
from flagfinder.trace.trace import (
    BlockTable,
    Module,
    Process,
    Syscalls,
    Thread,
    Trace,
    Values,
    open_trace,
)

__all__ = [
    "BadTraceError",
    "BlockTable",
    "Choice",
    "Code",
    "Culprit",
    "Diagnosis",
    "Discovered",
    "Discovery",
    "Divergence",
    "DivergencePoint",
    "EventFile",
    "EventGraph",
    "EventImport",
    "EventOptions",
    "EventRecording",
    "Flag",
    "FlagfinderError",
    "Hang",
    "Loop",
    "Module",
    "Owed",
    "PermissionDeniedError",
    "Poked",
    "Process",
    "Proof",
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
    "WhyLink",
    "WhyNode",
    "WhyReport",
    "WhyRoot",
    "Writer",
    "build_graph",
    "diagnose",
    "diff",
    "discover",
    "find_flags",
    "find_hangs",
    "import_events",
    "look_at_core",
    "open_graph",
    "open_trace",
    "plan_poke",
    "poke",
    "record",
    "record_events",
    "record_lldb",
    "spin",
    "try_poke",
    "why",
    "why_of_core",
    "why_recorded",
]
