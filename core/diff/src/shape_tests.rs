// SPDX-License-Identifier: MIT
//! The streaming fold of calls against one that builds the whole call tree.

use std::collections::BTreeSet;

use super::Shapes;
use crate::call_stack::{CallStack, Frame, Observer};
use crate::input::{BlockHome, Ending, RawBlock};
use crate::space::{BlockFacts, CodeSpace, PlaceId};

/// A call that ended.
struct FoldedCall {
    /// Offset of the function's first instruction in its module.
    entry_offset: u64,
    /// Hash of what it did, with loops folded.
    shape: u64,
}

/// The calls of a flow that ended, in the order in which they ended.
fn fold(blocks: &[RawBlock], flow: &[u32]) -> Vec<FoldedCall> {
    let (space, programs) = CodeSpace::build(Vec::new(), &[blocks]);
    let mut stack = CallStack::new(&programs[0]);
    let mut folder = Folder {
        space: &space,
        shapes: Shapes::default(),
        calls: Vec::new(),
    };
    for &id in flow {
        stack.block(id, &mut folder);
    }
    folder.calls
}

struct Folder<'a> {
    space: &'a CodeSpace,
    shapes: Shapes,
    calls: Vec<FoldedCall>,
}

impl Observer for Folder<'_> {
    fn enter(&mut self, stack: &mut [Frame], _index: u64) {
        self.shapes.enter(stack);
    }

    fn leave(&mut self, stack: &[Frame], _index: u64) {
        let shape = self.shapes.leave(stack);
        if let Some(top) = stack.last() {
            self.calls.push(FoldedCall {
                entry_offset: self.space.place(top.entry).1,
                shape,
            });
        }
    }

    fn step(&mut self, stack: &[Frame], from: PlaceId, to: &BlockFacts, _index: u64) {
        self.shapes.step(stack, from, to.node);
    }
}

/// A call as a tree: own blocks and calls in order.
#[derive(Clone, Debug)]
struct Call {
    function: usize,
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
enum Step {
    Block(u32),
    Call(Call),
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

const FUNCTIONS: usize = 6;
/// Blocks a function: entry, indirect jump hub, call block, after the call, return.
const BLOCKS: u32 = 5;

fn id(function: usize, block: u32) -> u32 {
    1 + function as u32 * BLOCKS + block
}

fn blocks(base: u64) -> Vec<RawBlock> {
    let mut list = Vec::new();
    for function in 0..FUNCTIONS {
        for block in 0..BLOCKS {
            let start = base + function as u64 * 0x1000 + u64::from(block) * 0x10;
            let hub = start - u64::from(block) * 0x10 + 0x10;
            let ending = match block {
                0 => Ending::Jump { target: hub },
                // The hub goes to itself, to the call or on to the return.
                1 => Ending::Conditional { target: hub },
                2 => Ending::IndirectCall,
                3 => Ending::Conditional { target: hub },
                _ => Ending::Return,
            };
            let home = BlockHome::Module { module: 0, base };
            list.push(RawBlock {
                id: id(function, block),
                home,
                start,
                last: start + 8,
                end: start + 0x10,
                ending,
            });
        }
    }
    list
}

fn grow(random: &mut Random, function: usize, depth: u32) -> Call {
    let mut steps = vec![Step::Block(id(function, 0))];
    for _ in 0..random.below(5) {
        steps.push(Step::Block(id(function, 1)));
        if depth > 0 && random.below(2) == 0 {
            steps.push(Step::Block(id(function, 2)));
            let callee = random.below(FUNCTIONS as u64) as usize;
            steps.push(Step::Call(grow(random, callee, depth - 1)));
            steps.push(Step::Block(id(function, 3)));
        }
    }
    steps.push(Step::Block(id(function, 4)));
    Call { function, steps }
}

fn flatten(call: &Call, into: &mut Vec<u32>) {
    for step in &call.steps {
        match step {
            Step::Block(block) => into.push(*block),
            Step::Call(call) => flatten(call, into),
        }
    }
}

/// What a call did, as a set: equal sets, equal shapes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Did {
    Edge(u32, u32),
    Call(u32, usize, BTreeSet<Did>),
    Itself(u32),
}

fn naive(call: &Call, all: &mut Vec<(usize, BTreeSet<Did>)>) -> BTreeSet<Did> {
    let mut did = BTreeSet::new();
    let mut previous = 0;
    for step in &call.steps {
        match step {
            Step::Block(block) => {
                did.insert(Did::Edge(previous, *block));
                previous = *block;
            }
            Step::Call(inner) => {
                let theirs = naive(inner, all);
                if inner.function == call.function {
                    did.insert(Did::Itself(previous));
                    did.extend(theirs);
                } else {
                    did.insert(Did::Call(previous, inner.function, theirs));
                }
            }
        }
    }
    all.push((call.function, did.clone()));
    did
}

#[test]
fn shapes_are_equal_just_when_the_sets_are() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut expected: Vec<(usize, BTreeSet<Did>)> = Vec::new();
    let mut folded: Vec<FoldedCall> = Vec::new();
    for round in 0..60u64 {
        // Each round is a run of its own, loaded elsewhere.
        let base = 0x1000_0000 * (round + 1);
        let mut flow = vec![id(0, 0), id(0, 1), id(0, 2)];
        let first = 1 + random.below(FUNCTIONS as u64 - 1) as usize;
        let call = grow(&mut random, first, 4);
        flatten(&call, &mut flow);
        flow.push(id(0, 3));
        naive(&call, &mut expected);
        folded.extend(fold(&blocks(base), &flow));
    }
    assert_eq!(
        folded.len(),
        expected.len(),
        "every finished call is folded once, innermost first"
    );
    let mut alike = 0;
    for i in 0..folded.len() {
        assert_eq!(folded[i].entry_offset, expected[i].0 as u64 * 0x1000);
        for j in 0..i {
            let same = expected[i] == expected[j];
            assert_eq!(
                folded[i].shape == folded[j].shape,
                same,
                "{:?}\n{:?}",
                expected[i],
                expected[j]
            );
            alike += usize::from(same);
        }
    }
    assert!(alike > 100, "the test must see equal calls too: {alike}");
}
