//! The evaluator over a recorded thread: feeds instructions, recorded values and events
//! to a [`Visitor`].
//!
//! A block whose outcome contradicts what was computed makes everything unknown again
//! until the next checkpoint teaches it: rather nothing than something wrong.

use flagfinder_code::CodeBlock;
use flagfinder_trace::{
    protocol, Block, Event, Process, ReplayItem, Result, Slot, SlotKind, Thread, ValueSpan,
};
use iced_x86::{InstructionInfoFactory, Mnemonic};
use std::sync::OnceLock;

use crate::decoded::{Decoded, Segment};
use crate::evaluator::{Evaluator, Recorded};
use crate::value::{Machine, Value, DF, STATUS};

/// `arch_prctl`'s request to set fs_base: a process's first thread begins without one.
const SET_FS: u64 = 0x1002;

/// Takes what a thread executed.
pub trait Visitor {
    /// Before the instruction: the machine is as it found it.
    fn before(&mut self, _code: &Decoded, _machine: &Machine) {}
    /// After it.
    fn after(&mut self, code: &Decoded, evaluator: &Evaluator);
    /// Control went from the block's last instruction to `next`.
    fn branch(&mut self, _code: &Decoded, _next: u64) {}
    fn event(&mut self, _event: &Event) {}
}

/// Blocks of one process, decoded once for all passes and threads.
pub struct DecodedBlocks<'p> {
    process: &'p Process,
    blocks: Vec<OnceLock<Box<[Decoded]>>>,
}

impl<'p> DecodedBlocks<'p> {
    pub fn new(process: &'p Process) -> Self {
        let mut blocks = Vec::new();
        blocks.resize_with(process.blocks().len(), OnceLock::new);
        DecodedBlocks { process, blocks }
    }

    pub fn process(&self) -> &'p Process {
        self.process
    }

    fn get(&self, block: &Block) -> &[Decoded] {
        let index = self.process.blocks().element_offset(block);
        // Every block of the trace is one of the table's.
        let Some(cell) = index.and_then(|index| self.blocks.get(index)) else {
            return &[];
        };
        cell.get_or_init(|| {
            let mut factory = InstructionInfoFactory::new();
            CodeBlock::decode(block.pc, &block.code)
                .instructions
                .iter()
                .map(|instruction| Decoded::new(instruction, &mut factory))
                .collect()
        })
    }
}

/// What replaying met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    pub instructions: u64,
    /// Times that knowledge was dropped because it contradicted the flow.
    pub contradictions: u64,
    /// Blocks without recorded values.
    pub without_values: u64,
}

/// A block that was possibly left early: it waits for the event that says where.
struct Pending {
    id: u32,
    values: Option<Vec<u8>>,
}

/// What is expected of the next block.
#[derive(Clone, Copy, Default)]
struct Outlook {
    /// Where control must go, if the evaluator knows.
    next: Option<u64>,
}

struct Replay<'r, 'p, V> {
    blocks: &'r DecodedBlocks<'p>,
    evaluator: Evaluator,
    visitor: &'r mut V,
    statistics: Statistics,
    outlook: Outlook,
    /// Block whose last instruction's successor is still to be told.
    last: Option<u32>,
    /// States that signals interrupted.
    interrupted: Vec<Machine>,
}

/// Replays a span of a thread.
///
/// # Errors
/// When the trace cannot be read.
pub fn replay<V: Visitor>(
    blocks: &DecodedBlocks,
    thread: &Thread,
    span: &ValueSpan,
    visitor: &mut V,
) -> Result<Statistics> {
    let mut evaluator = Evaluator::default();
    evaluator.machine.fs_base = thread.start.map(|s| s.fs_base).filter(|&base| base != 0);
    let mut replay = Replay {
        blocks,
        evaluator,
        visitor,
        statistics: Statistics::default(),
        outlook: Outlook::default(),
        last: None,
        interrupted: Vec::new(),
    };
    let mut cursor = thread.replay(span);
    let mut pending: Option<Pending> = None;
    while let Some(item) = cursor.next() {
        match item? {
            ReplayItem::Block(block) => {
                if let Some(held) = pending.take() {
                    replay.pending(&held, None);
                }
                let Some(record) = block.block else {
                    replay.lose();
                    continue;
                };
                if let Some(registers) = block.checkpoint {
                    replay.adopt(registers.valid, &registers.values, true);
                }
                if block.partial {
                    let values = block.values.map(<[u8]>::to_vec);
                    pending = Some(Pending {
                        id: block.id,
                        values,
                    });
                } else {
                    replay.block(record, block.values, None);
                }
            }
            ReplayItem::Event { event, .. } => {
                if let Event::Fault { pc, .. } = event {
                    if let Some(held) = pending.take() {
                        replay.pending(&held, Some(pc));
                    }
                }
                replay.event(&event);
            }
            ReplayItem::Gap { .. } => replay.lose(),
        }
    }
    Ok(replay.statistics)
}

impl<V: Visitor> Replay<'_, '_, V> {
    fn pending(&mut self, held: &Pending, until: Option<u64>) {
        if let Some(block) = self.blocks.process.block(held.id) {
            self.block(block, held.values.as_deref(), until);
            if until.is_some() {
                self.last = None;
                self.outlook = Outlook::default();
            }
        }
    }

    fn lose(&mut self) {
        self.evaluator.machine.forget();
        self.outlook = Outlook::default();
        self.last = None;
    }

    fn adopt(&mut self, valid: u32, values: &[u64; protocol::REG_COUNT], flags: bool) {
        let machine = &mut self.evaluator.machine;
        for (number, register) in machine.registers.iter_mut().enumerate() {
            if valid >> number & 1 == 1 {
                *register = Value::of(values[number]);
            }
        }
        if flags && valid >> 17 & 1 == 1 {
            machine.set_flags(STATUS | DF, values[17]);
        }
    }

    fn block(&mut self, block: &Block, values: Option<&[u8]>, until: Option<u64>) {
        if let Some(last) = self.last.take() {
            let code = self.blocks.process.block(last);
            if let Some(code) = code.and_then(|block| self.blocks.get(block).last()) {
                self.visitor.branch(code, block.pc);
            }
        }
        if self.outlook.next.is_some_and(|next| next != block.pc) {
            self.statistics.contradictions += 1;
            self.evaluator.machine.forget();
        }
        self.outlook = Outlook::default();
        if values.is_none() && !block.slots.is_empty() {
            self.statistics.without_values += 1;
        }
        let mut slots = SlotReader {
            slots: &block.slots,
            values: values.unwrap_or(&[]),
            known: values.is_some(),
        };
        let codes = self.blocks.get(block);
        for (index, code) in codes.iter().enumerate() {
            if until == Some(code.pc()) {
                return;
            }
            let mut recorded = slots.take(index);
            if reads_segment_unsafely(code) {
                // A tracer that reads the operand before the instruction may do so with
                // its own segment base instead of the program's.
                recorded.loads = [None; 2];
            }
            self.visitor.before(code, &self.evaluator.machine);
            self.evaluator.step(code, &recorded);
            self.visitor.after(code, &self.evaluator);
            self.statistics.instructions += 1;
        }
        if let Some(code) = codes.last() {
            self.outlook.next = match self.evaluator.taken() {
                Some(true) => Some(code.instruction.near_branch_target()),
                Some(false) => Some(code.instruction.next_ip()),
                None => self.evaluator.target(),
            };
        }
        self.last = Some(block.id);
    }

    fn event(&mut self, event: &Event) {
        match event {
            Event::SyscallEnter(call) => {
                if i64::from(call.number) == libc::SYS_arch_prctl && call.args[0] == SET_FS {
                    self.evaluator.machine.fs_base = Some(call.args[1]);
                }
                if let Some(registers) = &call.registers {
                    // rax, rcx and r11 are already what the call makes of them.
                    self.adopt(
                        registers.valid & !(1 | 1 << 1 | 1 << 11),
                        &registers.values,
                        false,
                    );
                }
            }
            Event::SyscallExit { result, .. } => {
                self.evaluator.machine.registers[0] = Value::of(*result as u64);
            }
            Event::Signal {
                signo, handler_sp, ..
            } => {
                self.interrupted.push(self.evaluator.machine.clone());
                self.lose();
                let machine = &mut self.evaluator.machine;
                machine.registers[7] = Value::of(u64::from(*signo));
                machine.registers[4] = Value::of(*handler_sp);
                self.interrupted.truncate(16);
            }
            Event::Transfer { to_sp, cause, .. } => {
                let resumed = (*cause == protocol::TRANSFER_SIGRETURN)
                    .then(|| self.interrupted.pop())
                    .flatten();
                self.lose();
                if let Some(machine) = resumed {
                    self.evaluator.machine = machine;
                }
                self.evaluator.machine.registers[4] = Value::of(*to_sp);
            }
            Event::Gap { .. } | Event::Exec { .. } => self.lose(),
            _ => {}
        }
        self.visitor.event(event);
    }
}

/// An fs- or gs-relative operand that is not simply loaded into a register.
fn reads_segment_unsafely(code: &Decoded) -> bool {
    let loads = matches!(
        code.mnemonic,
        Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd
    );
    !loads
        && code
            .memory
            .first()
            .is_some_and(|m| m.segment != Segment::Flat)
}

struct SlotReader<'b> {
    slots: &'b [Slot],
    values: &'b [u8],
    known: bool,
}

impl SlotReader<'_> {
    /// What was recorded for instruction `index`; called in order.
    #[inline]
    fn take(&mut self, index: usize) -> Recorded {
        let mut recorded = Recorded::default();
        let mut registers = 0;
        while let Some((slot, rest)) = self.slots.split_first() {
            if usize::from(slot.instruction) != index {
                break;
            }
            self.slots = rest;
            if !self.known {
                continue;
            }
            let size = usize::from(slot.size);
            let Some((bytes, left)) = self.values.split_at_checked(size) else {
                self.known = false;
                continue;
            };
            self.values = left;
            let mut word = [0; 8];
            word[..size].copy_from_slice(bytes);
            let value = u64::from_le_bytes(word);
            let detail = usize::from(slot.detail);
            match slot.kind {
                SlotKind::Load if detail < recorded.loads.len() => {
                    recorded.loads[detail] = Some(value);
                }
                SlotKind::Address if detail < recorded.addresses.len() => {
                    recorded.addresses[detail] = Some(value);
                }
                SlotKind::Register if registers < recorded.registers.len() => {
                    recorded.registers[registers] = Some((slot.detail, slot.size, value));
                    registers += 1;
                }
                _ => {}
            }
        }
        recorded
    }
}
