// SPDX-License-Identifier: MIT
//! A run asked about single moments: what a branch or a store was made from, who wrote a word, what
//! a thread is in.
//!
//! In: a trace, and places in its threads' flow. Out: [`Made`] and [`Written`], in terms that can
//! be compared with another run's. Blind spots: what was made from values that were lost.

use std::cell::OnceCell;

use flagfinder_analysis::{origins, Origin};
use flagfinder_code::{Code, DataKind, Names};
use flagfinder_diff::{CodePlace, ThreadRef};
use flagfinder_linux::syscalls;
use flagfinder_machine::{window_until, Window};
use flagfinder_trace::{Event, Flow, Process, Result, Thread, Trace};

use crate::block_set::BlockSet;
use crate::counterpart;
use crate::evidence::Outside;
use crate::owed::came_back;
use crate::passes::ask;
use crate::run::Run;
use crate::stores::{self, Stores};

/// One trace, to be asked; each of its processes is read when it is first asked about.
pub struct Moments<'t> {
    trace: &'t Trace,
    runs: Vec<OnceCell<Run<'t>>>,
}

/// Something that a value was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// The instruction that read it, or the system call's.
    pub place: CodePlace,
    /// What was read there, or answered.
    pub what: What,
}

/// A value, and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It was read from memory.
    Word {
        /// For people: what the word is called.
        name: String,
        /// Run-time address.
        address: u64,
        /// How many were read.
        bytes: u32,
        /// `None`: not known.
        value: Option<u64>,
    },
    /// A system call returned it, or wrote it into memory.
    Call {
        /// `its `read` on fd 3 returned 5`
        text: String,
        /// As x86-64 Linux counts them.
        number: u32,
        /// Negative errno; `None`: it never came back.
        result: Option<i64>,
    },
}

/// A system call that a thread made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// As x86-64 Linux counts them.
    pub number: u32,
    /// All six argument registers, used or not.
    pub args: [u64; 6],
    /// `None`: it never came back.
    pub result: Option<i64>,
    /// When it began (ns).
    pub began: u64,
    /// When it came back, or else began.
    pub ts: u64,
    /// Flow position of the block that made it.
    pub pos: u64,
}

/// Stores of one instruction to a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Who stored.
    pub thread: ThreadRef,
    /// The instruction.
    pub place: CodePlace,
    /// Its name.
    pub code: Code,
    /// The value of the last store.
    pub value: Option<u64>,
    /// How many.
    pub count: u64,
    /// Flow position of the block that stored last.
    pub pos: u64,
}

impl<'t> Moments<'t> {
    /// Nothing is read yet.
    pub fn new(trace: &'t Trace) -> Self {
        let mut runs = Vec::new();
        runs.resize_with(trace.processes().len(), OnceCell::new);
        Moments { trace, runs }
    }

    fn run(&self, thread: &ThreadRef) -> Result<Option<(&Run<'t>, &'t Thread)>> {
        let processes: &'t [Process] = self.trace.processes();
        let is_it = |process: &Process| (process.pid, process.image) == (thread.pid, thread.image);
        let Some(at) = processes.iter().position(is_it) else {
            return Ok(None);
        };
        let mut lives = processes[at].threads().iter().rev();
        let Some(found) = lives.find(|other| other.tid == thread.tid) else {
            return Ok(None);
        };
        if let Some(run) = self.runs[at].get() {
            return Ok(Some((run, found)));
        }
        let run = Run::new(&processes[at])?;
        Ok(Some((self.runs[at].get_or_init(|| run), found)))
    }

    /// What the branch at the end of the block at `pos` tested, the nearest first.
    ///
    /// # Errors
    /// When the trace cannot be read.
    pub fn tested(&self, thread: &ThreadRef, pos: u64) -> Result<Vec<Made>> {
        self.made(thread, pos, |window| window.len().checked_sub(1))
    }

    /// What the instruction at `place`, in the block at `pos`, stored.
    ///
    /// # Errors
    /// When the trace cannot be read.
    pub fn stored(&self, thread: &ThreadRef, pos: u64, place: &CodePlace) -> Result<Vec<Made>> {
        let Some((run, _)) = self.run(thread)? else {
            return Ok(Vec::new());
        };
        self.made(thread, pos, |window| {
            let mut steps = (0..window.len()).rev().take(256);
            steps.find(|&step| place_of(run, window.pc(step)) == *place)
        })
    }

    fn made(
        &self,
        thread: &ThreadRef,
        pos: u64,
        step: impl FnOnce(&Window) -> Option<u32>,
    ) -> Result<Vec<Made>> {
        let Some((run, thread)) = self.run(thread)? else {
            return Ok(Vec::new());
        };
        let window = window_until(&run.blocks, thread, pos)?;
        let found = step(&window).map_or(Vec::new(), |step| origins(&window, step, true));
        let made = found.into_iter().filter_map(|origin| {
            let (step, what) = match origin {
                Origin::Word {
                    step,
                    address,
                    bytes,
                    value,
                } => {
                    // The word holds what it always held: only the place that was read differs.
                    if run.names.data(address).kind == DataKind::ReadOnly {
                        return None;
                    }
                    let name = match is_from_start(run, address) {
                        true => "a byte of the command line or of the environment".into(),
                        false => run.names.data(address).name,
                    };
                    let word = What::Word {
                        name,
                        address,
                        bytes,
                        value,
                    };
                    (step, word)
                }
                Origin::Call { step } => {
                    let call = window.syscall_at(step)?;
                    let text = call.result.and_then(|result| {
                        came_back((call.number, call.args), result, &run.names, true)
                    });
                    let call = What::Call {
                        text: text.unwrap_or_else(|| syscalls::name(call.number)),
                        number: call.number,
                        result: call.result,
                    };
                    (step, call)
                }
            };
            let place = place_of(run, window.pc(step));
            Some(Made { place, what })
        });
        Ok(made.collect())
    }

    /// Who wrote to a word of the thread's process, and what.
    ///
    /// # Errors
    /// When the trace cannot be read.
    pub fn writers(&self, of: &ThreadRef, address: u64, bytes: u32) -> Result<Vec<Written>> {
        let Some((run, _)) = self.run(of)? else {
            return Ok(Vec::new());
        };
        let mut questions = stores::Questions::default();
        questions.watch(address, bytes, (0, address), None);
        let mut stores = Stores::new(questions);
        ask(run, &BlockSet::default(), &mut stores)?;
        let mut outside = [Outside::default()];
        stores.tell(None, &mut outside);
        let found = outside[0].stores.remove(&address).unwrap_or_default();
        let written = found.into_iter().map(|store| {
            let threads = run.process.threads();
            let thread = threads.iter().rev().find(|t| t.tid == store.tid);
            Written {
                thread: ThreadRef {
                    tid: store.tid,
                    name: thread.map_or_else(String::new, |thread| thread.name.clone()),
                    ..of.clone()
                },
                place: place_of(run, store.pc),
                code: run.names.code(store.pc),
                value: store.value,
                count: store.count,
                pos: store.pos,
            }
        });
        Ok(written.collect())
    }

    /// The address in this run of a word of a thread's process in another run.
    ///
    /// # Errors
    /// When a trace cannot be read.
    pub fn counterpart(
        &self,
        here: &ThreadRef,
        other: &Moments,
        there: &ThreadRef,
        address: u64,
    ) -> Result<Option<u64>> {
        let (Some((ours, _)), Some((theirs, _))) = (self.run(here)?, other.run(there)?) else {
            return Ok(None);
        };
        Ok(counterpart::by_home(&theirs.names, address, &ours.names))
    }

    /// Is it in what the kernel put on the stack before the program began: the command line, the
    /// environment?
    ///
    /// # Errors
    /// When the trace cannot be read.
    pub fn is_from_start(&self, of: &ThreadRef, address: u64) -> Result<bool> {
        let Some((run, _)) = self.run(of)? else {
            return Ok(false);
        };
        Ok(is_from_start(run, address))
    }

    /// The names of the thread's process.
    ///
    /// # Errors
    /// When the trace cannot be read.
    pub fn names(&self, of: &ThreadRef) -> Result<Option<&Names>> {
        Ok(self.run(of)?.map(|(run, _)| &run.names))
    }

    /// What stands at a place, with the names of the thread's process.
    ///
    /// # Errors
    /// When the trace cannot be read.
    pub fn code(&self, of: &ThreadRef, place: &CodePlace) -> Result<Option<Code>> {
        let Some((run, _)) = self.run(of)? else {
            return Ok(None);
        };
        let at = crate::find::run_time(run.process, place);
        Ok(at.map(|pc| run.names.code(pc)))
    }

    /// The calls of a thread, in order.
    ///
    /// # Errors
    /// When the trace cannot be read.
    pub fn calls(&self, thread: &ThreadRef) -> Result<Vec<Call>> {
        let mut calls: Vec<Call> = Vec::new();
        let Some((_, thread)) = self.run(thread)? else {
            return Ok(calls);
        };
        let mut block = 0;
        for item in thread.flow() {
            match item? {
                Flow::Block { pos, .. } => block = pos,
                Flow::Event {
                    event: Event::SyscallEnter(enter),
                    ..
                } => calls.push(Call {
                    number: enter.number,
                    args: enter.args,
                    result: None,
                    began: enter.ts,
                    ts: enter.ts,
                    pos: block,
                }),
                Flow::Event {
                    event: Event::SyscallExit { ts, result, .. },
                    ..
                } => {
                    if let Some(last) = calls.last_mut() {
                        last.result = Some(result);
                        last.ts = ts;
                    }
                }
                _ => {}
            }
        }
        Ok(calls)
    }
}

fn is_from_start(run: &Run, address: u64) -> bool {
    let first = run.process.threads().first().and_then(|first| first.start);
    let begins = first.map_or(u64::MAX, |start| start.stack_pointer);
    address >= begins && run.names.data(address).kind == DataKind::Stack
}

fn place_of(run: &Run, pc: u64) -> CodePlace {
    let place = run.code.place(pc);
    let module = place.module.as_ref();
    CodePlace {
        module: module.map_or_else(String::new, |module| module.name.to_string()),
        offset: place.offset,
    }
}
