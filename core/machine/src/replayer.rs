// SPDX-License-Identifier: MIT
//! The evaluator over a recorded thread: feeds instructions, recorded values and events to a
//! [`Visitor`].
//!
//! If a block's outcome contradicts what was computed, everything becomes unknown until the next
//! checkpoint: an unknown value is better than a wrong one. Blind spots: memory that system calls
//! fill is known only if `syscalls::outputs` says so; a signal handler that began before the span
//! leaves nothing known when it returns.

use std::ops::ControlFlow;

use flagfinder_linux::life;
use flagfinder_linux::syscalls::outputs;
use flagfinder_trace::{
    protocol, Block, BlockId, Event, ReplayItem, Result, Slot, SlotKind, Thread, ValueSpan,
};

use crate::decoded::{reads_segment_unsafely, Decoded, RSP};
use crate::decoded_blocks::DecodedBlocks;
use crate::evaluator::{Access, Evaluator, Recorded};
use crate::value::{Machine, Value, DF, STATUS};

/// How many interrupted states of nested signal handlers are kept.
const INTERRUPTED: usize = 16;
/// Number of rflags among a checkpoint's registers.
const RFLAGS: usize = 17;

/// What of a block's instructions a visitor is shown. The less it is, the faster the replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// Each, before and after.
    Everything,
    /// What they store, and calls and returns before they are made.
    Stores,
    /// At least those that it chooses, after.
    Chosen,
    /// None of them; control flow and events only.
    Nothing,
}

/// Takes what a thread executed.
pub trait Visitor {
    /// Control enters the block at flow position `pos`; breaking ends the replay before it.
    fn enter(&mut self, _id: BlockId, _pos: u64, _machine: &Machine) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
    /// What it is to be shown of the block that was just entered.
    fn wants(&self) -> Wants {
        Wants::Everything
    }
    /// Before the instruction: the machine is as it found it.
    fn before(&mut self, _code: &Decoded, _machine: &Machine) {}
    /// After it.
    fn after(&mut self, code: &Decoded, evaluator: &Evaluator);
    /// Where only chosen ones are wanted: is this one?
    fn chooses(&self, _code: &Decoded) -> bool {
        false
    }
    /// Instead of `after`, where only stores are wanted.
    fn stored(&mut self, _code: &Decoded, _machine: &Machine, _store: &Access) {}
    /// Control went from the block's last instruction to `next`.
    fn branch(&mut self, _code: &Decoded, _next: u64) {}
    /// The trace tells of this between two blocks.
    fn event(&mut self, _event: &Event) {}
}

/// How a replay went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// How often knowledge was dropped because it contradicted the flow.
    pub contradictions: u64,
}

/// A block that was possibly left early: it waits for the event that says where.
struct Pending {
    id: BlockId,
    values: Option<Vec<u8>>,
}

struct Replay<'r, 'p, V> {
    blocks: &'r DecodedBlocks<'p>,
    evaluator: Evaluator,
    visitor: &'r mut V,
    statistics: Statistics,
    /// Where control must go next, if the evaluator knows.
    next: Option<u64>,
    /// The instruction whose successor is still to be told.
    last: Option<&'r Decoded>,
    call: Option<(u32, [u64; 6])>,
    /// States that signals interrupted.
    interrupted: Vec<Machine>,
}

/// Replays a span of a thread, to its end or until the visitor breaks.
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
    evaluator.machine.fs_base = blocks.fs_base(thread, span.start_pos)?;
    let mut replay = Replay {
        blocks,
        evaluator,
        visitor,
        statistics: Statistics::default(),
        next: None,
        last: None,
        call: None,
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
                if let Some(record) = block.block {
                    replay.arrive(record.pc);
                }
                if let Some(registers) = block.checkpoint {
                    replay.adopt(registers.valid, &registers.values);
                }
                let machine = &replay.evaluator.machine;
                if replay
                    .visitor
                    .enter(block.id, block.pos, machine)
                    .is_break()
                {
                    return Ok(replay.statistics);
                }
                let Some(record) = block.block else {
                    replay.lose();
                    continue;
                };
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
    if let Some(next) = cursor.successor().and_then(|id| blocks.process().block(id)) {
        replay.arrive(next.pc);
    }
    Ok(replay.statistics)
}

impl<V: Visitor> Replay<'_, '_, V> {
    fn pending(&mut self, held: &Pending, until: Option<u64>) {
        if let Some(block) = self.blocks.process().block(held.id) {
            self.block(block, held.values.as_deref(), until);
            if until.is_some() {
                self.last = None;
                self.next = None;
            }
        }
    }

    fn lose(&mut self) {
        self.evaluator.machine.forget();
        self.next = None;
        self.last = None;
        self.call = None;
    }

    fn adopt(&mut self, valid: u32, values: &[u64; protocol::REG_COUNT]) {
        let machine = &mut self.evaluator.machine;
        for (number, register) in machine.registers.iter_mut().enumerate() {
            if valid >> number & 1 == 1 {
                *register = Value::of(values[number]);
            }
        }
        if valid >> RFLAGS & 1 == 1 {
            machine.set_flags(STATUS | DF, values[RFLAGS]);
        }
    }

    /// Control reaches a block that begins at `pc`.
    fn arrive(&mut self, pc: u64) {
        if let Some(last) = self.last.take() {
            self.visitor.branch(last, pc);
        }
        if self.next.take().is_some_and(|next| next != pc) {
            self.statistics.contradictions += 1;
            self.evaluator.machine.forget();
        }
    }

    fn block(&mut self, block: &Block, values: Option<&[u8]>, until: Option<u64>) {
        let blocks = self.blocks;
        let Some(codes) = blocks.get(block) else {
            return;
        };
        // Loads whose values were not recorded must not be answered from what this thread stored
        // long ago.
        let missing = Recorded {
            missing: codes.slotless || values.is_none() && !block.slots.is_empty(),
            ..Recorded::default()
        };
        let mut wants = self.visitor.wants();
        let chosen = |&index: &u32| self.visitor.chooses(&codes.instructions[index as usize]);
        if wants == Wants::Chosen && codes.left_out.iter().any(chosen) {
            wants = Wants::Everything;
        }
        if wants != Wants::Everything && until.is_none() && !missing.missing {
            let (slots, values) = (&block.slots, values.unwrap_or(&[]));
            let (evaluator, visitor) = (&mut self.evaluator, &mut *self.visitor);
            self.next = match wants {
                Wants::Stores => evaluator.run::<true, false, V>(codes, slots, values, visitor),
                Wants::Chosen => evaluator.run::<false, true, V>(codes, slots, values, visitor),
                _ => evaluator.run::<false, false, V>(codes, slots, values, visitor),
            };
            self.last = codes.instructions.last();
            return;
        }
        let mut slots = SlotReader {
            slots: &block.slots,
            values: values.unwrap_or(&[]),
            known: values.is_some(),
        };
        for (index, code) in codes.instructions.iter().enumerate() {
            if until == Some(code.pc()) {
                return;
            }
            self.visitor.before(code, &self.evaluator.machine);
            if slots.has(index) {
                let mut recorded = slots.recorded(code, index);
                recorded.missing = missing.missing;
                self.evaluator.step(code, &recorded);
            } else {
                self.evaluator.step(code, &missing);
            }
            self.visitor.after(code, &self.evaluator);
        }
        self.last = codes.instructions.last();
        self.next = self.last.and_then(|code| self.evaluator.next(code));
    }

    fn event(&mut self, event: &Event) {
        let machine = &mut self.evaluator.machine;
        match event {
            Event::SyscallEnter(call) => {
                self.call = Some((call.number, call.args));
                if let Some(registers) = &call.registers {
                    // rax, rcx and r11 already hold what the call makes of them, and so may the
                    // flags.
                    let valid = registers.valid & !(1 | 1 << 1 | 1 << 11 | 1 << RFLAGS);
                    self.adopt(valid, &registers.values);
                }
            }
            Event::SyscallExit { number, result, .. } => {
                machine.registers[0] = Value::of(*result as u64);
                match self.call.take().filter(|call| call.0 == *number) {
                    Some((number, args)) => {
                        for (address, bytes) in outputs(number, &args, *result) {
                            machine.shadow.forget(address, bytes);
                        }
                        if let (0, Some(base)) = (*result, life::thread_pointer(number, &args)) {
                            machine.fs_base = Some(base);
                        }
                    }
                    None => machine.shadow.clear(),
                }
            }
            Event::Signal {
                signo, handler_sp, ..
            } => {
                let interrupted = machine.clone();
                if self.interrupted.len() < INTERRUPTED {
                    self.interrupted.push(interrupted);
                }
                self.lose();
                let machine = &mut self.evaluator.machine;
                machine.registers[7] = Value::of(u64::from(*signo));
                machine.registers[usize::from(RSP)] = Value::of(*handler_sp);
            }
            Event::Transfer { to_sp, cause, .. } if *cause == protocol::TRANSFER_CALL_OVER => {
                machine.forget_call();
                machine.registers[usize::from(RSP)] = Value::of(*to_sp);
                (self.next, self.last) = (None, None);
            }
            Event::Transfer { to_sp, cause, .. } => {
                let resumed = (*cause == protocol::TRANSFER_SIGRETURN)
                    .then(|| self.interrupted.pop())
                    .flatten();
                self.lose();
                let machine = &mut self.evaluator.machine;
                if let Some(before) = resumed {
                    *machine = before;
                    // What the handler stored is not known here.
                    machine.shadow.clear();
                }
                if *to_sp != 0 {
                    machine.registers[usize::from(RSP)] = Value::of(*to_sp);
                }
            }
            Event::Gap { .. } | Event::Exec { .. } | Event::Unknown { .. } => self.lose(),
            _ => {}
        }
        self.visitor.event(event);
    }
}

pub(crate) struct SlotReader<'b> {
    pub slots: &'b [Slot],
    pub values: &'b [u8],
    pub known: bool,
}

impl SlotReader<'_> {
    /// Whether something was recorded for instruction `index`.
    #[inline]
    fn has(&self, index: usize) -> bool {
        self.slots
            .first()
            .is_some_and(|slot| usize::from(slot.instruction) == index)
    }

    /// The part of it that can be used.
    #[inline]
    pub fn recorded(&mut self, code: &Decoded, index: usize) -> Recorded {
        let mut recorded = self.take(index);
        if reads_segment_unsafely(code) {
            recorded.loads = [None; 2];
        }
        recorded
    }

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
