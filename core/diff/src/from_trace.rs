// SPDX-License-Identifier: MIT
//! Trace files as input of the alignment.

use crate::cycle;
use crate::input::{
    BlockHome, Event, Flow, FlowError, ProcessInput, RawBlock, Run, Sink, ThreadInput,
};
use flagfinder_code::{CodeBlock, ModuleIdentity};
use flagfinder_trace as trace;
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};

/// Numbers modules over all runs.
#[derive(Debug, Default)]
pub struct ModuleNames {
    numbers: FxHashMap<ModuleIdentity, u32>,
    names: Vec<String>,
}

impl ModuleNames {
    fn number(&mut self, module: &trace::Module) -> u32 {
        let identity = ModuleIdentity::new(&module.path, &module.build_id);
        let names = &mut self.names;
        let name = identity.name.to_string();
        *self.numbers.entry(identity).or_insert_with(|| {
            names.push(name);
            names.len() as u32 - 1
        })
    }

    /// The names by number.
    pub fn into_names(self) -> Vec<String> {
        self.names
    }
}

/// A thread's flow in a trace file.
pub struct TraceFlow<'a> {
    thread: &'a trace::Thread,
}

impl TraceFlow<'_> {
    /// Which block (from 0) is at this position; `None` where none is, or it cannot be read.
    pub(crate) fn index(&self, pos: u64) -> Option<u64> {
        let mut decoder = self.thread.flow_decoder();
        let mut decoded = trace::DecodedFlow::default();
        let starts: Vec<u64> = self.thread.flow_section_extents().map(|s| s.0).collect();
        let section = starts
            .partition_point(|start| *start <= pos)
            .checked_sub(1)?;
        let mut before = 0;
        for earlier in 0..section {
            decoder.decode_folded(earlier, &mut decoded).ok()?;
            before += decoded.block_count();
        }
        for item in self.thread.flow_from(pos) {
            match item.ok()? {
                trace::Flow::Block { pos: at, .. } if at == pos => return Some(before),
                item if item.pos() > pos => return None,
                trace::Flow::Block { .. } => before += 1,
                _ => {}
            }
        }
        None
    }
}

impl Flow for TraceFlow<'_> {
    fn walk<S: Sink>(&self, sink: &mut S) -> Result<(), FlowError> {
        let mut decoder = self.thread.flow_decoder();
        let mut decoded = trace::DecodedFlow::default();
        for section in 0..self.thread.flow_section_count() {
            decoder
                .decode_folded(section, &mut decoded)
                .map_err(|error| FlowError(error.to_string()))?;
            if decoded.gap.is_some() {
                sink.event(Event::Moved);
            }
            let (opened, full) = self.thread.flow_section_times(section);
            sink.event(Event::Clock { ts: opened });
            if let Some(count) = decoded.cycled {
                sink.cycle(&decoded.blocks, count);
                sink.event(Event::Clock { ts: full });
                continue;
            }
            let mut done = 0;
            for (before, _, event) in &decoded.events {
                cycle::feed_flow(sink, &decoded.blocks[done..*before]);
                done = *before;
                if let Some(event) = convert(event) {
                    sink.event(event);
                }
            }
            cycle::feed_flow(sink, &decoded.blocks[done..]);
            sink.event(Event::Clock { ts: full });
        }
        Ok(())
    }

    fn blocks(&self) -> u64 {
        // Most ids take two bytes.
        self.thread.flow_bytes() / 2
    }

    fn position(&self, index: u64) -> Option<u64> {
        let mut decoder = self.thread.flow_decoder();
        let mut decoded = trace::DecodedFlow::default();
        let mut before = 0;
        for (section, (start, _)) in self.thread.flow_section_extents().enumerate() {
            decoder.decode_folded(section, &mut decoded).ok()?;
            let inside = index - before;
            let count = decoded.block_count();
            if inside < count {
                let mut blocks = self.thread.flow_from(start).filter_map(|item| match item {
                    Ok(trace::Flow::Block { pos, .. }) => Some(pos),
                    _ => None,
                });
                return blocks.nth(inside as usize);
            }
            before += count;
        }
        None
    }
}

fn convert(event: &trace::Event) -> Option<Event> {
    Some(match event {
        trace::Event::ThreadStart { ts, .. } => Event::Start { ts: *ts },
        trace::Event::ThreadExit { ts, .. } => Event::Exit { ts: *ts },
        trace::Event::SyscallEnter(enter) => Event::SyscallEnter {
            number: enter.number,
            ts: enter.ts,
        },
        trace::Event::SyscallExit { ts, number, result } => Event::SyscallExit {
            number: *number,
            result: *result,
            ts: *ts,
        },
        trace::Event::Signal { ts, .. } => Event::Signal { ts: *ts },
        trace::Event::Transfer { cause, .. } if *cause == trace::protocol::TRANSFER_SIGRETURN => {
            Event::SignalReturn
        }
        trace::Event::Transfer { cause, .. } if *cause == trace::protocol::TRANSFER_CALL_OVER => {
            Event::CalledOver
        }
        trace::Event::Transfer { .. } | trace::Event::Gap { .. } | trace::Event::Fault { .. } => {
            Event::Moved
        }
        trace::Event::Exec { .. } => Event::Exec,
        _ => return None,
    })
}

/// One trace as a run; `names` is shared by all runs of a diff.
pub fn run<'a>(trace: &'a trace::Trace, names: &mut ModuleNames) -> Run<TraceFlow<'a>> {
    let ends = trace.end();
    let mut run = Run {
        processes: Vec::new(),
        threads: Vec::new(),
        end_ts: ends.map_or(0, |end| end.ts),
    };
    for (index, process) in trace.processes().iter().enumerate() {
        let modules: FxHashMap<trace::ModuleId, (u32, u64)> = process
            .modules()
            .iter()
            .map(|module| (module.id, (names.number(module), module.base)))
            .collect();
        let blocks = process
            .blocks()
            .iter()
            .filter_map(|block| raw_block(process, block, &modules))
            .collect();
        run.processes.push(ProcessInput {
            pid: process.pid,
            image: process.image,
            replaced: process.replaced,
            started_by: trace
                .started_by(process)
                .into_iter()
                .map(String::from)
                .collect(),
            program: process.program().to_string(),
            blocks,
            killed: !process.replaced
                && ends.is_some_and(|ends| {
                    let mut ends = ends.processes.iter();
                    ends.any(|end| end.pid == process.pid && end.signal.is_some())
                }),
        });
        for thread in process.threads() {
            run.end_ts = run.end_ts.max(thread.opened().map_or(0, |opened| opened.1));
            run.threads.push(ThreadInput {
                tid: thread.tid,
                process: index,
                name: thread.name.clone(),
                creator: thread.creator_tid().unwrap_or(0),
                flow: TraceFlow { thread },
            });
        }
    }
    run
}

fn raw_block(
    process: &trace::Process,
    block: &trace::Block,
    modules: &FxHashMap<trace::ModuleId, (u32, u64)>,
) -> Option<RawBlock> {
    let code = CodeBlock::decode(block.pc, &block.code);
    let module = block
        .module
        .or_else(|| process.module_at(block.pc).map(|module| module.id));
    let home = match module.and_then(|id| modules.get(&id)) {
        Some(&(module, base)) => BlockHome::Module { module, base },
        None => BlockHome::Anonymous {
            likeness: likeness(&code),
        },
    };
    Some(RawBlock {
        id: block.id,
        home,
        start: block.pc,
        last: code.branch_pc()?,
        end: code.end,
        ending: code.ending,
    })
}

/// Hash of the instructions without immediates and displacements: in JIT code those hold addresses.
fn likeness(code: &CodeBlock) -> u64 {
    let mut hasher = FxHasher::default();
    for instruction in &code.instructions {
        let registers = (instruction.op0_register(), instruction.op1_register());
        (
            instruction.code() as u32,
            registers.0 as u32,
            registers.1 as u32,
        )
            .hash(&mut hasher);
    }
    hasher.finish()
}
