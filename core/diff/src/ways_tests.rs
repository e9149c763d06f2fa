// SPDX-License-Identifier: MIT
//! Tests of [`super`].

use super::*;
use crate::input::{BlockHome, Ending, RawBlock};

/// 1: a test that goes to 3 or 5; 3: one that goes to 7 or 9; 7, the goal, runs into 9; 9 returns;
/// 5 too. Each is at its number, and as long as two.
fn space() -> CodeSpace {
    let block = |start: u64, last: u64, ending: Ending| RawBlock {
        id: start as u32,
        home: BlockHome::Module { module: 0, base: 0 },
        start,
        last,
        end: last + 1,
        ending,
    };
    let blocks = [
        block(1, 2, Ending::Conditional { target: 5 }),
        block(3, 4, Ending::Conditional { target: 9 }),
        block(5, 6, Ending::Return),
        block(7, 10, Ending::Return),
        block(9, 10, Ending::Return),
    ];
    CodeSpace::build(vec!["app".into()], &[&blocks]).0
}

/// The place of an instruction.
fn place(space: &CodeSpace, offset: u64) -> PlaceId {
    let mut all = 1..space.len() as PlaceId;
    all.find(|place| space.place(*place).1 == offset)
        .expect("a place")
}

/// What a thread did: block after block, from its first to the end of its function.
fn did(space: &CodeSpace, blocks: &[u64]) -> Profile {
    let mut profile = Profile::default();
    let mut from = NO_PLACE;
    for (index, &start) in blocks.iter().enumerate() {
        let to = place(space, start);
        let edge = Edge {
            count: 1,
            first: index as u64,
            last: index as u64,
        };
        profile.edges.insert((from, to), edge);
        from = space.node_at(to);
    }
    let end = blocks.len() as u64;
    let edge = Edge {
        count: 1,
        first: end,
        last: end,
    };
    profile.edges.insert((from, NO_PLACE), edge);
    profile
}

/// Offset of the branch at which one leaves the other's way to the block at 7.
fn left(theirs: &[u64], ours: &[u64]) -> Option<u64> {
    let space = space();
    let (theirs, ours) = (did(&space, theirs), did(&space, ours));
    let goal = place(&space, 7);
    let call = Call {
        space: &space,
        theirs: &theirs,
        ours: &ours,
        goal_index: 2,
        goal: space.node_at(goal),
        first: goal,
    };
    let (went, _) = call.leaving(call.last_at_goal())?;
    Some(space.place(went.0).1)
}

#[test]
fn the_branch_that_went_another_way() {
    assert_eq!(
        left(&[1, 3, 7], &[1, 5]),
        Some(2),
        "never came to the next one"
    );
    assert_eq!(
        left(&[1, 3, 7], &[1, 3, 9]),
        Some(4),
        "its end is the goal's, too"
    );
    assert_eq!(left(&[1, 3, 7], &[1, 3, 7]), None, "it came there");
}
