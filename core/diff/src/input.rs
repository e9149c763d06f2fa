// SPDX-License-Identifier: MIT
//! What the alignment reads: blocks of code and the flow of each thread, whoever recorded them.
//!
//! `from_trace.rs` makes these from trace files; tests and the scale example make them by hand.

pub use flagfinder_code::Ending;
use flagfinder_trace::Failure;
use thiserror::Error;

/// Where a block lies, independent of where its module was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockHome {
    /// In a module; `module` indexes the module names given to the code space.
    Module {
        /// Index of its name.
        module: u32,
        /// Run-time address of ELF vaddr 0.
        base: u64,
    },
    /// Code without a module (JIT). `likeness` is a hash of the code that stays equal in another
    /// run.
    Anonymous {
        /// See above.
        likeness: u64,
    },
}

/// One block as recorded in one process.
#[derive(Clone, Debug)]
pub struct RawBlock {
    /// The id used in the flow.
    pub id: u32,
    /// Where it lies.
    pub home: BlockHome,
    /// Address of the first instruction.
    pub start: u64,
    /// Address of the last instruction.
    pub last: u64,
    /// Address behind the last instruction.
    pub end: u64,
    /// What the last instruction does.
    pub ending: Ending,
}

/// What happens in a flow besides blocks. Times are in ns of one clock; 0 is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The thread begins.
    Start {
        /// In ns; 0: unknown.
        ts: u64,
    },
    /// The thread ends by itself.
    Exit {
        /// In ns; 0: unknown.
        ts: u64,
    },
    /// The next block is the first of a signal handler.
    Signal {
        /// In ns; 0: unknown.
        ts: u64,
    },
    /// A handler ended; the next block continues what was interrupted.
    SignalReturn,
    /// Control was moved by something the code does not show (fault, rseq abort, lost flow).
    Moved,
    /// The call just made (or the jump into another module) ran unseen and has returned.
    CalledOver,
    /// Another program takes the place of this one, unless the system call comes back.
    Exec,
    /// Nothing happened; it is this late (the recorder's clock, between chunks of a busy loop).
    Clock {
        /// In ns; 0: unknown.
        ts: u64,
    },
    /// A system call begins.
    SyscallEnter {
        /// As x86-64 Linux counts them.
        number: u32,
        /// In ns; 0: unknown.
        ts: u64,
    },
    /// A system call ended.
    SyscallExit {
        /// As x86-64 Linux counts them.
        number: u32,
        /// Negative errno where it failed.
        result: i64,
        /// In ns; 0: unknown.
        ts: u64,
    },
}

impl Event {
    /// When it happened, if it is known.
    pub fn ts(&self) -> Option<u64> {
        match *self {
            Event::Start { ts }
            | Event::Exit { ts }
            | Event::Signal { ts }
            | Event::SyscallEnter { ts, .. }
            | Event::SyscallExit { ts, .. }
            | Event::Clock { ts } => Some(ts).filter(|&ts| ts != 0),
            Event::SignalReturn | Event::Moved | Event::CalledOver | Event::Exec => None,
        }
    }
}

/// Takes a thread's flow, in order.
pub trait Sink {
    /// Control entered the block.
    fn block(&mut self, id: u32);
    /// Control went through `round` over and over, `count` blocks in all.
    fn cycle(&mut self, round: &[u32], count: u64) {
        for index in 0..count {
            self.block(round[(index % round.len() as u64) as usize]);
        }
    }
    /// Something else happened.
    fn event(&mut self, event: Event);
}

/// A flow could not be read to its end. `.0` is the text of the layer below.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct FlowError(pub String);

impl From<FlowError> for Failure {
    fn from(error: FlowError) -> Failure {
        Failure::bad_file(
            "A thread's flow can't be read",
            error.0,
            "`flagfinder trace check FILE` shows what is damaged. Record the run again.",
            "`flagfinder trace info FILE` and other traces work.",
        )
    }
}

/// One thread's flow, which can be walked more than once.
pub trait Flow: Sync {
    /// Feeds the whole flow to `sink`.
    ///
    /// # Errors
    /// When it cannot be read; what was fed until then stands.
    fn walk<S: Sink>(&self, sink: &mut S) -> Result<(), FlowError>;

    /// About how many blocks it has; 0: not known.
    fn blocks(&self) -> u64 {
        0
    }

    /// Where the `index`th block (from 0) is in the recording, if it has such positions.
    fn position(&self, _index: u64) -> Option<u64> {
        None
    }
}

/// One thread of a run.
pub struct ThreadInput<F> {
    /// Kernel thread id.
    pub tid: u32,
    /// Index into [`Run::processes`].
    pub process: usize,
    /// Thread name as last seen; empty when unknown.
    pub name: String,
    /// Thread that created it; 0 when unknown or for a process's first thread.
    pub creator: u32,
    /// Its blocks and events, from the beginning.
    pub flow: F,
}

/// One image of a process of a run.
pub struct ProcessInput {
    /// As the kernel numbers processes.
    pub pid: u32,
    /// Number of the process's image, from 1: each exec begins another one.
    pub image: u32,
    /// Another program took its place by exec.
    pub replaced: bool,
    /// The programs that led to it, the latest first: those that the process ran before, then its
    /// parent's.
    pub started_by: Vec<String>,
    /// File name of the executable, without its folder.
    pub program: String,
    /// In any order; each block that the flow of a thread names.
    pub blocks: Vec<RawBlock>,
    /// A signal ended it.
    pub killed: bool,
}

/// One recorded run.
pub struct Run<F> {
    /// Its processes, first one first.
    pub processes: Vec<ProcessInput>,
    /// Of all its processes.
    pub threads: Vec<ThreadInput<F>>,
    /// When the recording ended (ns, same clock as the events); 0 when unknown.
    pub end_ts: u64,
}
