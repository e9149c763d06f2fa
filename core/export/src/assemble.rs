// SPDX-License-Identifier: MIT
//! A recording from single instructions: what they loaded and left in registers becomes slots of
//! blocks.

use flagfinder_machine::decoded::{is_syscall, Decoded};
use flagfinder_trace::protocol::TRANSFER_OTHER;
use flagfinder_trace::{
    BlockId, End, Event, Info, Level, Module, ModuleId, Note, Registers, Result, Slot, SlotKind,
    ThreadHandle, TraceBuilder,
};
use iced_x86::FlowControl;
use rustc_hash::FxHashMap;

const RAX: usize = 0;
/// rdi rsi rdx r10 r8 r9.
const ARGUMENTS: [usize; 6] = [7, 6, 2, 10, 8, 9];
const RIP: usize = 16;
/// A slot's instruction has one byte.
const LONGEST: usize = 200;
/// Events are numbered, from behind the times that the builder gives.
const FIRST_EVENT: u64 = 1 << 32;

/// General registers, if known.
pub(crate) type Known = [Option<u64>; 16];

/// The thread that is recorded, and where it stands. Zero: unknown.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// In the pid namespace of this process.
    pub pid: u32,
    /// In the pid namespace of the process `pid`.
    pub tid: u32,
    /// Path of the executable.
    pub path: String,
    /// The thread's.
    pub name: String,
    /// Address of the first instruction that is stepped.
    pub pc: u64,
    /// Before that instruction.
    pub stack_pointer: u64,
    /// Before that instruction.
    pub fs_base: u64,
    /// CLOCK_MONOTONIC ns.
    pub ts: u64,
}

/// One executed instruction.
pub(crate) struct Step<'s> {
    pub decoded: &'s Decoded,
    pub bytes: &'s [u8],
    /// Address and value of each read of 8 bytes or less that is known.
    pub reads: &'s [(u64, u32, u64)],
    pub before: &'s Known,
    pub after: &'s Known,
    /// Address of the instruction that is executed next.
    pub next: u64,
}

/// The block under way.
#[derive(Default)]
struct Open {
    pc: u64,
    module: Option<ModuleId>,
    code: Vec<u8>,
    count: u16,
    slots: Vec<Slot>,
    values: Vec<u8>,
}

/// See the module. One process, one thread.
pub(crate) struct Assembler {
    builder: TraceBuilder,
    pid: u32,
    thread: ThreadHandle,
    blocks: FxHashMap<(u64, Vec<u8>, Vec<u8>), BlockId>,
    open: Option<Open>,
    /// Whether the evaluator knows where it is.
    in_step: bool,
    ts: u64,
}

impl Assembler {
    pub fn new(info: &Info, start: &Start) -> Result<Assembler> {
        let info = Info {
            level: Level::Values,
            ..info.clone()
        };
        let mut builder = TraceBuilder::with_info(&info)?;
        builder.now(start.ts);
        builder.process(start.pid, 0, &start.path);
        let started = Event::ThreadStart {
            tid: start.tid,
            creator_tid: 0,
            ts: start.ts,
            fs_base: start.fs_base,
            stack_pointer: start.stack_pointer,
            start_pc: start.pc,
        };
        let thread = builder.started(start.pid, start.tid, &start.name, &started);
        Ok(Assembler {
            builder,
            pid: start.pid,
            thread,
            blocks: FxHashMap::default(),
            open: None,
            in_step: false,
            ts: FIRST_EVENT.max(start.ts),
        })
    }

    pub fn module(&mut self, module: Module) -> ModuleId {
        self.builder.module(self.pid, module)
    }

    pub fn maps(&mut self, text: &str) {
        self.builder.maps(self.pid, text);
    }

    pub fn note(&mut self, note: &Note) -> Result<()> {
        self.builder.note(note)
    }

    /// It is `ns` now (CLOCK_MONOTONIC).
    pub fn now(&mut self, ns: u64) {
        self.ts = self.ts.max(ns);
        self.builder.now(ns);
    }

    /// The registers are those of the next step from here on, whatever came before.
    /// `cause` is one of `protocol::TRANSFER_*`.
    pub fn moved(&mut self, from_pc: u64, to_pc: u64, to_sp: u64, cause: u32) {
        self.close();
        self.ts += 1;
        let moved = Event::Transfer {
            ts: self.ts,
            from_pc,
            to_pc,
            to_sp,
            cause,
        };
        self.builder.event(self.thread, &moved);
        self.in_step = false;
    }

    /// Between two blocks.
    pub fn event(&mut self, event: &Event) {
        self.close();
        self.builder.event(self.thread, event);
    }

    pub fn step(&mut self, step: &Step, module: Option<ModuleId>) {
        let pc = step.decoded.pc();
        if !self.in_step {
            self.checkpoint(pc, step.before);
        }
        let open = self.open.get_or_insert_with(|| Open {
            pc,
            module,
            ..Open::default()
        });
        open.add(step);
        let flow = step.decoded.instruction.flow_control();
        let falls_through = step.next == step.decoded.instruction.next_ip();
        let call = is_syscall(&step.decoded.instruction);
        let has_room = usize::from(open.count) < LONGEST;
        if flow == FlowControl::Next && falls_through && !call && has_room {
            return;
        }
        self.close();
        if call {
            self.syscall(step);
        }
        if !may_go_to(step) {
            // Code that the trace doesn't show, or a signal.
            let from = step.decoded.instruction.next_ip();
            self.moved(from, step.next, 0, TRANSFER_OTHER);
        }
    }

    /// Instructions are missing here.
    pub fn lost(&mut self) {
        self.close();
        self.ts += 1;
        let gap = Event::Gap {
            ts: self.ts,
            bytes: 0,
        };
        self.builder.event(self.thread, &gap);
        self.in_step = false;
    }

    /// The block under way is left out.
    pub fn drop_open(&mut self) {
        self.open = None;
    }

    pub fn finish(mut self, end: End) -> Result<Vec<u8>> {
        self.close();
        self.builder.killed(self.thread);
        self.builder.end(end);
        self.builder.into_bytes()
    }

    fn checkpoint(&mut self, pc: u64, known: &Known) {
        let mut registers = Registers::default();
        for (number, value) in known.iter().enumerate() {
            if let Some(value) = value {
                registers.valid |= 1 << number;
                registers.values[number] = *value;
            }
        }
        registers.valid |= 1 << RIP;
        registers.values[RIP] = pc;
        self.builder.checkpoint(self.thread, registers);
        self.in_step = true;
    }

    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        let described: Vec<u8> = open
            .slots
            .iter()
            .flat_map(|slot| [slot.instruction, slot.kind as u8, slot.size, slot.detail])
            .collect();
        let builder = &mut self.builder;
        let pid = self.pid;
        let id = *self
            .blocks
            .entry((open.pc, open.code, described))
            .or_insert_with_key(|(pc, code, _)| {
                builder.block(pid, open.module, *pc, code, open.count, &open.slots)
            });
        self.builder.run_with_values(self.thread, id, &open.values);
    }

    fn syscall(&mut self, step: &Step) {
        let register = |number: usize| step.before[number].unwrap_or(0);
        let number = register(RAX) as u32;
        self.ts += 1;
        let enter = Event::enter(self.ts, number, ARGUMENTS.map(register));
        self.builder.event(self.thread, &enter);
        self.ts += 1;
        let exit = Event::SyscallExit {
            ts: self.ts,
            number,
            result: step.after[RAX].unwrap_or(0) as i64,
        };
        self.builder.event(self.thread, &exit);
    }
}

impl Open {
    fn add(&mut self, step: &Step) {
        let instruction = self.count as u8;
        self.count += 1;
        self.code.extend_from_slice(step.bytes);
        let mut slot = |kind, size: u8, detail: u8, value: u64| {
            self.slots.push(Slot {
                instruction,
                kind,
                size,
                detail,
            });
            self.values
                .extend_from_slice(&value.to_le_bytes()[..usize::from(size)]);
        };
        // By operand: reads of the trace stand in the order in which they were made.
        let operands = step.decoded.memory.iter().enumerate();
        let reading = operands.filter(|(_, memory)| memory.read);
        for (read, (operand, memory)) in reading.enumerate().take(2) {
            let bytes = u32::from(memory.bytes);
            let known = step.reads.get(read).filter(|(_, size, _)| *size == bytes);
            let Some((address, size, value)) = known.filter(|_| matches!(bytes, 1 | 2 | 4 | 8))
            else {
                continue;
            };
            slot(SlotKind::Load, *size as u8, read as u8, *value);
            if operand < 2 {
                slot(SlotKind::Address, 8, operand as u8, *address);
            }
        }
        let written = step.decoded.registers_written;
        for (number, value) in step
            .after
            .iter()
            .enumerate()
            .filter(|(n, _)| written >> n & 1 == 1)
        {
            if let Some(value) = value {
                slot(SlotKind::Register, 8, number as u8, *value);
            }
        }
    }
}

/// Can the instruction itself have led to what came next?
fn may_go_to(step: &Step) -> bool {
    let instruction = &step.decoded.instruction;
    let falls_through = step.next == instruction.next_ip();
    match instruction.flow_control() {
        FlowControl::Next | FlowControl::Interrupt => falls_through,
        FlowControl::UnconditionalBranch | FlowControl::Call if is_syscall(instruction) => {
            falls_through
        }
        FlowControl::UnconditionalBranch | FlowControl::Call => {
            step.next == instruction.near_branch_target()
        }
        FlowControl::ConditionalBranch => {
            falls_through || step.next == instruction.near_branch_target()
        }
        _ => true,
    }
}
