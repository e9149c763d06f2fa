//! Of two words that are compared with each other, the reader's own: `while (queue.head == queue.tail)`.
//!
//! Who reads a queue moves its own position on when something came in, so the function that compares
//! them stores to that one. The other is what it waits for. Blind spots: a store through a register that holds
//! something else by then; functions of unknown extent.

use flagfinder_code::Names;
use iced_x86::{
    Decoder, DecoderOptions, Instruction, InstructionInfoFactory, OpAccess, OpKind, Register,
};
use rustc_hash::FxHashSet;

use crate::analysis::{Analysis, Candidate};
use crate::natural::{ReadCode, LONGEST};
use crate::window::Window;

/// The addresses of such words.
pub fn own_positions(
    window: &Window,
    analysis: &Analysis,
    names: &Names,
    read: &ReadCode,
) -> FxHashSet<u64> {
    let mut found = FxHashSet::default();
    for candidate in &analysis.candidates {
        let Some(step) = compared_at(analysis, candidate) else {
            continue;
        };
        let function = names.function(window.pc(step));
        let Some((start, end)) = function.filter(|(start, end)| end - start <= LONGEST) else {
            continue;
        };
        let mut code = vec![0u8; (end - start) as usize];
        let got = read(start, &mut code);
        let registers = |register| register_before(window, step, register);
        if stores_to(candidate.address, &registers, &code[..got], start) {
            found.insert(candidate.address);
        }
    }
    found
}

/// The branch that compares it with another word of memory.
fn compared_at(analysis: &Analysis, candidate: &Candidate) -> Option<u32> {
    let mut exits = candidate.exits.iter();
    let exit = exits.find(|&&exit| {
        let condition = analysis.conditions[exit].as_ref();
        condition.is_some_and(|c| {
            c.mentions(candidate.address, candidate.bytes) && c.compares_two_words()
        })
    });
    exit.map(|&exit| analysis.exits[exit].step)
}

/// Steps back in search of a register's value.
const REACH: u32 = 4000;

fn register_before(window: &Window, step: u32, register: u8) -> Option<u64> {
    let mut steps = (step.saturating_sub(REACH)..step).rev();
    let written = steps.find(|&step| window.results(step).iter().any(|(r, _)| *r == register));
    match written {
        Some(step) => window.result(step, register).get(64),
        None => window.kept(register),
    }
}

/// Does the function store to the address, going by what its registers hold where the words are compared?
fn stores_to(
    address: u64,
    registers: &dyn Fn(u8) -> Option<u64>,
    function: &[u8],
    start: u64,
) -> bool {
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
    let mut decoder = Decoder::with_ip(64, function, start, DecoderOptions::NONE);
    decoder.iter().any(|code| {
        let explicit = code.op_kinds().any(|kind| kind == OpKind::Memory);
        explicit && code.segment_prefix() == Register::None && target(&code) == Some(address) && {
            let used = factory.info(&code).used_memory().iter();
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

    /// Does this code, with the queue in rdi, store to the word 0x40 bytes into it?
    fn stores(code: &[u8]) -> bool {
        let registers = |register| (register == RDI).then_some(QUEUE);
        stores_to(QUEUE + 0x40, &registers, code, 0x1000)
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
