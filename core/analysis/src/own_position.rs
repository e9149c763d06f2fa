// SPDX-License-Identifier: MIT
//! Of two words that are compared with each other, the reader's own: `while (queue.head ==
//! queue.tail)`.
//!
//! A queue's reader moves its own position on when something came in, so on the way out of the
//! loop the function that compares them stores to that one. The other is what it waits for. (What
//! the function stored before, it set up.) Blind spots: a store through a register that holds
//! something else by then; functions of unknown extent; jump tables.

use flagfinder_code::Names;
use flagfinder_machine::Window;
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess, OpKind,
    Register,
};
use rustc_hash::FxHashSet;

use crate::analysis::{Analysis, Candidate};
use crate::exit::Exit;
use crate::read_code::{ReadCode, LONGEST};

/// The addresses of such words.
pub fn own_positions(
    window: &Window,
    analysis: &Analysis,
    names: &Names,
    read: &ReadCode,
) -> FxHashSet<u64> {
    let mut found = FxHashSet::default();
    for candidate in &analysis.candidates {
        let Some(exit) = compared_at(analysis, candidate) else {
            continue;
        };
        let step = exit.step;
        let function = names.function(window.pc(step));
        let Some((start, end)) = function.filter(|(start, end)| end - start <= LONGEST) else {
            continue;
        };
        let mut code = vec![0u8; (end - start) as usize];
        let got = read(start, &mut code);
        let registers = |register| window.register_before(step, register);
        let Some(other) = exit.other else { continue };
        let behind = reachable(other, &code[..got], start);
        if stores_to(candidate.address, &registers, &behind) {
            found.insert(candidate.address);
        }
    }
    found
}

/// The addresses of words that keep the loop for as long as they are at their distance from others.
pub fn apart(analysis: &Analysis) -> Vec<u64> {
    let is_one = |candidate: &&Candidate| {
        let conditions = candidate
            .exits
            .iter()
            .map(|&exit| analysis.conditions[exit].as_ref());
        conditions.flatten().any(|condition| {
            condition.mentions(candidate.address, candidate.bytes)
                && condition.stays_at_a_distance()
        })
    };
    let words = analysis.candidates.iter().filter(is_one);
    words.map(|candidate| candidate.address).collect()
}

/// The branch that compares it with another word of memory.
fn compared_at<'a>(analysis: &'a Analysis, candidate: &Candidate) -> Option<&'a Exit> {
    let mut exits = candidate.exits.iter();
    let exit = exits.find(|&&exit| {
        let condition = analysis.conditions[exit].as_ref();
        condition.is_some_and(|c| {
            c.mentions(candidate.address, candidate.bytes) && c.compares_two_words()
        })
    });
    exit.map(|&exit| &analysis.exits[exit])
}

/// The function's instructions that can be reached from `pc`.
fn reachable(pc: u64, function: &[u8], start: u64) -> Vec<Instruction> {
    let mut seen = FxHashSet::default();
    let mut found = Vec::new();
    let mut work = vec![pc];
    while let Some(pc) = work.pop() {
        let bytes = pc
            .checked_sub(start)
            .and_then(|at| function.get(at as usize..));
        let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty() && seen.insert(pc)) else {
            continue;
        };
        let code = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE).decode();
        match code.flow_control() {
            FlowControl::UnconditionalBranch => work.push(code.near_branch_target()),
            FlowControl::ConditionalBranch => {
                work.extend([code.near_branch_target(), code.next_ip()]);
            }
            FlowControl::Return | FlowControl::Exception | FlowControl::IndirectBranch => {}
            _ => work.push(code.next_ip()),
        }
        found.push(code);
    }
    found
}

/// Does this code store to the address, going by what its registers hold where the words are
/// compared?
fn stores_to(address: u64, registers: &dyn Fn(u8) -> Option<u64>, behind: &[Instruction]) -> bool {
    let value = |register: Register| match register {
        Register::None | Register::RIP => Some(0),
        register if register.is_gpr64() => registers(register.number() as u8),
        _ => None,
    };
    let target = |code: &Instruction| {
        let index = value(code.memory_index())?.wrapping_mul(u64::from(code.memory_index_scale()));
        let base = value(code.memory_base())?.wrapping_add(index);
        Some(base.wrapping_add(code.memory_displacement64()))
    };
    let mut factory = InstructionInfoFactory::new();
    behind.iter().any(|code| {
        let explicit = code.op_kinds().any(|kind| kind == OpKind::Memory);
        explicit && code.segment_prefix() == Register::None && target(code) == Some(address) && {
            let used = factory.info(code).used_memory().iter();
            used.map(|memory| memory.access()).any(|access| {
                matches!(
                    access,
                    OpAccess::Write
                        | OpAccess::CondWrite
                        | OpAccess::ReadWrite
                        | OpAccess::ReadCondWrite
                )
            })
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: u64 = 0x7000;
    const RDI: u8 = 7;

    const CODE: u64 = 0x1000;

    /// Does this code, with the queue in rdi, store to the word 0x40 bytes into it?
    fn stores(code: &[u8]) -> bool {
        stores_from(0, code)
    }

    /// The same, where the way out begins that far into the code.
    fn stores_from(exit: u64, code: &[u8]) -> bool {
        let registers = |register| (register == RDI).then_some(QUEUE);
        stores_to(
            QUEUE + 0x40,
            &registers,
            &reachable(CODE + exit, code, CODE),
        )
    }

    #[test]
    fn what_was_set_up_before_is_not_the_readers_own() {
        // mov [rdi+0x40], edx; cmp eax, ecx; je -2; ret
        let code = [0x89, 0x57, 0x40, 0x39, 0xc8, 0x74, 0xfc, 0xc3];
        assert!(stores_from(0, &code));
        assert!(!stores_from(7, &code));
        // The way out may jump back to it.
        let again = [0x89, 0x57, 0x40, 0x39, 0xc8, 0x74, 0xfc, 0xeb, 0xf7];
        assert!(stores_from(7, &again));
    }

    #[test]
    fn what_stores_there_makes_it_the_readers_own() {
        assert!(stores(&[0x89, 0x57, 0x40]), "mov [rdi+0x40], edx");
        let cmpxchg = [0xf0, 0x0f, 0xb1, 0x57, 0x40];
        assert!(stores(&cmpxchg), "lock cmpxchg [rdi+0x40], edx");
    }

    #[test]
    fn reads_and_stores_elsewhere_do_not() {
        assert!(!stores(&[0x8b, 0x47, 0x40]), "mov eax, [rdi+0x40]");
        assert!(!stores(&[0x39, 0x57, 0x40]), "cmp [rdi+0x40], edx");
        assert!(!stores(&[0x89, 0x57, 0x48]), "mov [rdi+0x48], edx");
        assert!(!stores(&[0x89, 0x50, 0x40]), "mov [rax+0x40], edx");
    }
}
