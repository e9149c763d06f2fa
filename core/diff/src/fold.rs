// SPDX-License-Identifier: MIT
//! Folding a flow into its calls' shapes, call by call: the same stack and the same shapes as in
//! the diff, for looking at one flow alone.

use crate::call_stack::{CallStack, Frame, Observer};
use crate::input::RawBlock;
use crate::shape::Shapes;
use crate::space::{BlockFacts, CodeSpace, PlaceId};

/// A call that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoldedCall {
    /// Offset of the function's first instruction in its module.
    pub entry_offset: u64,
    /// Hash of what it did, with loops folded; see `shape.rs`.
    pub shape: u64,
}

/// The calls of a flow that ended, in the order in which they ended.
pub fn fold(blocks: &[RawBlock], flow: &[u32]) -> Vec<FoldedCall> {
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
