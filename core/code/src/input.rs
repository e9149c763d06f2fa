// SPDX-License-Identifier: MIT
//! What naming needs to know about a process; a trace and a live process can both
//! tell it.

use std::path::PathBuf;

use flagfinder_linux::life;
use flagfinder_trace::{DecodedFlow, Event, Process, Segment, Thread, ThreadStart};

use crate::heap::AllocationLog;
use crate::maps::Maps;
use crate::module::ModuleIdentity;

/// Most blocks that are compared with a file that has no build-id.
const SAMPLES: usize = 32;

/// A process's first thread sets its fs_base within so many sections, or not at all.
const START_SECTIONS: usize = 8;

/// A module, and where it lies in the process.
#[derive(Clone, Debug)]
pub struct ModuleInput {
    /// Its file's name and build-id.
    pub identity: ModuleIdentity,
    /// Its path as the process mapped it.
    pub path: String,
    /// Where its file can be read now.
    pub file: PathBuf,
    /// Run-time address of ELF vaddr 0.
    pub base: u64,
    /// Run-time extents of its segments.
    pub segments: Vec<Segment>,
    /// Code that ran, by ELF vaddr: what a file without a build-id is checked with.
    pub samples: Vec<(u64, Box<[u8]>)>,
}

impl ModuleInput {
    /// Is `name` its path, or its file's name?
    pub fn is_called(&self, name: &str) -> bool {
        self.path == name || *self.identity.name == *name
    }

    /// Is `later` this module, at the same place?
    pub(crate) fn is_still(&self, later: &ModuleInput) -> bool {
        let of = |module: &ModuleInput| (module.base, module.path.clone(), module.file.clone());
        of(self) == of(later) && self.identity == later.identity
    }
}

/// A thread, in order of creation.
#[derive(Clone, Debug, Default)]
pub struct ThreadInput {
    /// Its id in our own pid namespace.
    pub tid: u32,
    /// Its id as it sees it itself, in its own pid namespace; a trace has no other.
    pub own_id: u32,
    /// Empty when unknown.
    pub name: String,
    /// Where its thread descriptor lies; `None` when unknown.
    pub fs_base: Option<u64>,
    /// Stack pointer when the thread started (its stack lies below), or a later one.
    pub stack_pointer: Option<u64>,
    /// `stack_pointer` is that of its start.
    pub is_from_start: bool,
    /// Its open calls, innermost first.
    pub frames: Vec<StackFrame>,
}

/// One open call of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackFrame {
    /// Where it executes, or will go on (behind the call).
    pub pc: u64,
    /// Stack pointer there.
    pub sp: u64,
    /// Canonical frame address: just above the return address, that is the stack
    /// pointer at the function's first instruction plus 8.
    pub cfa: u64,
}

/// Where a module's thread-local block lies in one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsBlock {
    /// Index into `modules`.
    pub module: usize,
    /// Of the thread, as in [`ThreadInput`].
    pub tid: u32,
    /// Run-time address of the block's first byte.
    pub start: u64,
}

/// All that naming knows of one process.
#[derive(Clone, Debug, Default)]
pub struct NamesInput {
    /// In load order, the executable first.
    pub modules: Vec<ModuleInput>,
    /// Oldest first; the newest that knows an address is believed.
    pub maps: Vec<Maps>,
    /// In order of creation.
    pub threads: Vec<ThreadInput>,
    /// Empty unless they were read from a trace.
    pub allocations: AllocationLog,
    /// Read from the process. If there is none, static blocks are computed.
    pub tls_blocks: Vec<TlsBlock>,
}

impl NamesInput {
    /// From a trace. `allocations` costs a pass over all flow, so the caller decides
    /// ([`AllocationLog::from_process`], or an empty one).
    pub fn from_process(process: &Process, allocations: AllocationLog) -> Self {
        let mut modules: Vec<ModuleInput> = Vec::new();
        for module in process.modules() {
            let needs_samples = module.build_id.is_empty();
            let in_module = process.blocks().iter().filter(|block| {
                needs_samples && block.module == Some(module.id) && !block.code.is_empty()
            });
            let samples = in_module
                .take(SAMPLES)
                .map(|block| (block.pc.wrapping_sub(module.base), block.code.clone()));
            modules.push(ModuleInput {
                identity: ModuleIdentity::new(&module.path, &module.build_id),
                path: module.path.clone(),
                file: PathBuf::from(&module.path),
                base: module.base,
                segments: module.segments.clone(),
                samples: samples.collect(),
            });
        }
        let mut in_order: Vec<&Thread> = process.threads().iter().collect();
        // The kernel counts thread ids up and then begins anew below the process's own;
        // recorded is when threads began to run, which is another order.
        in_order.sort_by_key(|thread| thread.tid.wrapping_sub(process.pid));
        let threads = in_order.into_iter().map(|thread| ThreadInput {
            tid: thread.tid,
            own_id: thread.tid,
            name: thread.name.clone(),
            fs_base: start_value(thread, |s| s.fs_base).or_else(|| set_fs_base(thread)),
            stack_pointer: start_value(thread, |s| s.stack_pointer),
            is_from_start: thread.creator_tid().is_some(),
            frames: Vec::new(),
        });
        NamesInput {
            modules,
            maps: process
                .maps()
                .iter()
                .map(|m| Maps::parse(&m.text))
                .collect(),
            threads: threads.collect(),
            allocations,
            tls_blocks: Vec::new(),
        }
    }
}

/// 0 stands for unknown.
fn start_value(thread: &Thread, get: impl Fn(ThreadStart) -> u64) -> Option<u64> {
    thread.start.map(get).filter(|&value| value != 0)
}

/// The fs_base that a thread gave itself: the first thread of a process begins
/// without one, and its dynamic linker or C library asks the kernel for it.
fn set_fs_base(thread: &Thread) -> Option<u64> {
    let mut decoder = thread.flow_decoder();
    let mut flow = DecodedFlow::default();
    for section in 0..thread.flow_section_count().min(START_SECTIONS) {
        decoder.decode_folded(section, &mut flow).ok()?;
        for (_, _, event) in &flow.events {
            if let Event::SyscallEnter(enter) = event {
                if let Some(base) = life::thread_pointer(enter.number, &enter.args) {
                    return Some(base);
                }
            }
        }
    }
    None
}
