// SPDX-License-Identifier: MIT
//! One numbering for the code of all runs, so that the same instruction has the same number in
//! each.
//!
//! A *place* is module + offset. A block is known by the place of its last instruction (its
//! *node*): blocks that are entered at different points but end in the same branch are one node,
//! because what follows them is decided by the same instruction. A *function* is the set of nodes
//! that direct branches connect; it is found over the union of all runs, so it is the same in each.

use crate::input::{BlockHome, Ending, RawBlock};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

/// A code address that means the same in every run.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CodePlace {
    /// File name of the module; empty for code without one.
    pub module: String,
    /// Address minus the module's base, that is the ELF virtual address; without a module a
    /// recording-independent likeness of the code.
    pub offset: u64,
}

/// Number of a place in the [`CodeSpace`].
pub type PlaceId = u32;
/// Stands for "no place".
pub const NO_PLACE: PlaceId = 0;

/// What the shadow stack has to know of a block, packed for the hot loop.
#[derive(Clone, Copy, Debug)]
pub struct BlockFacts {
    /// Place of the last instruction.
    pub node: PlaceId,
    /// Place of the first instruction.
    pub first: PlaceId,
    /// Number of the function; equal in all runs.
    pub function: u32,
    /// Number of the stretch between two known function entries; of one process only, 0 unknown.
    pub region: u32,
    pub exit: ExitKind,
    /// Some call returns to the block's first instruction.
    pub return_point: bool,
    /// Run-time address of the first instruction.
    pub start: u64,
    /// Run-time address behind the last instruction.
    pub end: u64,
}

/// [`Ending`] without addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitKind {
    /// No choice.
    Plain,
    /// Two successors.
    Conditional,
    /// Any successor.
    IndirectJump,
    Call,
    Return,
}

/// The blocks of one process, by block id.
#[derive(Debug, Default)]
pub struct Program {
    facts: Vec<BlockFacts>,
}

const UNKNOWN: BlockFacts = BlockFacts {
    node: NO_PLACE,
    first: NO_PLACE,
    function: 0,
    region: 0,
    exit: ExitKind::Plain,
    return_point: false,
    start: 0,
    end: 0,
};

impl Program {
    /// Facts of a block; a block the trace never described has node [`NO_PLACE`].
    #[inline]
    pub fn facts(&self, id: u32) -> &BlockFacts {
        self.facts.get(id as usize).unwrap_or(&UNKNOWN)
    }
}

/// Module (index into the names) and offset; `module == ANONYMOUS` for code without a module, where
/// the offset is a likeness made unique within its run.
type Key = (u32, u64);
const ANONYMOUS: u32 = u32::MAX;

#[derive(Debug)]
pub struct CodeSpace {
    numbers: FxHashMap<Key, PlaceId>,
    keys: Vec<Key>,
    exits: Vec<ExitKind>,
    /// By place of a first instruction: the block's node.
    nodes: Vec<PlaceId>,
    /// Of conditional branches: where they go when taken and when not.
    branches: FxHashMap<PlaceId, (PlaceId, PlaceId)>,
    functions: Vec<u32>,
    module_names: Vec<String>,
}

impl CodeSpace {
    /// Numbers the blocks of all processes of all runs; the programs come back in the same order.
    pub fn build(
        module_names: Vec<String>,
        processes: &[&[RawBlock]],
    ) -> (CodeSpace, Vec<Program>) {
        let mut space = CodeSpace {
            numbers: FxHashMap::default(),
            keys: vec![(ANONYMOUS, 0)],
            exits: vec![ExitKind::Plain],
            nodes: vec![NO_PLACE],
            branches: FxHashMap::default(),
            functions: Vec::new(),
            module_names,
        };
        let mut programs: Vec<Program> = processes
            .iter()
            .map(|blocks| space.number(blocks))
            .collect();
        let mut sets = Sets::new(space.keys.len());
        for (blocks, program) in processes.iter().zip(&programs) {
            connect(&mut sets, blocks, program);
        }
        space.functions = (0..space.keys.len() as u32)
            .map(|place| sets.find(place))
            .collect();
        for program in &mut programs {
            for facts in &mut program.facts {
                facts.function = space.functions[facts.node as usize];
            }
        }
        (space, programs)
    }

    /// How many places there are; place numbers are below it.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// A place as it is handed on.
    pub fn code_place(&self, place: PlaceId) -> Option<CodePlace> {
        (place != NO_PLACE).then(|| {
            let (module, offset) = self.place(place);
            CodePlace {
                module: module.to_string(),
                offset,
            }
        })
    }

    /// Module name (empty without a module) and offset of a place.
    pub fn place(&self, place: PlaceId) -> (&str, u64) {
        let (module, offset) = self.keys[place as usize];
        (
            self.module_names
                .get(module as usize)
                .map_or("", String::as_str),
            offset,
        )
    }

    /// The node of the block that begins at `first`; [`NO_PLACE`] where none does.
    pub fn node_at(&self, first: PlaceId) -> PlaceId {
        self.nodes[first as usize]
    }

    /// Where a conditional branch goes when taken and when not.
    pub fn branch(&self, node: PlaceId) -> Option<(PlaceId, PlaceId)> {
        self.branches.get(&node).copied()
    }

    pub fn exit(&self, node: PlaceId) -> ExitKind {
        self.exits[node as usize]
    }

    fn intern(&mut self, key: Key) -> PlaceId {
        if let Some(&number) = self.numbers.get(&key) {
            return number;
        }
        let number = self.keys.len() as PlaceId;
        self.keys.push(key);
        self.exits.push(ExitKind::Plain);
        self.nodes.push(NO_PLACE);
        self.numbers.insert(key, number);
        number
    }

    fn number(&mut self, blocks: &[RawBlock]) -> Program {
        let return_points: FxHashSet<u64> = blocks
            .iter()
            .filter(|block| matches!(block.ending, Ending::Call { .. } | Ending::IndirectCall))
            .map(|block| block.end)
            .collect();
        let mut entries: Vec<u64> = blocks.iter().filter_map(entered_by_call).collect();
        entries.sort_unstable();
        entries.dedup();
        // Ids are given in order; an id far beyond the number of blocks is damage.
        let id_limit = blocks.len() * 64 + 65_536;
        let mut facts = Vec::new();
        let mut twins: FxHashMap<u64, u64> = FxHashMap::default();
        for block in blocks {
            let (first, last) = match block.home {
                BlockHome::Module { module, base } => (
                    (module, block.start.wrapping_sub(base)),
                    (module, block.last.wrapping_sub(base)),
                ),
                BlockHome::Anonymous { likeness } => {
                    let twin = twins.entry(likeness).or_insert(0);
                    *twin += 1;
                    let unique = likeness.wrapping_add(twin.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                    let span = block.last.wrapping_sub(block.start);
                    ((ANONYMOUS, unique), (ANONYMOUS, unique.wrapping_add(span)))
                }
            };
            let (first, node) = (self.intern(first), self.intern(last));
            let exit = match block.ending {
                Ending::Fallthrough
                | Ending::Jump { .. }
                | Ending::Syscall
                | Ending::Trap
                | Ending::Undecodable => ExitKind::Plain,
                Ending::Conditional { .. } => ExitKind::Conditional,
                Ending::IndirectJump => ExitKind::IndirectJump,
                // A call to the next instruction only reads the program counter.
                Ending::Call { target } if target == block.end => ExitKind::Plain,
                Ending::Call { .. } | Ending::IndirectCall => ExitKind::Call,
                Ending::Return => ExitKind::Return,
            };
            self.exits[node as usize] = exit;
            self.nodes[first as usize] = node;
            if let (BlockHome::Module { module, base }, Ending::Conditional { target }) =
                (&block.home, block.ending)
            {
                let taken = self.intern((*module, target.wrapping_sub(*base)));
                let fallen = self.intern((*module, block.end.wrapping_sub(*base)));
                self.branches.insert(node, (taken, fallen));
            }
            let index = block.id as usize;
            if index > id_limit {
                continue;
            }
            if facts.len() <= index {
                facts.resize(index + 1, UNKNOWN);
            }
            facts[index] = BlockFacts {
                node,
                first,
                function: 0,
                region: entries.partition_point(|&entry| entry <= block.start) as u32 + 1,
                exit,
                return_point: return_points.contains(&block.start),
                start: block.start,
                end: block.end,
            };
        }
        Program { facts }
    }
}

fn entered_by_call(block: &RawBlock) -> Option<u64> {
    match block.ending {
        Ending::Call { target } if target != block.end => Some(target),
        _ => None,
    }
}

/// Joins nodes that direct branches connect, except across function entries.
fn connect(sets: &mut Sets, blocks: &[RawBlock], program: &Program) {
    let starts: FxHashMap<u64, PlaceId> = blocks
        .iter()
        .map(|block| (block.start, program.facts(block.id).node))
        .collect();
    let entries: FxHashSet<u64> = blocks.iter().filter_map(entered_by_call).collect();
    for block in blocks {
        let node = program.facts(block.id).node;
        let mut join = |address: u64| {
            if !entries.contains(&address) {
                if let Some(&other) = starts.get(&address) {
                    sets.join(node, other);
                }
            }
        };
        match block.ending {
            Ending::Conditional { target } => {
                join(target);
                join(block.end);
            }
            Ending::Jump { target } => join(target),
            Ending::Fallthrough
            | Ending::Call { .. }
            | Ending::IndirectCall
            | Ending::Syscall
            | Ending::Trap
            | Ending::Undecodable => join(block.end),
            Ending::IndirectJump | Ending::Return => {}
        }
    }
}

/// Disjoint sets with path halving; the smallest member names the set, so names do not depend on
/// order.
struct Sets {
    parent: Vec<u32>,
}

impl Sets {
    fn new(len: usize) -> Sets {
        Sets {
            parent: (0..len as u32).collect(),
        }
    }

    fn find(&mut self, mut member: u32) -> u32 {
        while self.parent[member as usize] != member {
            let grand = self.parent[self.parent[member as usize] as usize];
            self.parent[member as usize] = grand;
            member = grand;
        }
        member
    }

    fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.find(a), self.find(b));
        self.parent[a.max(b) as usize] = a.min(b);
    }
}
