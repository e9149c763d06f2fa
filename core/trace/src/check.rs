// SPDX-License-Identifier: MIT
//! The invariant checker: what every trace must satisfy, whoever recorded it.
//!
//! A trace of a killed target or with counted losses satisfies it; a trace whose
//! losses nobody counted, or whose streams do not fit together, does not. Whether a
//! block may follow another is not asked here: that needs decoded instructions.

use std::collections::HashMap;

use crate::block::BlockId;
use crate::container::Section;
use crate::decoder::DecodedFlow;
use crate::error::Result;
use crate::event::Event;
use crate::flow::GapReason;
use crate::process::Process;
use crate::replay::ReplayItem;
use crate::thread::{Thread, ValueSpan};
use crate::trace::Trace;

/// What every trace must satisfy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// The file's bytes are whole sections with sound checksums and records.
    Intact,
    /// Each section of a stream begins where the one before ended.
    Contiguous,
    /// Whatever is missing is counted in END.
    LossCounted,
    /// Every block that was executed is described.
    BlockKnown,
    /// A block has instructions, and lies in the module it names.
    BlockSound,
    /// A thread's flow begins with its start and ends with its exit.
    ThreadLife,
    /// A syscall's exit follows its enter.
    SyscallPaired,
    /// Times of one thread do not run backwards.
    TimeMonotone,
    /// A fault's pc lies in the block before it.
    FaultInBlock,
    /// Flow uses up the values, section by section.
    ValuesFit,
}

/// A broken rule, told once per thread with the number of times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule that is broken.
    pub rule: Rule,
    /// 0: not of one process.
    pub pid: u32,
    /// Number of the process's image; 0: not of one process.
    pub image: u32,
    /// 0: not of one thread.
    pub tid: u32,
    /// Flow position of the first time.
    pub pos: Option<u64>,
    /// How often it is broken there.
    pub count: u64,
    /// What was found the first time.
    pub text: String,
}

/// Checks every rule over the whole trace. Empty: all hold. Linear in its length.
/// Errors: I/O.
pub fn check(trace: &Trace) -> Result<Vec<Violation>> {
    let mut report = Report::default();
    for damage in trace.damage() {
        let text = format!(
            "{} at file offset {:#x}, {} bytes",
            damage.what, damage.offset, damage.bytes
        );
        report.add(Rule::Intact, 0, 0, None, text);
    }
    for fault in trace.faults() {
        report.add(Rule::Intact, 0, 0, None, fault.clone());
    }
    let mut lost = Lost::default();
    for process in trace.processes() {
        report.image = process.image;
        check_blocks(process, &mut report);
        for thread in process.threads() {
            check_stream(thread, &thread.flow_sections, true, &mut report);
            check_stream(thread, &thread.values_sections, false, &mut report);
            FlowCheck::new(process, thread, &mut report).run(&mut lost)?;
            check_values(thread, &mut lost, &mut report)?;
        }
    }
    report.image = 0;
    if let Some(end) = trace.end() {
        let damaged = !trace.damage().is_empty();
        if lost.flow_gaps > 0
            && end.dropped_flow_bytes == 0
            && end.dropped_sections == 0
            && !damaged
        {
            let text = format!("{} gaps in flow, and END counts no loss", lost.flow_gaps);
            report.add(Rule::LossCounted, 0, 0, None, text);
        }
        let counted = end.dropped_value_chunks + end.dropped_sections;
        if lost.value_chunks > counted && !damaged {
            let text = format!(
                "{} chunks of values are missing, END counts {counted}",
                lost.value_chunks
            );
            report.add(Rule::LossCounted, 0, 0, None, text);
        }
    }
    Ok(report.violations)
}

#[derive(Default)]
struct Lost {
    flow_gaps: u64,
    value_chunks: u64,
}

#[derive(Default)]
struct Report {
    violations: Vec<Violation>,
    /// By rule, process, image, thread.
    index: HashMap<(Rule, u32, u32, u32), usize>,
    /// The image that is looked at.
    image: u32,
}

impl Report {
    fn add(&mut self, rule: Rule, pid: u32, tid: u32, pos: Option<u64>, text: String) {
        let violations = &mut self.violations;
        let image = self.image;
        let index = *self
            .index
            .entry((rule, pid, image, tid))
            .or_insert_with(|| {
                violations.push(Violation {
                    rule,
                    pid,
                    image,
                    tid,
                    pos,
                    count: 0,
                    text,
                });
                violations.len() - 1
            });
        violations[index].count += 1;
    }
}

fn check_blocks(process: &Process, report: &mut Report) {
    for block in process.blocks() {
        if block.code.is_empty() || block.instruction_count == 0 {
            report.add(
                Rule::BlockSound,
                process.pid,
                0,
                None,
                format!("block {} at {:#x} is empty", block.id, block.pc),
            );
        }
        let Some(id) = block.module else { continue };
        match process.module(id) {
            Some(module) if module.contains(block.pc) => {}
            found => {
                let module = found.map_or("an unknown module", |m| m.path.as_str());
                let text = format!(
                    "block {} at {:#x} is said to lie in {module}",
                    block.id, block.pc
                );
                report.add(Rule::BlockSound, process.pid, 0, None, text);
            }
        }
    }
}

fn check_stream(thread: &Thread, sections: &[Section], flow: bool, report: &mut Report) {
    for pair in sections.windows(2) {
        let (before, after) = (&pair[0].header, &pair[1].header);
        let found = if before.is_partial() {
            "a half-filled section is not the last".to_owned()
        } else if flow && after.seq <= before.seq + 1 {
            let end = before.start_pos + before.raw_bytes;
            if after.start_pos == end {
                continue;
            }
            format!(
                "section {} begins at {}, the one before ends at {end}",
                after.seq, after.start_pos
            )
        } else if after.start_pos < before.start_pos {
            format!("section {} begins before the one before it", after.seq)
        } else {
            continue;
        };
        report.add(
            Rule::Contiguous,
            thread.pid,
            thread.tid,
            Some(after.start_pos),
            found,
        );
    }
}

/// System calls that do not return to their caller (x86-64): rt_sigreturn, exit,
/// execve, exit_group, execveat. vfork's and fork's children see an exit only.
const NO_RETURN: [u32; 5] = [15, 60, 59, 231, 322];

struct FlowCheck<'a> {
    process: &'a Process,
    thread: &'a Thread,
    report: &'a mut Report,
    /// Number of the syscall that was entered last, and whether it may stay open.
    open_syscall: Option<u32>,
    syscalls_known: bool,
    last_block: Option<u32>,
    ts: u64,
    exited: bool,
}

impl<'a> FlowCheck<'a> {
    fn new(process: &'a Process, thread: &'a Thread, report: &'a mut Report) -> Self {
        FlowCheck {
            process,
            thread,
            report,
            open_syscall: None,
            // A forked child returns from a call that its parent entered.
            syscalls_known: false,
            last_block: None,
            ts: 0,
            exited: false,
        }
    }

    fn violated(&mut self, rule: Rule, pos: u64, text: String) {
        self.report
            .add(rule, self.thread.pid, self.thread.tid, Some(pos), text);
    }

    fn run(mut self, lost: &mut Lost) -> Result<()> {
        let mut first = true;
        let mut decoder = self.thread.flow_decoder();
        let mut flow = DecodedFlow::default();
        for (index, (start, length)) in self.thread.flow_section_extents().enumerate() {
            decoder.decode_folded(index, &mut flow)?;
            if flow.gap == Some(GapReason::Lost) {
                lost.flow_gaps += 1;
                self.forget();
                first = false;
            }
            let (mut done, mut pos) = (0, start);
            for (before, at, event) in &flow.events {
                self.blocks(&flow.blocks[done..*before], pos);
                first &= *before == 0;
                self.event(event, *at, first);
                lost.flow_gaps += u64::from(matches!(event, Event::Gap { .. }));
                first = false;
                (done, pos) = (*before, *at);
            }
            self.blocks(&flow.blocks[done..], pos);
            if flow.gap == Some(GapReason::Damaged) {
                let end = start + length;
                self.violated(Rule::Intact, end, "a FLOW section is damaged".into());
                self.forget();
            }
            first = false;
        }
        Ok(())
    }

    /// Blocks that follow position `pos`, which what they violate is reported with.
    fn blocks(&mut self, ids: &[BlockId], pos: u64) {
        for &id in ids {
            self.block(id, pos);
        }
    }

    fn forget(&mut self) {
        self.open_syscall = None;
        self.syscalls_known = false;
        self.last_block = None;
    }

    fn block(&mut self, id: u32, pos: u64) {
        if self.process.block(id).is_none() {
            self.violated(Rule::BlockKnown, pos, format!("block {id} has no record"));
        }
        if self.exited {
            self.violated(
                Rule::ThreadLife,
                pos,
                "a block follows the thread's exit".into(),
            );
        }
        if let Some(number) = self
            .open_syscall
            .take()
            .filter(|number| !NO_RETURN.contains(number))
        {
            self.violated(
                Rule::SyscallPaired,
                pos,
                format!("syscall {number} has no exit"),
            );
        }
        self.last_block = Some(id);
    }

    fn event(&mut self, event: &Event, pos: u64, first: bool) {
        let start = matches!(event, Event::ThreadStart { .. });
        if start != first {
            let text = if start {
                "a second start"
            } else {
                "flow does not begin with the thread's start"
            };
            if start || pos == 0 {
                self.violated(Rule::ThreadLife, pos, text.into());
            }
        }
        if let Some(ts) = event.ts() {
            if ts < self.ts {
                self.violated(Rule::TimeMonotone, pos, format!("{} ns back", self.ts - ts));
            }
            self.ts = ts;
        }
        match event {
            Event::SyscallEnter(enter) => {
                if let Some(number) = self
                    .open_syscall
                    .filter(|number| !NO_RETURN.contains(number))
                {
                    self.violated(
                        Rule::SyscallPaired,
                        pos,
                        format!("syscall {number} has no exit"),
                    );
                }
                self.open_syscall = Some(enter.number);
                self.syscalls_known = true;
            }
            Event::SyscallExit { number, .. } => {
                if self.open_syscall.take() != Some(*number) && self.syscalls_known {
                    self.violated(
                        Rule::SyscallPaired,
                        pos,
                        format!("syscall {number} was not entered"),
                    );
                }
                self.syscalls_known = true;
            }
            // Interrupted system calls may be restarted without another enter.
            Event::Signal { .. } | Event::Transfer { .. } | Event::Gap { .. } => {
                self.open_syscall = None;
                self.syscalls_known = false;
            }
            Event::Fault { pc, .. } => {
                let block = self.last_block.and_then(|id| self.process.block(id));
                if block.is_some_and(|block| !(block.pc..=block.end()).contains(pc)) {
                    self.violated(Rule::FaultInBlock, pos, format!("fault at {pc:#x}"));
                }
            }
            Event::ThreadExit { .. } => self.exited = true,
            _ => {}
        }
    }
}

/// The spans without the parts that have no slots: those may be a billion blocks of a loop.
fn with_values(thread: &Thread) -> Vec<ValueSpan> {
    let mut stretches: Vec<ValueSpan> = Vec::new();
    for span in thread.value_spans() {
        let mut open = false;
        for piece in thread.value_pieces(&span) {
            match stretches.last_mut().filter(|_| open) {
                Some(before) if piece.sections > 0 => *before = before.with(&piece),
                _ if piece.sections > 0 => stretches.push(piece),
                _ => {}
            }
            open = piece.sections > 0;
        }
    }
    stretches
}

fn check_values(thread: &Thread, lost: &mut Lost, report: &mut Report) -> Result<()> {
    let mut expected = 0;
    for section in &thread.values_sections {
        lost.value_chunks += section.header.seq.saturating_sub(expected);
        expected = section.header.seq + 1;
    }
    for span in with_values(thread) {
        let mut replay = thread.replay(&span);
        let mut gaps = 0;
        let mut blocks = 0u64;
        let mut last = span.start_pos;
        while let Some(item) = replay.next() {
            match item? {
                ReplayItem::Block(block) => {
                    blocks += u64::from(block.values.is_some());
                    last = block.pos;
                }
                // Behind lost flow the present section is no longer used up.
                ReplayItem::Gap { .. }
                | ReplayItem::Event {
                    event: Event::Gap { .. },
                    ..
                } => gaps += 1,
                ReplayItem::Event { .. } => {}
            }
        }
        if replay.damaged_sections() > 0 {
            let text = format!("{} VALUES sections are damaged", replay.damaged_sections());
            report.add(
                Rule::Intact,
                thread.pid,
                thread.tid,
                Some(span.start_pos),
                text,
            );
            continue;
        }
        let unexplained = replay.mismatches().saturating_sub(2 * gaps);
        if unexplained > 0 || blocks == 0 {
            let text = if blocks == 0 {
                "no block takes these values".to_owned()
            } else {
                format!(
                    "flow and values part {unexplained} times in {} sections, last at {last}",
                    span.sections
                )
            };
            report.add(
                Rule::ValuesFit,
                thread.pid,
                thread.tid,
                Some(span.start_pos),
                text,
            );
        }
    }
    Ok(())
}
