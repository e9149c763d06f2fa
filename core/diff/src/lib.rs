// SPDX-License-Identifier: MIT
//! Aligning two runs by structure: which threads belong together, and where a spinning thread
//! leaves what the normal run does.
//!
//! In: traces (or any [`input::Run`]). Out: one [`Divergence`].
//!
//! Three linear scans, parallel over threads, with memory bounded by the code and the open calls,
//! not by the length: (1) every thread's calls are followed with a shadow stack, which gives the
//! open calls at its end; (2) the edges taken in those calls, and in the normal runs' calls of the
//! same context, are counted; (3) the stays in their loops are timed. The innermost open loop whose
//! stay is out of proportion holds the thread; the branch by which the normal runs leave what it
//! repeats is where they part. Matching by call context instead of by time follows Xin, Sumner,
//! Zhang, *Efficient program execution indexing* (PLDI 2008) and Johnson et al., *Differential
//! Slicing* (S&P 2011); unlike there, nothing of the past is replayed: only the branches that keep
//! the open calls open matter.
//!
//! Blind spots: see `call_stack.rs` (tail calls), `space.rs` (functions found by direct branches
//! only); a loop that does the same with different data is alike here and left to the flags stage.

mod call_stack;
mod compare;
mod cycle;
mod departure;
mod diff;
mod divergence;
mod from_trace;
pub mod input;
mod locate;
mod nest;
mod outcomes;
mod pairing;
mod part;
mod profile;
mod progress;
mod report;
mod scan;
mod scans;
mod shape;
mod space;
mod spinning;
mod stays;
mod survey;
mod surveyed;
mod targets;
mod unlike;
mod ways;

pub use diff::{align, Options};
pub use divergence::{
    BlockedThread, ContextMatch, Divergence, Parting, PartingKind, ThreadPair, ThreadRef, Verdict,
};
pub use from_trace::{run, ModuleNames, TraceFlow};
pub use progress::{Callback, Meter, Progress};
pub use space::CodePlace;
pub use ways::{ways, Leaving, Left, Standing, Ways};

use flagfinder_trace::Trace;

/// Aligns a spin run with one or more normal runs. See [`align`].
///
/// # Errors
/// When a trace cannot be read.
pub fn diff(
    normals: &[&Trace],
    spin: &Trace,
    options: &Options,
    progress: Callback,
) -> Result<Divergence, input::FlowError> {
    let mut names = ModuleNames::default();
    let good: Vec<_> = normals.iter().map(|trace| run(trace, &mut names)).collect();
    let bad = run(spin, &mut names);
    align(&good, &bad, names.into_names(), options, progress)
}
