// SPDX-License-Identifier: MIT
//! Who ran, who woke whom, and what threads waited for: recorded system-wide or of some processes,
//! into one file.
//!
//! In: which processes ([`Options`]), the compiled `bpf/events.bpf.c`. Out: a file of events
//! (docs/events-format.md), which [`EventFile`] reads and hands out in order of time, with losses
//! in their places. Nothing runs in the target and nothing stops it. Blind spots: what waits
//! without entering the kernel (a data flag) is not here, that is what `watch` is for; descriptors
//! and code ranges are read from /proc shortly after they were used, so those of processes that
//! live for milliseconds may be missing.

mod batches;
mod call;
mod check;
mod columns;
mod consumer;
pub mod container;
mod continuity;
mod counting;
mod descriptors;
mod drain;
mod dump;
mod ends;
mod error;
mod event;
mod facts;
mod flows;
mod format;
mod formats;
mod hang;
mod hot;
mod import;
mod info;
mod kernel;
mod looks;
mod merge;
mod names;
mod options;
mod outsiders;
mod perf_bounds;
mod perf_data;
mod perfetto;
mod processes;
mod protocol;
mod python;
mod reader;
mod record;
mod recordings;
mod room;
mod sites;
mod switch;
mod tally;
mod threads;
mod writer;

pub use call::{Call, CallEnd};
pub use check::{check, Findings};
pub use consumer::Finished;
pub use counting::Counting;
pub use dump::dump;
pub use error::{Failure, Result};
pub use event::{Context, Event, Kind, State};
pub use facts::{
    Before, DescriptorFact, End, EndFact, Info, MapsFact, Mark, Note, PythonFact, ThreadFact,
};
pub use flagfinder_waits::hot_call::Told;
pub use flagfinder_waits::{Holder, How, Looked};
pub use flows::{Exchange, FlowFact, Protocol};
pub use hot::{Calls, Repeated};
pub use import::Imported;
pub use info::summary;
pub use names::NamePatterns;
pub use options::{Options, StackMode, Syscalls};
pub use protocol::{layouts, FORK_NOT_FOLLOWED};
pub use python::PYTHON;
pub use reader::EventFile;
pub use record::{Progress, Recorder};
pub use recordings::import;
pub use sites::WALKED;
pub use tally::{tally, Earlier, Question, Sums, Tally, WaitKey, Who};
pub use writer::EventWriter;
