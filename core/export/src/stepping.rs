// SPDX-License-Identifier: MIT
//! A recording of one thread that a debugger steps.
//!
//! In: what the debugger read around each instruction, as words, and for code seen first its bytes.
//! Out: the recording. What ran in code that the debugger steps over leaves one event: TRANSFER
//! from its entry to where it returned.

use std::ops::Range;

use flagfinder_code::{Maps, NamesInput};
use flagfinder_machine::decoded::Decoded;
use flagfinder_trace::protocol::{TRANSFER_CALL_OVER, TRANSFER_OTHER};
use flagfinder_trace::{End, Event, Info, Module, ModuleId, Note, Result};
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};
use rustc_hash::FxHashMap;

use crate::assemble::{Assembler, Known, Start, Step};
use crate::plan::Plan;

/// First words of what `feed` takes; what follows each is listed there.
mod tag {
    pub const STEP: u64 = 0;
    pub const REGISTERS: u64 = 1;
    pub const MOVED: u64 = 2;
    pub const ALLOCATED: u64 = 3;
    pub const FREED: u64 = 4;
    pub const CALLED_OVER: u64 = 5;
}

struct Code {
    decoded: Decoded,
    bytes: Vec<u8>,
    module: Option<ModuleId>,
    plan: Plan,
}

/// A file's mapping with code in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Run-time addresses.
    pub code: Range<u64>,
    /// As /proc/PID/maps has it, without ` (deleted)`; empty for memory without a name.
    pub path: String,
}

/// One process, one thread: the one that is stepped.
pub struct Stepping {
    assembler: Assembler,
    pid: u32,
    modules: Vec<(Module, ModuleId)>,
    codes: FxHashMap<u64, Code>,
    factory: InstructionInfoFactory,
    registers: Known,
    instructions: u64,
}

impl Stepping {
    /// Begins the recording, with the thread at `start`.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn new(info: &Info, start: &Start) -> Result<Stepping> {
        Ok(Stepping {
            assembler: Assembler::new(info, start)?,
            pid: start.pid,
            modules: Vec::new(),
            codes: FxHashMap::default(),
            factory: InstructionInfoFactory::new(),
            registers: Known::default(),
            instructions: 0,
        })
    }

    /// Instructions so far.
    pub fn instructions(&self) -> u64 {
        self.instructions
    }

    /// Looks for files that the process has mapped since the last time; all mappings with code.
    ///
    /// # Errors
    /// When the process is gone or may not be looked at.
    pub fn look_for_modules(&mut self) -> std::io::Result<Vec<Mapped>> {
        let text = flagfinder_linux::proc::text_of(self.pid, "maps")?;
        let mut changed = false;
        for input in NamesInput::from_live(self.pid)?.modules {
            let starts = input.segments.iter().map(|segment| segment.start);
            let ends = input.segments.iter().map(|segment| segment.end);
            let module = Module {
                path: input.path,
                build_id: input.identity.build_id.to_vec(),
                base: input.base,
                start: starts.min().unwrap_or(input.base),
                end: ends.max().unwrap_or(input.base),
                segments: input.segments,
                ..Module::default()
            };
            let known = |held: &Module| held.path == module.path && held.base == module.base;
            if !self.modules.iter().any(|(held, _)| known(held)) {
                let id = self.assembler.module(module.clone());
                self.modules.push((module, id));
                changed = true;
            }
        }
        if changed {
            self.assembler.maps(&text);
        }
        let maps = Maps::parse(&text);
        let code = maps.all().iter().filter(|mapping| mapping.executable);
        let mapped = code.map(|mapping| Mapped {
            code: mapping.start..mapping.end,
            path: mapping.file().to_owned(),
        });
        Ok(mapped.collect())
    }

    /// What is to be read around the instruction at `pc`, whose first bytes are `bytes`; replaces
    /// what was there.
    pub fn plan(&mut self, pc: u64, bytes: &[u8]) -> &Plan {
        let instruction = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE).decode();
        let decoded = Decoded::new(&instruction, &mut self.factory);
        let module = self.modules.iter().find(|(held, _)| held.contains(pc));
        let code = Code {
            plan: Plan::new(&decoded),
            decoded,
            bytes: bytes[..instruction.len().min(bytes.len())].to_vec(),
            module: module.map(|(_, id)| *id),
        };
        self.codes.insert(pc, code);
        &self.codes[&pc].plan
    }

    /// It is `ns` now (CLOCK_MONOTONIC).
    pub fn now(&mut self, ns: u64) {
        self.assembler.now(ns);
    }

    /// Writes a note into the recording.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn note(&mut self, note: &Note) -> Result<()> {
        self.assembler.note(note)
    }

    /// Takes messages, each a tag and its words:
    /// - STEP pc next known, then for each read of the plan address value (bit i of known: read i
    ///   was possible), then the plan's registers;
    /// - REGISTERS, the 16 of the next step in x86 order: at the beginning, behind the next two,
    ///   and before system calls;
    /// - MOVED from to sp: control is elsewhere;
    /// - CALLED_OVER from to sp: the call to `from` ran, and went on at `to`;
    /// - ALLOCATED address size caller old kind, FREED address caller.
    ///
    /// `None`: they are cut, or of an instruction that nobody planned; what came before is taken.
    pub fn feed(&mut self, words: &[u64]) -> Option<()> {
        let mut rest = words;
        while let Some((&tag, words)) = rest.split_first() {
            rest = match tag {
                tag::STEP => self.step(words)?,
                tag::REGISTERS => {
                    let (given, rest) = words.split_first_chunk::<16>()?;
                    self.registers = given.map(Some);
                    rest
                }
                tag::MOVED => {
                    let (&[from, to, sp], rest) = words.split_first_chunk()?;
                    self.assembler.moved(from, to, sp, TRANSFER_OTHER);
                    rest
                }
                tag::CALLED_OVER => {
                    let (&[from, to, sp], rest) = words.split_first_chunk()?;
                    self.assembler.moved(from, to, sp, TRANSFER_CALL_OVER);
                    rest
                }
                tag::ALLOCATED => {
                    let (&[addr, size, caller_pc, old_addr, kind], rest) =
                        words.split_first_chunk()?;
                    self.assembler.event(&Event::Alloc {
                        addr,
                        size,
                        caller_pc,
                        old_addr,
                        kind: kind as u32,
                    });
                    rest
                }
                tag::FREED => {
                    let (&[addr, caller_pc], rest) = words.split_first_chunk()?;
                    self.assembler.event(&Event::Free { addr, caller_pc });
                    rest
                }
                _ => return None,
            };
        }
        Some(())
    }

    fn step<'w>(&mut self, words: &'w [u64]) -> Option<&'w [u64]> {
        let (&[pc, next, known], rest) = words.split_first_chunk()?;
        let code = self.codes.get(&pc)?;
        let (read, rest) = rest.split_at_checked(2 * code.plan.reads.len())?;
        let (after, rest) = rest.split_at_checked(code.plan.after.len())?;
        let operands = code.plan.reads.iter().zip(read.chunks_exact(2));
        let reads: Vec<(u64, u32, u64)> = operands
            .enumerate()
            .map(|(index, (operand, pair))| {
                let size = if known >> index & 1 == 1 {
                    operand.bytes
                } else {
                    0
                };
                (pair[0], u32::from(size), pair[1])
            })
            .collect();
        let mut left = Known::default();
        for (&number, &value) in code.plan.after.iter().zip(after) {
            left[usize::from(number)] = Some(value);
        }
        self.instructions += 1;
        self.assembler.step(
            &Step {
                decoded: &code.decoded,
                bytes: &code.bytes,
                reads: &reads,
                before: &self.registers,
                after: &left,
                next,
            },
            code.module,
        );
        self.registers = Known::default();
        Some(rest)
    }

    /// The recording's bytes. It ends with the last whole block: a part of one would look like
    /// other code.
    ///
    /// # Errors
    /// When it can't be put together.
    pub fn finish(mut self, end: End) -> Result<Vec<u8>> {
        self.assembler.drop_open();
        self.assembler.finish(end)
    }
}

#[cfg(test)]
#[path = "stepping_tests.rs"]
mod tests;
