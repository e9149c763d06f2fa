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
//! Or it comes back to another test of the loop with something else in a register:
//!
//! ```c
//!     while (entry != end)                   // ends at the last entry
//!         if (entry->epoch != before)        // the flag: another thread's
//!             entry++;                       // never seen
//! ```
//!
//! The other way is run forward on what the window knows of the registers and the memory there,
//! and else on the process's memory as it is. Nothing is written. It ends at a system call, and
//! where it is not known how it goes on; the stores end where it comes back to code that the loop
//! executes. Blind spots: memory that has changed since the window; what lies behind a second
//! condition that is not known.

use flagfinder_machine::decoded::{is_syscall, Decoded, RSP};
use flagfinder_machine::evaluator::{Evaluator, Recorded};
use flagfinder_machine::value::Value;
use flagfinder_machine::Window;
use iced_x86::{FlowControl, Instruction, InstructionInfoFactory};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::analysis::Analysis;
use crate::exit::Transfer;
use crate::other_way::OtherWay;
use crate::read_code::{self, ReadCode};

/// A branch that would have the thread itself change a word, on which another exit of the loop is
/// decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Address of the branch.
    pub branch: u64,
    /// Address of the word.
    pub word: u64,
}

/// Instructions that are run on the other way, and from where it comes back to the loop.
const LONGEST_WAY: usize = 256;
const LONGEST_ROUND: usize = 512;

/// All such changes, by branches whose other way stays in the loop, or leads to another test (on
/// one that leaves it, a change is what comes after).
pub fn changes(
    window: &Window,
    analysis: &Analysis,
    other_ways: &FxHashMap<u64, OtherWay>,
    read: &ReadCode,
) -> Vec<Change> {
    let mut changes = Vec::new();
    let round = analysis.spin.first_step()..analysis.spin.end;
    let executed: FxHashSet<u64> = round.map(|step| window.pc(step)).collect();
    let seen = Seen::of(window);
    let branches = analysis.exits.iter().enumerate();
    let branches = branches.filter(|(_, exit)| exit.transfer == Transfer::Branch);
    let tests: Tests = branches
        .map(|(index, exit)| {
            let place = (window.pc(exit.step), window.rsp(exit.step));
            (place, (index, exit.taken))
        })
        .collect();
    for (index, exit) in analysis.exits.iter().enumerate() {
        let branch = window.pc(exit.step);
        let stays = match other_ways.get(&branch) {
            Some(OtherWay::Stays | OtherWay::Decides) => true,
            Some(OtherWay::Tests) => false,
            _ => continue,
        };
        let Some(other) = exit.other else { continue };
        let mut registers = [Value::UNKNOWN; 16];
        for (number, value) in registers.iter_mut().enumerate() {
            *value = window.register_before(exit.step, number as u8).into();
        }
        registers[usize::from(RSP)] = Value::of(window.rsp(exit.step));
        let memory = |address: u64, bytes: u8| seen.before(exit.step, address, bytes);
        let way = Way {
            executed: &executed,
            tests: &tests,
            branch,
            memory: &memory,
            read,
        };
        let (stores, let_go) = way.run(other, registers);
        for candidate in &analysis.candidates {
            let is_changed = |store: &Store| {
                let within = (candidate.address..candidate.address + u64::from(candidate.bytes))
                    .contains(&store.address);
                within && (store.value.is_none() || store.value != candidate.value)
            };
            let changed = stays && stores.iter().any(is_changed)
                || let_go.is_some_and(|exit| candidate.exits == [exit]);
            if !candidate.exits.contains(&index) && changed {
                changes.push(Change {
                    branch,
                    word: candidate.address,
                });
            }
        }
    }
    changes
}

/// Exits that are branches: by address and stack pointer, their index and the way that was seen.
type Tests = FxHashMap<(u64, u64), (usize, bool)>;

/// What the window knows of memory.
struct Seen(Vec<(u64, u32, u8, u64)>);

impl Seen {
    fn of(window: &Window) -> Seen {
        let steps = 0..window.len();
        let all = steps.flat_map(|step| window.accesses(step).iter().map(move |one| (step, one)));
        let known = all.filter(|(_, one)| one.bytes <= 8);
        let mut seen: Vec<_> = known
            .filter_map(|(step, one)| {
                let value = one.value.get(one.bytes * 8)?;
                Some((one.address?, step, one.bytes as u8, value))
            })
            .collect();
        seen.sort_by_key(|(address, step, ..)| (*address, *step));
        Seen(seen)
    }

    /// What was read or written there last before a step, if it was of that size.
    fn before(&self, step: u32, address: u64, bytes: u8) -> Option<u64> {
        let behind = self
            .0
            .partition_point(|one| (one.0, one.1) < (address, step));
        let last = self.0[..behind].last();
        last.filter(|one| (one.0, one.2) == (address, bytes))
            .map(|one| one.3)
    }
}

struct Store {
    address: u64,
    value: Option<u64>,
}

struct Way<'a> {
    /// Code of the loop.
    executed: &'a FxHashSet<u64>,
    tests: &'a Tests,
    /// Where the way begins: coming back to it ends a round.
    branch: u64,
    memory: &'a dyn Fn(u64, u8) -> Option<u64>,
    read: &'a ReadCode<'a>,
}

impl Way<'_> {
    /// What is stored on the way from `pc`, with these registers, until it comes back to the loop;
    /// and the exit by which the loop would then be left.
    fn run(&self, mut pc: u64, registers: [Value; 16]) -> (Vec<Store>, Option<usize>) {
        let mut stores = Vec::new();
        let mut factory = InstructionInfoFactory::new();
        let mut evaluator = Evaluator::default();
        evaluator.machine.registers = registers;
        let mut left = LONGEST_WAY;
        let mut is_back = false;
        while left > 0 {
            left -= 1;
            if !is_back && self.executed.contains(&pc) {
                (is_back, left) = (true, LONGEST_ROUND);
            }
            let instruction = read_code::instruction(pc, self.read);
            if instruction.is_invalid() || is_syscall(&instruction) || is_back && pc == self.branch
            {
                break;
            }
            let code = Decoded::new(&instruction, &mut factory);
            let rsp = evaluator.machine.registers[usize::from(RSP)].get(64);
            let recorded = self.loads(&code, &mut evaluator);
            evaluator.step(&code, &recorded);
            if !is_back {
                let written = evaluator.accesses().iter().filter(|access| access.write);
                stores.extend(written.filter_map(|access| {
                    let value = access.value.get((access.bytes * 8).min(64));
                    access.address.map(|address| Store { address, value })
                }));
            }
            if let Some((exit, seen)) = rsp.and_then(|rsp| self.tests.get(&(pc, rsp))) {
                if evaluator.taken().is_some_and(|taken| taken != *seen) {
                    return (stores, Some(*exit));
                }
            }
            match next(&instruction, &evaluator) {
                Some(next) => pc = next,
                None => break,
            }
        }
        (stores, None)
    }

    /// What the instruction loads: as stored on the way, as the window has it, or as it is in the
    /// process.
    fn loads(&self, code: &Decoded, evaluator: &mut Evaluator) -> Recorded {
        let mut recorded = Recorded::default();
        let loads = code.memory.iter().filter(|memory| memory.read);
        for (slot, memory) in recorded.loads.iter_mut().zip(loads) {
            let bytes = usize::from(memory.bytes);
            let address = memory.address(&evaluator.machine);
            let Some(address) = address.filter(|_| (1..=8).contains(&bytes)) else {
                continue;
            };
            let bits = 8 * bytes as u32;
            if evaluator.machine.shadow.load(address, bits).known != 0 {
                continue;
            }
            let now = || {
                let mut word = [0u8; 8];
                let whole = (self.read)(address, &mut word[..bytes]) == bytes;
                whole.then(|| u64::from_le_bytes(word))
            };
            *slot = (self.memory)(address, bytes as u8).or_else(now);
        }
        recorded
    }
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
        let way = Way {
            executed: &executed,
            tests: &Tests::default(),
            branch: 0,
            memory: &|_, _| None,
            read: &read,
        };
        let (stores, _) = way.run(CODE, registers);
        stores.iter().map(|s| (s.address, s.value)).collect()
    }

    /// add rdi, 16; cmp rdi, [rsp]; jne CODE + 20; with this end of the entries.
    fn ends_with(end: u64) -> Option<usize> {
        let code = [
            0x48, 0x83, 0xc7, 0x10, 0x48, 0x3b, 0x3c, 0x24, 0x75, 0x0a, 0xcc,
        ];
        let read = |address: u64, buffer: &mut [u8]| {
            let at = (address - CODE) as usize;
            let source = code.get(at..).unwrap_or(&[]);
            let got = source.len().min(buffer.len());
            buffer[..got].copy_from_slice(&source[..got]);
            got
        };
        const STACK: u64 = 0x9000;
        let mut registers = [Value::UNKNOWN; 16];
        registers[RDI] = Value::of(ENTRY);
        registers[usize::from(RSP)] = Value::of(STACK);
        let way = Way {
            executed: &[CODE + 4, CODE + 8].into_iter().collect(),
            tests: &[((CODE + 8, STACK), (3, true))].into_iter().collect(),
            branch: 0,
            memory: &|address, bytes| ((address, bytes) == (STACK, 8)).then_some(end),
            read: &read,
        };
        way.run(CODE, registers).1
    }

    #[test]
    fn the_way_back_to_the_loops_own_test_lets_it_go() {
        assert_eq!(ends_with(ENTRY + 16), Some(3));
        assert_eq!(ends_with(ENTRY + 32), None, "one entry more");
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
        let mut code = vec![0x48, 0x8b, 0x07, 0x48, 0x3b, 0x47, 0x08]; // mov rax, [rdi]; cmp rax, [rdi+8]
        code.extend([0x74, 0x01, 0xcc, 0x89, 0x07]); // je +1; int3; mov [rdi], eax
        assert_eq!(stores_of(&code, &[]), [(ENTRY, Some(LIST))]);
        // cmp rax, rcx (unknown); je; ..
        let unknown = [0x48, 0x39, 0xc8, 0x74, 0x00, 0x89, 0x07];
        assert_eq!(stores_of(&unknown, &[]), []);
    }
}
