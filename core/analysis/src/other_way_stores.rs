// SPDX-License-Identifier: MIT
//! What the waiting thread would do itself if a branch went the other way.
//!
//! ```c
//!     while (!list_empty(&pending))          // ends once this thread has taken out the last
//!         for_each(entry, &pending)
//!             if (!entry->busy)              // the flag: another thread's
//!                 list_del(entry);           // never seen; stores to `pending`
//! ```
//!
//! The other way is run forward on what the window knows of the registers there, and on the
//! process's memory as it is. Nothing is written. It ends where it comes back to code that the loop
//! executes, at a system call, and where it is not known how it goes on. Blind spots: memory that
//! has changed since the window; what lies behind a second condition that is not known.

use flagfinder_machine::decoded::{is_syscall, Decoded, RSP};
use flagfinder_machine::evaluator::{Evaluator, Recorded};
use flagfinder_machine::value::Value;
use flagfinder_machine::Window;
use iced_x86::{FlowControl, Instruction, InstructionInfoFactory};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::analysis::Analysis;
use crate::other_way::OtherWay;
use crate::read_code::{self, ReadCode};

/// A branch on whose other way the thread itself would change a word on which another exit of the
/// loop is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Run-time address of the branch.
    pub branch: u64,
    /// Run-time address of the candidate.
    pub word: u64,
}

/// Most instructions that are run on the other way.
const LONGEST_WAY: usize = 256;

/// All such changes, by branches whose other way stays in the loop. (On a way that leaves the loop,
/// a change comes after the wait.)
pub fn changes(
    window: &Window,
    analysis: &Analysis,
    other_ways: &FxHashMap<u64, OtherWay>,
    read: &ReadCode,
) -> Vec<Change> {
    let mut changes = Vec::new();
    let executed: FxHashSet<u64> = (analysis.spin.first_step()..analysis.spin.end)
        .map(|step| window.pc(step))
        .collect();
    for (index, exit) in analysis.exits.iter().enumerate() {
        let way = other_ways.get(&window.pc(exit.step));
        let stays = matches!(way, Some(OtherWay::Stays | OtherWay::Decides));
        let Some(other) = exit.other.filter(|_| stays) else {
            continue;
        };
        let mut registers = [Value::UNKNOWN; 16];
        for (number, value) in registers.iter_mut().enumerate() {
            *value = window.register_before(exit.step, number as u8).into();
        }
        registers[usize::from(RSP)] = Value::of(window.rsp(exit.step));
        let stores = stores(other, registers, &executed, read);
        for candidate in &analysis.candidates {
            let is_changed = |store: &Store| {
                let within = (candidate.address..candidate.address + u64::from(candidate.bytes))
                    .contains(&store.address);
                within && (store.value.is_none() || store.value != candidate.value)
            };
            if !candidate.exits.contains(&index) && stores.iter().any(is_changed) {
                changes.push(Change {
                    branch: window.pc(exit.step),
                    word: candidate.address,
                });
            }
        }
    }
    changes
}

struct Store {
    address: u64,
    value: Option<u64>,
}

/// What is stored on the way from `pc`, with these registers.
fn stores(
    mut pc: u64,
    registers: [Value; 16],
    executed: &FxHashSet<u64>,
    read: &ReadCode,
) -> Vec<Store> {
    let mut stores = Vec::new();
    let mut factory = InstructionInfoFactory::new();
    let mut evaluator = Evaluator::default();
    evaluator.machine.registers = registers;
    for _ in 0..LONGEST_WAY {
        let instruction = read_code::instruction(pc, read);
        if executed.contains(&pc) || instruction.is_invalid() || is_syscall(&instruction) {
            break;
        }
        let code = Decoded::new(&instruction, &mut factory);
        let recorded = memory_now(&code, &mut evaluator, read);
        evaluator.step(&code, &recorded);
        let written = evaluator.accesses().iter().filter(|access| access.write);
        stores.extend(written.filter_map(|access| {
            let value = access.value.get((access.bytes * 8).min(64));
            access.address.map(|address| Store { address, value })
        }));
        match next(&instruction, &evaluator) {
            Some(next) => pc = next,
            None => break,
        }
    }
    stores
}

/// What the instruction loads: as stored on the way, else as it is in the process.
fn memory_now(code: &Decoded, evaluator: &mut Evaluator, read: &ReadCode) -> Recorded {
    let mut recorded = Recorded::default();
    let loads = code.memory.iter().filter(|memory| memory.read);
    for (slot, memory) in recorded.loads.iter_mut().zip(loads) {
        let bytes = usize::from(memory.bytes);
        let address = memory.address(&evaluator.machine);
        let Some(address) = address.filter(|_| (1..=8).contains(&bytes)) else {
            continue;
        };
        let bits = 8 * bytes as u32;
        let mut word = [0u8; 8];
        let stored = evaluator.machine.shadow.load(address, bits);
        if stored.known == 0 && read(address, &mut word[..bytes]) == bytes {
            *slot = Some(u64::from_le_bytes(word));
        }
    }
    recorded
}

fn next(instruction: &Instruction, evaluator: &Evaluator) -> Option<u64> {
    match instruction.flow_control() {
        FlowControl::Next => Some(instruction.next_ip()),
        FlowControl::ConditionalBranch => Some(if evaluator.taken()? {
            instruction.near_branch_target()
        } else {
            instruction.next_ip()
        }),
        FlowControl::UnconditionalBranch
        | FlowControl::Call
        | FlowControl::IndirectBranch
        | FlowControl::IndirectCall
        | FlowControl::Return => evaluator.target(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: u64 = 0x1000;
    const LIST: u64 = 0x7000;
    const ENTRY: u64 = 0x8000;
    const RDI: usize = 7;

    /// Stores of this code, with an entry in rdi that stands alone in a list: both its pointers are
    /// the list's address.
    fn stores_of(code: &[u8], executed: &[u64]) -> Vec<(u64, Option<u64>)> {
        let read = |address: u64, buffer: &mut [u8]| {
            let word = LIST.to_le_bytes();
            let source = match address {
                ENTRY..0x8008 => &word[..],
                0x8008..0x8010 => &word[..],
                _ => address
                    .checked_sub(CODE)
                    .and_then(|at| code.get(at as usize..))
                    .unwrap_or(&[]),
            };
            let got = source.len().min(buffer.len());
            buffer[..got].copy_from_slice(&source[..got]);
            got
        };
        let mut registers = [Value::UNKNOWN; 16];
        registers[RDI] = Value::of(ENTRY);
        let executed = executed.iter().copied().collect();
        let stores = stores(CODE, registers, &executed, &read);
        stores.iter().map(|s| (s.address, s.value)).collect()
    }

    /// `next->prev = prev; prev->next = next`.
    const TAKE_OUT: &[u8] = &[
        0x48, 0x8b, 0x07, // mov rax, [rdi]
        0x48, 0x8b, 0x57, 0x08, // mov rdx, [rdi+8]
        0x48, 0x89, 0x50, 0x08, // mov [rax+8], rdx
        0x48, 0x89, 0x02, // mov [rdx], rax
    ];

    #[test]
    fn the_last_entry_taken_out_changes_the_list() {
        let change = [(LIST + 8, Some(LIST)), (LIST, Some(LIST))];
        assert_eq!(stores_of(TAKE_OUT, &[]), change);
    }

    #[test]
    fn what_the_loop_does_anyway_is_no_other_way() {
        assert_eq!(stores_of(TAKE_OUT, &[CODE + 11]), [(LIST + 8, Some(LIST))]);
    }

    #[test]
    fn where_it_goes_is_followed_as_far_as_it_is_known() {
        // mov rax, [rdi]; cmp rax, [rdi+8]
        let mut code = vec![0x48, 0x8b, 0x07, 0x48, 0x3b, 0x47, 0x08];
        code.extend([0x74, 0x01, 0xcc, 0x89, 0x07]); // je +1; int3; mov [rdi], eax
        assert_eq!(stores_of(&code, &[]), [(ENTRY, Some(LIST))]);
        // cmp rax, rcx (unknown); je; ..
        let unknown = [0x48, 0x39, 0xc8, 0x74, 0x00, 0x89, 0x07];
        assert_eq!(stores_of(&unknown, &[]), []);
    }
}
