//! Running a thread's recorded values through the evaluator.
//!
//! In: flow and values of one span. Out: calls to a [`Visitor`], with what is known of the machine at each
//! block's entry and after each instruction. Knowledge that contradicts where control went is dropped and counted.
//! Blind spots: memory that system calls fill is known only where `syscalls::outputs` says so.

use std::ops::ControlFlow;

use flagfinder_code::CodeBlock;
use flagfinder_trace::{
    Block, BlockId, Event, Process, Registers, ReplayItem, Result, SlotKind, Thread, ValueSpan,
};
use iced_x86::{FlowControl, InstructionInfoFactory, Mnemonic};
use rustc_hash::FxHashMap;

use crate::decoded::{Decoded, RSP};
use crate::evaluator::{Evaluator, Recorded};
use crate::syscalls::outputs;
use crate::value::{Machine, Value};

/// Sees what a [`walk`] computes.
pub trait Visitor {
    /// Control enters the block at flow position `pos`.
    fn block(&mut self, id: BlockId, pos: u64, machine: &Machine) -> ControlFlow<()>;
    /// An instruction ran; `evaluator` holds its accesses and the machine after it.
    fn step(&mut self, code: &Decoded, evaluator: &Evaluator);
}

/// What a walk met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walked {
    pub blocks: u64,
    /// How often knowledge was dropped because control went elsewhere than it said.
    pub contradictions: u64,
}

/// Walks one span of the thread's values, to its end or until the visitor breaks.
///
/// # Errors
/// When the trace cannot be read.
pub fn walk(
    process: &Process,
    thread: &Thread,
    span: &ValueSpan,
    visitor: &mut impl Visitor,
) -> Result<Walked> {
    let mut walker = Walker {
        process,
        evaluator: Evaluator::default(),
        codes: FxHashMap::default(),
        factory: InstructionInfoFactory::new(),
        pending: None,
        values: Vec::new(),
        call: None,
        walked: Walked::default(),
    };
    walker.evaluator.machine.fs_base = fs_base_at(thread, span.start_pos)?;
    let mut cursor = thread.replay(span);
    while let Some(item) = cursor.next() {
        match item? {
            ReplayItem::Block(block) => {
                walker.flush(visitor, block.block.map(|next| next.pc));
                if let Some(checkpoint) = block.checkpoint {
                    walker.take(checkpoint);
                }
                let machine = &walker.evaluator.machine;
                if visitor.block(block.id, block.pos, machine).is_break() {
                    return Ok(walker.walked);
                }
                walker.walked.blocks += 1;
                walker.values.clear();
                walker
                    .values
                    .extend_from_slice(block.values.unwrap_or_default());
                walker.pending = Some(Pending {
                    id: block.id,
                    valued: block.values.is_some(),
                    unfinished: block.partial,
                    end: None,
                });
            }
            ReplayItem::Event { event, .. } => walker.event(visitor, &event),
            ReplayItem::Gap { .. } => {
                walker.pending = None;
                walker.evaluator.machine.forget();
            }
        }
    }
    walker.flush(visitor, None);
    Ok(walker.walked)
}

/// The thread pointer at a flow position: the start says it, but a process's first thread sets its own.
///
/// # Errors
/// When the trace cannot be read.
pub fn fs_base_at(thread: &Thread, pos: u64) -> Result<Option<u64>> {
    let mut base = thread
        .start
        .map(|start| start.fs_base)
        .filter(|&base| base != 0);
    if base.is_some() {
        return Ok(base);
    }
    for item in thread.flow() {
        match item? {
            item if item.pos() >= pos => break,
            flagfinder_trace::Flow::Event {
                event: Event::SyscallEnter(call),
                ..
            } => {
                if let Some(set) = sets_fs_base(call.number, &call.args) {
                    // libc does so once.
                    base = Some(set);
                    break;
                }
            }
            _ => {}
        }
    }
    Ok(base)
}

fn sets_fs_base(number: u32, args: &[u64; 6]) -> Option<u64> {
    const ARCH_SET_FS: u64 = 0x1002;
    (i64::from(number) == libc::SYS_arch_prctl && args[0] == ARCH_SET_FS).then_some(args[1])
}

/// A block that was entered; it is evaluated when it is known how far it got.
struct Pending {
    id: BlockId,
    valued: bool,
    unfinished: bool,
    /// It was left before this instruction.
    end: Option<u64>,
}

struct Code<'t> {
    block: &'t Block,
    codes: Box<[Decoded]>,
    /// It loads, and the tracer was not asked to record that.
    slotless: bool,
}

struct Walker<'t> {
    process: &'t Process,
    evaluator: Evaluator,
    codes: FxHashMap<BlockId, Code<'t>>,
    factory: InstructionInfoFactory,
    pending: Option<Pending>,
    /// The pending block's slots.
    values: Vec<u8>,
    /// The system call under way.
    call: Option<(u32, [u64; 6])>,
    walked: Walked,
}

impl<'t> Walker<'t> {
    fn take(&mut self, known: &Registers) {
        let machine = &mut self.evaluator.machine;
        for (number, register) in machine.registers.iter_mut().enumerate() {
            if let Some(value) = known.get(number) {
                *register = Value::of(value);
            }
        }
        if let Some(flags) = known.get(RFLAGS) {
            machine.flags = Value::of(flags);
        }
    }

    /// Evaluates the pending block. `next`: where control went from its end, if nothing came between.
    fn flush(&mut self, visitor: &mut impl Visitor, next: Option<u64>) {
        let Some(pending) = self.pending.take() else {
            return;
        };
        if pending.unfinished && pending.end.is_none() {
            self.evaluator.machine.forget();
            return;
        }
        let Some(block) = self.process.block(pending.id) else {
            self.evaluator.machine.forget();
            return;
        };
        let factory = &mut self.factory;
        let code = self.codes.entry(pending.id).or_insert_with(|| {
            let decoded = CodeBlock::decode(block.pc, &block.code);
            let codes = decoded.instructions.iter();
            let codes: Box<[_]> = codes.map(|one| Decoded::new(one, factory)).collect();
            Code {
                slotless: block.slots.is_empty() && codes.iter().any(wants_slot),
                block,
                codes,
            }
        });
        // Loads that nobody recorded must not be answered from what this thread stored long ago.
        if code.slotless || !pending.valued && code.block.slot_bytes > 0 {
            self.evaluator.machine.forget();
            return;
        }
        let codes = &code.codes;
        let mut slots = code.block.slots.iter().peekable();
        let mut values = self.values.as_slice();
        for (index, code) in codes.iter().enumerate() {
            if pending.end == Some(code.pc()) {
                return;
            }
            let mut recorded = Recorded::default();
            let mut results = recorded.registers.iter_mut();
            while let Some(slot) = slots.next_if(|slot| usize::from(slot.instruction) <= index) {
                let Some((bytes, rest)) = values.split_at_checked(usize::from(slot.size)) else {
                    break;
                };
                values = rest;
                let mut wide = [0; 8];
                wide[..bytes.len()].copy_from_slice(bytes);
                let value = u64::from_le_bytes(wide);
                let operand = usize::from(slot.detail);
                match slot.kind {
                    SlotKind::Load => set(&mut recorded.loads, operand, value),
                    SlotKind::Address => set(&mut recorded.addresses, operand, value),
                    SlotKind::Register => {
                        if let Some(result) = results.next() {
                            *result = Some((slot.detail, slot.size, value));
                        }
                    }
                }
            }
            self.evaluator.step(code, &recorded);
            visitor.step(code, &self.evaluator);
        }
        if let (Some(last), Some(next)) = (codes.last(), next) {
            if contradicts(last, &self.evaluator, next) {
                self.walked.contradictions += 1;
                self.evaluator.machine.forget();
            }
        }
    }

    fn event(&mut self, visitor: &mut impl Visitor, event: &Event) {
        if let (Event::Fault { pc, .. }, Some(pending)) = (event, &mut self.pending) {
            pending.end = Some(*pc);
        }
        let moves_control = !matches!(
            event,
            Event::Alloc { .. }
                | Event::Free { .. }
                | Event::ThreadName(_)
                | Event::ValuesOff
                | Event::ValuesOn
                | Event::Fork { .. }
        );
        if moves_control {
            self.flush(visitor, None);
        }
        let machine = &mut self.evaluator.machine;
        match event {
            Event::SyscallEnter(call) => {
                self.call = Some((call.number, call.args));
                if let Some(known) = &call.registers {
                    self.take(known);
                }
            }
            Event::SyscallExit { number, result, .. } => {
                machine.registers[0] = Value::of(*result as u64);
                let call = self.call.take().filter(|call| call.0 == *number);
                let Some((number, args)) = call else {
                    machine.shadow.clear();
                    return;
                };
                for (address, bytes) in outputs(number, &args, *result) {
                    machine.shadow.forget(address, bytes);
                }
                if let (0, Some(base)) = (*result, sets_fs_base(number, &args)) {
                    machine.fs_base = Some(base);
                }
            }
            Event::Signal { handler_sp, .. } => self.moved(*handler_sp),
            Event::Transfer { to_sp, .. } => self.moved(*to_sp),
            Event::Gap { .. } | Event::Unknown { .. } => machine.forget(),
            _ => {}
        }
    }

    /// The kernel put other registers in place, of which it is told only where the stack is.
    fn moved(&mut self, stack_pointer: u64) {
        self.call = None;
        let machine = &mut self.evaluator.machine;
        machine.forget();
        if stack_pointer != 0 {
            machine.registers[usize::from(RSP)] = Value::of(stack_pointer);
        }
    }
}

/// A plain load, which a tracer that records this block's values never leaves out.
fn wants_slot(code: &Decoded) -> bool {
    let plain = matches!(
        code.mnemonic,
        Mnemonic::Mov
            | Mnemonic::Movzx
            | Mnemonic::Movsx
            | Mnemonic::Movsxd
            | Mnemonic::Cmp
            | Mnemonic::Test
    );
    plain && code.memory.iter().any(|memory| memory.read)
}

/// Number of rflags among a checkpoint's registers.
const RFLAGS: usize = 17;

fn set(places: &mut [Option<u64>; 2], operand: usize, value: u64) {
    if let Some(place) = places.get_mut(operand) {
        *place = Some(value);
    }
}

/// Whether the state after `last` says that control went elsewhere than to `next`.
fn contradicts(last: &Decoded, evaluator: &Evaluator, next: u64) -> bool {
    let instruction = &last.instruction;
    match instruction.flow_control() {
        FlowControl::ConditionalBranch => evaluator.taken().is_some_and(|taken| {
            let expected = if taken {
                instruction.near_branch_target()
            } else {
                instruction.next_ip()
            };
            expected != next
        }),
        FlowControl::Return | FlowControl::IndirectBranch | FlowControl::IndirectCall => {
            evaluator.target().is_some_and(|target| target != next)
        }
        _ => false,
    }
}
