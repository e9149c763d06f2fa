// SPDX-License-Identifier: MIT
//! Where generated code of one run stands in another: it has no module and lies elsewhere in each.
//!
//! Two blocks are twins when their instructions agree but for what may be an address, and no third
//! block of either run is like them; so are blocks alike to which twins lead on in the same way.
//! Blind spots: code that was compiled in one run only, and stubs that are all alike and called
//! from nowhere that is known.

use std::collections::hash_map::Entry;
use std::hash::{Hash, Hasher};

use flagfinder_code::{CodeBlock, CodeMap};
use iced_x86::{Instruction, OpKind, Register};
use rustc_hash::{FxHashMap, FxHasher};

/// A number as large may be an address.
const SMALL: u64 = 0x1_0000;

#[derive(Default)]
pub struct Twins {
    /// By address of an instruction: its twin in the other run.
    by_pc: FxHashMap<u64, Instruction>,
}

impl Twins {
    /// Pairs all blocks that lie in no module.
    pub fn between(one: &CodeMap, other: &CodeMap) -> Twins {
        let (ours, theirs) = (generated(one), generated(other));
        if ours.is_empty() || theirs.is_empty() {
            return Twins::default();
        }
        Twins::of(&ours, &theirs)
    }

    fn of(ours: &[&CodeBlock], theirs: &[&CodeBlock]) -> Twins {
        let (ours, theirs) = (Side::new(ours), Side::new(theirs));
        let mut work: Vec<(usize, usize)> = Vec::new();
        for (likeness, found) in &ours.alike {
            if let (&[one], Some(&[other])) =
                (&found[..], theirs.alike.get(likeness).map(Vec::as_slice))
            {
                work.push((one, other));
            }
        }
        // The order must not depend on a hash.
        work.sort_unstable_by(|a, b| b.cmp(a));
        let mut paired: FxHashMap<usize, usize> = FxHashMap::default();
        let mut by_pc = FxHashMap::default();
        while let Some((one, other)) = work.pop() {
            match paired.entry(one) {
                Entry::Occupied(_) => continue,
                Entry::Vacant(place) => place.insert(other),
            };
            let (mine, twin) = (ours.blocks[one], theirs.blocks[other]);
            let pairs = mine.instructions.iter().zip(&twin.instructions);
            by_pc.extend(pairs.map(|(mine, twin)| (mine.ip(), *twin)));
            let ways = [
                (mine.target(), twin.target()),
                (Some(mine.end), Some(twin.end)),
            ];
            for (mine, twin) in ways {
                let starts = (
                    mine.and_then(|pc| ours.at(pc)),
                    twin.and_then(|pc| theirs.at(pc)),
                );
                if let (Some(next), Some(next_twin)) = starts {
                    if ours.likeness[next] == theirs.likeness[next_twin] {
                        work.push((next, next_twin));
                    }
                }
            }
        }
        Twins { by_pc }
    }

    /// The twin of the instruction at the address.
    pub fn instruction(&self, pc: u64) -> Option<&Instruction> {
        self.by_pc.get(&pc)
    }

    /// Where the twin of the branch at `pc` goes when that one goes to `target`.
    pub fn way(&self, branch: &Instruction, target: u64) -> Option<u64> {
        let twin = self.instruction(branch.ip())?;
        if target == branch.next_ip() {
            Some(twin.next_ip())
        } else {
            (target == branch.near_branch_target()).then(|| twin.near_branch_target())
        }
    }
}

fn generated<'c>(code: &'c CodeMap) -> Vec<&'c CodeBlock> {
    let process = code.process();
    let blocks = process.blocks().iter();
    let outside = blocks.filter(|b| b.module.is_none() && process.module_at(b.pc).is_none());
    outside.map(|block| code.decode(block)).collect()
}

/// The blocks of one run. Of code that was replaced the newest counts.
struct Side<'c> {
    blocks: &'c [&'c CodeBlock],
    likeness: Vec<u64>,
    by_start: FxHashMap<u64, usize>,
    alike: FxHashMap<u64, Vec<usize>>,
}

impl<'c> Side<'c> {
    fn new(blocks: &'c [&'c CodeBlock]) -> Side<'c> {
        let likeness: Vec<u64> = blocks.iter().map(|block| likeness(block)).collect();
        let starts = blocks.iter().enumerate();
        let by_start: FxHashMap<u64, usize> = starts
            .filter_map(|(index, block)| Some((block.pc()?, index)))
            .collect();
        let mut alike: FxHashMap<u64, Vec<usize>> = FxHashMap::default();
        for (index, likeness) in likeness.iter().enumerate() {
            let newest = blocks[index].pc().and_then(|pc| by_start.get(&pc));
            if newest == Some(&index) {
                alike.entry(*likeness).or_default().push(index);
            }
        }
        Side {
            blocks,
            likeness,
            by_start,
            alike,
        }
    }

    fn at(&self, pc: u64) -> Option<usize> {
        self.by_start.get(&pc).copied()
    }
}

/// Hash of the instructions without what may be an address.
fn likeness(block: &CodeBlock) -> u64 {
    let mut hasher = FxHasher::default();
    for instruction in &block.instructions {
        (instruction.code() as u32).hash(&mut hasher);
        for operand in 0..instruction.op_count() {
            match instruction.op_kind(operand) {
                OpKind::Register => (instruction.op_register(operand) as u32).hash(&mut hasher),
                OpKind::Memory => {
                    let base = instruction.memory_base();
                    (base as u32, instruction.memory_index() as u32).hash(&mut hasher);
                    let displacement = instruction.memory_displacement64();
                    let known = base != Register::RIP && is_small(displacement);
                    known.then_some(displacement).hash(&mut hasher);
                }
                _ => {
                    let immediate = instruction.try_immediate(operand).ok();
                    immediate.filter(|&n| is_small(n)).hash(&mut hasher);
                }
            }
        }
    }
    hasher.finish()
}

fn is_small(number: u64) -> bool {
    (number as i64).unsigned_abs() < SMALL
}

#[cfg(test)]
mod tests {
    use super::*;

    /// cmp dword [rdi+8], 0; je +0x10
    const TEST: &[u8] = &[0x83, 0x7f, 0x08, 0x00, 0x74, 0x10];
    /// cmp dword [rdi+16], 0; je +0x10
    const OTHER_FIELD: &[u8] = &[0x83, 0x7f, 0x10, 0x00, 0x74, 0x10];
    /// movabs rdi, imm64; nop; nop
    const LOAD: &[u8] = &[0x48, 0xbf, 0, 0, 0x40, 0x12, 0x7f, 0, 0, 0, 0x90, 0x90];
    const LOAD_ELSEWHERE: &[u8] = &[0x48, 0xbf, 0, 0, 0x70, 0x33, 0x7f, 0, 0, 0, 0x90, 0x90];

    fn twins(ours: &[(u64, &[u8])], theirs: &[(u64, &[u8])]) -> Twins {
        let decode = |blocks: &[(u64, &[u8])]| -> Vec<CodeBlock> {
            let decoded = blocks.iter().map(|(pc, code)| CodeBlock::decode(*pc, code));
            decoded.collect()
        };
        let (ours, theirs) = (decode(ours), decode(theirs));
        let (ours, theirs): (Vec<_>, Vec<_>) = (ours.iter().collect(), theirs.iter().collect());
        Twins::of(&ours, &theirs)
    }

    fn twin(twins: &Twins, pc: u64) -> Option<u64> {
        twins.instruction(pc).map(Instruction::ip)
    }

    #[test]
    fn the_same_code_elsewhere_but_for_addresses() {
        let found = twins(
            &[(0x1000, LOAD), (0x2000, TEST)],
            &[(0x7000, TEST), (0x9000, LOAD_ELSEWHERE)],
        );
        assert_eq!(twin(&found, 0x1000), Some(0x9000));
        assert_eq!(twin(&found, 0x2004), Some(0x7004));
        let found = twins(&[(0x1000, TEST)], &[(0x7000, OTHER_FIELD)]);
        assert_eq!(twin(&found, 0x1000), None, "another field");
    }

    #[test]
    fn the_twin_to_which_a_neighbour_leads_is_chosen() {
        let load = LOAD.len() as u64;
        let theirs = [
            (0x7000, TEST),
            (0x9000, LOAD_ELSEWHERE),
            (0x9000 + load, TEST),
        ];
        let alone = twins(&[(0x2000, TEST)], &theirs);
        assert_eq!(twin(&alone, 0x2000), None, "either could be meant");
        let found = twins(&[(0x1000, LOAD), (0x1000 + load, TEST)], &theirs);
        assert_eq!(twin(&found, 0x1000 + load), Some(0x9000 + load));
    }

    #[test]
    fn a_branch_goes_the_same_way() {
        let found = twins(&[(0x2000, TEST)], &[(0x7000, TEST)]);
        let branch = CodeBlock::decode(0x2000, TEST).instructions[1];
        assert_eq!(found.way(&branch, 0x2006), Some(0x7006));
        assert_eq!(found.way(&branch, 0x2016), Some(0x7016));
        assert_eq!(found.way(&branch, 0x3000), None);
    }
}
