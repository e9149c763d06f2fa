// SPDX-License-Identifier: MIT
//! Which earlier step each step's inputs come from.
//!
//! Registers in parts, each flag by itself, memory by byte. System calls are sources:
//! what they return and what the kernel wrote depends on nothing before them. Calls that ran
//! unseen leave registers that depend on nothing known.

use flagfinder_machine::decoded::{general, Resources, ALL_FLAGS};
use flagfinder_machine::value::CALL_CLOBBERS;
use flagfinder_machine::Window;
use rustc_hash::FxHashMap;

/// What a step takes from an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// A register's or flag's value.
    Value,
    /// A register that forms an address.
    Address,
    /// Memory that an earlier step of this thread (or a system call) wrote; the index is
    /// that of the reading access in the step.
    Memory(u8),
}

/// An input and the step that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    pub from: u32,
    /// What is taken over.
    pub input: Input,
}

const NONE: u32 = u32::MAX;

pub struct Dependence {
    first: Vec<u32>,
    edges: Vec<Edge>,
}

struct Memory {
    /// Last writers of each byte, by aligned 8 bytes.
    lines: FxHashMap<u64, [u32; 8]>,
}

impl Memory {
    fn write(&mut self, address: u64, bytes: u32, step: u32) {
        for at in address..address.saturating_add(u64::from(bytes)) {
            self.lines.entry(at >> 3).or_insert([NONE; 8])[(at & 7) as usize] = step;
        }
    }

    fn writers(&self, address: u64, bytes: u32, mut found: impl FnMut(u32)) {
        let mut last = NONE;
        for at in address..address.saturating_add(u64::from(bytes)) {
            let line = self.lines.get(&(at >> 3));
            let step = line.map_or(NONE, |line| line[(at & 7) as usize]);
            if step != NONE && step != last {
                found(step);
                last = step;
            }
        }
    }
}

fn forget(last: &mut [u32; 128], mut set: Resources) {
    while set != 0 {
        last[set.trailing_zeros() as usize] = NONE;
        set &= set - 1;
    }
}

/// Longer reads and writes are not followed byte by byte.
const LONG: u32 = 4096;

impl Dependence {
    /// Dependences of all steps of the window.
    pub fn new(window: &Window) -> Dependence {
        let mut last = [NONE; 128];
        let mut memory = Memory {
            lines: FxHashMap::default(),
        };
        let mut result = Dependence {
            first: Vec::with_capacity(window.len() as usize + 1),
            edges: Vec::new(),
        };
        for step in 0..window.len() {
            result.first.push(result.edges.len() as u32);
            if window.comes_from_call(step) {
                for number in CALL_CLOBBERS {
                    forget(&mut last, general(number));
                }
                forget(&mut last, ALL_FLAGS);
            }
            let begin = result.edges.len();
            let code = window.code(step);
            let edges = &mut result.edges;
            let add = |edges: &mut Vec<Edge>, set: Resources, input: Input| {
                let mut rest = set;
                while rest != 0 {
                    let from = last[rest.trailing_zeros() as usize];
                    rest &= rest - 1;
                    if from != NONE {
                        let edge = Edge { from, input };
                        if !edges[begin..].contains(&edge) {
                            edges.push(edge);
                        }
                    }
                }
            };
            let call = window.syscall_at(step);
            if call.is_none() {
                add(edges, code.reads, Input::Value);
                for reference in code.memory.iter().filter(|m| m.read || m.write) {
                    add(edges, reference.resources(), Input::Address);
                }
            }
            let accesses = window.accesses(step);
            for (index, access) in accesses.iter().enumerate().filter(|(_, a)| !a.write) {
                if let Some(address) = access.address.filter(|_| access.bytes <= LONG) {
                    memory.writers(address, access.bytes, |from| {
                        edges.push(Edge {
                            from,
                            input: Input::Memory(index as u8),
                        });
                    });
                }
            }
            for access in accesses.iter().filter(|a| a.write) {
                if let Some(address) = access.address.filter(|_| !window.is_silent(step)) {
                    memory.write(address, access.bytes.min(LONG), step);
                }
            }
            let mut writes = code.writes;
            if let Some(call) = call {
                for (address, bytes) in &call.written {
                    memory.write(*address, (*bytes).min(u64::from(LONG)) as u32, step);
                }
                writes |= general(0);
            }
            while writes != 0 {
                last[writes.trailing_zeros() as usize] = step;
                writes &= writes - 1;
            }
        }
        result.first.push(result.edges.len() as u32);
        result
    }

    /// The origins of the step's inputs; an input from before the window has none.
    pub fn inputs(&self, step: u32) -> &[Edge] {
        let range = self.first[step as usize]..self.first[step as usize + 1];
        &self.edges[range.start as usize..range.end as usize]
    }
}

#[cfg(test)]
mod tests {
    use flagfinder_machine::value::Value;
    use flagfinder_machine::Interruption;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    use super::*;

    #[test]
    fn registers_of_an_unseen_call_depend_on_nothing_known() {
        let mut window = Window::default();
        let mut factory = InstructionInfoFactory::new();
        // mov eax, 1; mov ebx, 1; call; then, behind the call: test eax, eax; test ebx, ebx
        let codes: [&[u8]; 5] = [
            &[0xb8, 1, 0, 0, 0],
            &[0xbb, 1, 0, 0, 0],
            &[0xe8, 0, 1, 0, 0],
            &[0x85, 0xc0],
            &[0x85, 0xdb],
        ];
        for (number, code) in codes.iter().enumerate() {
            let pc = 0x1000 + 0x10 * number as u64;
            let mut decoder = Decoder::with_ip(64, code, pc, DecoderOptions::NONE);
            let index = window.intern(&decoder.decode(), 0, &mut factory);
            window.push(index, Value::of(0x7000));
        }
        window.interruptions.push((3, Interruption::CalledOver));
        let dependence = Dependence::new(&window);
        assert_eq!(dependence.inputs(3), []);
        assert_eq!(dependence.inputs(4).len(), 1);
        assert_eq!(dependence.inputs(4)[0].from, 1);
    }
}
