// SPDX-License-Identifier: MIT
//! A stretch of one thread's execution, instruction by instruction.
//!
//! Filled by the evaluator from a trace or by single-stepping a live thread; the
//! finder does not see the difference. Known and unknown are told apart everywhere.
//! About 80 bytes an instruction.

use flagfinder_linux::syscalls;
use iced_x86::{Instruction, InstructionInfoFactory};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::decoded::{general, Decoded};
use crate::evaluator::Access;
use crate::value::{Value, CALL_CLOBBERS};

/// A system call within the window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Syscall {
    /// Step of the `syscall` instruction.
    pub step: u32,
    /// As x86-64 Linux counts them.
    pub number: u32,
    /// All six argument registers, used or not.
    pub args: [u64; 6],
    /// Negative errno; `None` when it never returned.
    pub result: Option<i64>,
    /// What the kernel wrote into memory: (address, bytes).
    pub written: Vec<(u64, u64)>,
}

impl Syscall {
    /// Did it take data, or hand some on?
    pub fn moves_data(&self) -> bool {
        syscalls::consumes(self.number) && self.result.is_some_and(|result| result > 0)
    }
}

/// Something that moved control from outside the code, before step `.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Interruption {
    /// A signal was delivered; the step is the handler's first.
    Signal {
        /// As Linux counts them.
        number: u32,
    },
    /// sigreturn, rseq, or a gap in the recording.
    Moved,
    /// The step before called code that ran unseen and returned.
    CalledOver,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Step {
    code: u32,
    first_access: u32,
    first_result: u32,
    rsp: u64,
}

/// See the module. Steps count from 0, oldest first.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Window {
    #[serde(with = "instructions")]
    codes: Vec<Decoded>,
    #[serde(skip)]
    by_pc: FxHashMap<(u64, u64), u32>,
    steps: Vec<Step>,
    accesses: Vec<Access>,
    /// (register number, value after).
    results: Vec<(u8, Value)>,
    /// Its system calls, oldest first.
    pub syscalls: Vec<Syscall>,
    /// What moved control from outside, oldest first.
    pub interruptions: Vec<(u32, Interruption)>,
    /// General registers near the end: those that no step writes had these values all along.
    pub registers: [Value; 16],
    /// How often knowledge was dropped because it contradicted what was recorded.
    pub contradictions: u64,
    /// Time that the window spans, in ns; 0 when unknown.
    pub duration: u64,
}

/// Most steps back in search of a register's value.
const REACH: u32 = 4000;

/// Decoded instructions are decoded anew where they arrive.
mod instructions {
    use super::*;
    use serde::{Deserializer, Serializer};

    pub fn serialize<S: Serializer>(codes: &[Decoded], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(codes.iter().map(|code| &code.instruction))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Decoded>, D::Error> {
        let instructions = Vec::<Instruction>::deserialize(from)?;
        let mut factory = InstructionInfoFactory::new();
        let decoded = instructions.iter().map(|it| Decoded::new(it, &mut factory));
        Ok(decoded.collect())
    }
}

impl Window {
    /// How many steps it has.
    pub fn len(&self) -> u32 {
        self.steps.len() as u32
    }
    /// It has no steps.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
    /// How many static instructions it has; their indexes are below this.
    pub fn code_count(&self) -> usize {
        self.codes.len()
    }
    /// Index of the static instruction that the step executed.
    pub fn code_index(&self, step: u32) -> u32 {
        self.steps[step as usize].code
    }
    /// The static instruction that the step executed.
    pub fn code(&self, step: u32) -> &Decoded {
        &self.codes[self.steps[step as usize].code as usize]
    }
    /// The static instruction with this index.
    pub fn code_at(&self, index: u32) -> &Decoded {
        &self.codes[index as usize]
    }
    /// Run-time address of the step's instruction.
    pub fn pc(&self, step: u32) -> u64 {
        self.code(step).pc()
    }
    /// pc of the step after, if the window has one.
    pub fn next_pc(&self, step: u32) -> Option<u64> {
        (step + 1 < self.len()).then(|| self.pc(step + 1))
    }
    /// Stack pointer before the step; 0 when unknown.
    pub fn rsp(&self, step: u32) -> u64 {
        self.steps[step as usize].rsp
    }
    /// What the step loads and stores, in order.
    pub fn accesses(&self, step: u32) -> &[Access] {
        let first = self.steps[step as usize].first_access as usize;
        let end = self
            .steps
            .get(step as usize + 1)
            .map_or(self.accesses.len(), |s| s.first_access as usize);
        &self.accesses[first..end]
    }
    /// General registers that the step wrote, with their values after it.
    pub fn results(&self, step: u32) -> &[(u8, Value)] {
        let first = self.steps[step as usize].first_result as usize;
        let end = self
            .steps
            .get(step as usize + 1)
            .map_or(self.results.len(), |s| s.first_result as usize);
        &self.results[first..end]
    }
    /// What the step leaves in a register that it writes; unknown where it writes none.
    pub fn result(&self, step: u32, register: u8) -> Value {
        let mut all = self.results(step).iter();
        all.find(|(number, _)| *number == register)
            .map_or(Value::UNKNOWN, |(_, value)| *value)
    }
    /// Did a call that ran unseen return right before the step?
    pub fn comes_from_call(&self, step: u32) -> bool {
        let at = self.interruptions.partition_point(|(at, _)| *at < step);
        let mut here = self.interruptions[at..]
            .iter()
            .take_while(|(at, _)| *at == step);
        here.any(|(_, what)| *what == Interruption::CalledOver)
    }
    /// The value of a register that no instruction writes, nor a call that ran unseen.
    pub fn kept(&self, register: u8) -> Option<u64> {
        let called_over = || {
            let mut all = self.interruptions.iter();
            all.any(|(_, what)| *what == Interruption::CalledOver)
        };
        let never_written = self
            .codes
            .iter()
            .all(|code| code.writes & general(register) == 0)
            && !(CALL_CLOBBERS.contains(&register) && called_over());
        let value = self.registers[usize::from(register)].get(64);
        value.filter(|_| never_written)
    }
    /// What a general register (x86 numbering) held before the step, as far as the window tells.
    pub fn register_before(&self, step: u32, register: u8) -> Option<u64> {
        let mut steps = (step.saturating_sub(REACH)..step).rev();
        let written = steps.find(|&step| self.results(step).iter().any(|(r, _)| *r == register));
        match written {
            Some(step) => self.result(step, register).get(64),
            None => self.kept(register),
        }
    }
    /// An atomic that puts back what was there shows nothing new: a thread that spins on a
    /// test-and-set lock does not write its flag.
    pub fn is_silent(&self, step: u32) -> bool {
        let value = |write| {
            let mut all = self.accesses(step).iter().filter(|a| a.write == write);
            all.next().and_then(|a| a.value.get((a.bytes * 8).min(64)))
        };
        self.code(step).is_atomic() && value(false).is_some() && value(false) == value(true)
    }
    /// The system call that the step made.
    pub fn syscall_at(&self, step: u32) -> Option<&Syscall> {
        let at = self.syscalls.partition_point(|s| s.step < step);
        self.syscalls.get(at).filter(|s| s.step == step)
    }

    /// Interns a static instruction; changed code at one address becomes another.
    pub fn intern(
        &mut self,
        instruction: &Instruction,
        likeness: u64,
        factory: &mut InstructionInfoFactory,
    ) -> u32 {
        let next = self.codes.len() as u32;
        let index = *self
            .by_pc
            .entry((instruction.ip(), likeness))
            .or_insert(next);
        if index == next {
            self.codes.push(Decoded::new(instruction, factory));
        }
        index
    }

    /// Begins a step; its accesses and results follow.
    pub fn push(&mut self, code: u32, rsp: Value) {
        self.steps.push(Step {
            code,
            first_access: self.accesses.len() as u32,
            first_result: self.results.len() as u32,
            rsp: rsp.get(64).unwrap_or(0),
        });
    }
    /// Adds a load or store of the last step.
    pub fn push_access(&mut self, access: Access) {
        self.accesses.push(access);
    }
    /// Adds what the last step leaves in a register.
    pub fn push_result(&mut self, register: u8, value: Value) {
        self.results.push((register, value));
    }

    /// These stretches (first step, end), one behind the other; what ran between two of them counts
    /// as a call that ran unseen.
    pub fn join(&self, stretches: &[(u32, u32)]) -> Window {
        let mut joined = Window {
            codes: self.codes.clone(),
            by_pc: self.by_pc.clone(),
            registers: self.registers,
            contradictions: self.contradictions,
            duration: self.duration,
            ..Window::default()
        };
        for &stretch in stretches {
            joined.push_stretch(self, stretch);
        }
        joined
    }

    fn push_stretch(&mut self, window: &Window, (first, end): (u32, u32)) {
        let begins = self.len();
        let moved = |step: u32| begins + step - first;
        let inside = |step: u32| (first..end).contains(&step);
        let between = (begins > 0).then_some((begins, Interruption::CalledOver));
        let kept = window.interruptions.iter().filter(|(at, _)| inside(*at));
        let kept = kept.map(|(at, what)| (moved(*at), *what));
        self.interruptions.extend(between.into_iter().chain(kept));
        let calls = window.syscalls.iter().filter(|call| inside(call.step));
        self.syscalls.extend(calls.map(|call| Syscall {
            step: moved(call.step),
            ..call.clone()
        }));
        for step in first..end {
            self.push(window.code_index(step), Value::of(window.rsp(step)));
            self.accesses.extend_from_slice(window.accesses(step));
            self.results.extend_from_slice(window.results(step));
        }
    }

    /// Drops all but the last `keep` steps.
    pub fn keep_last(&mut self, keep: u32) {
        let drop = self.len().saturating_sub(keep);
        if drop == 0 {
            return;
        }
        let (first_access, first_result) = self
            .steps
            .get(drop as usize)
            .map_or((0, 0), |s| (s.first_access, s.first_result));
        self.steps.drain(..drop as usize);
        self.accesses.drain(..first_access as usize);
        self.results.drain(..first_result as usize);
        for step in &mut self.steps {
            step.first_access -= first_access;
            step.first_result -= first_result;
        }
        self.syscalls.retain(|s| s.step >= drop);
        for call in &mut self.syscalls {
            call.step -= drop;
        }
        self.interruptions.retain(|(step, _)| *step >= drop);
        for (step, _) in &mut self.interruptions {
            *step -= drop;
        }
    }
}
