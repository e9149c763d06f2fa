// SPDX-License-Identifier: MIT
//! A hang is compared with a wait for the same request to the same thread.

use flagfinder_events::container::BlockKind;
use flagfinder_events::{Holder, How, Looked};
use flagfinder_graph::{build, Request};

use crate::made_up::{culprits, explained, Recording, MS, POLL, READ, WRITE};

const MAIN: u32 = 1;
const A: u32 = 2;
const B: u32 = 3;

/// What is asked, and whether the server is waiting for it, so that it is woken.
struct Ask {
    server: u32,
    stack: u32,
    wakes: bool,
    answered: bool,
}

/// Main asks, and waits for the answer in one place; servers that have none wait for what is next.
fn recording(asks: impl IntoIterator<Item = Ask>) -> Recording {
    let mut all = Recording::of(&[MAIN, A, B]);
    // The innermost two call sites are the same.
    all.stacks = vec![vec![1, 2, 10], vec![1, 2, 20]];
    for server in [A, B] {
        all.running = server;
        all.waits(READ, 9, MAIN);
    }
    for ask in asks {
        all.running = MAIN;
        all.passes(MS);
        if ask.wakes {
            all.wakes(ask.server, WRITE);
        }
        all.waits(POLL, 5, ask.server).stack = ask.stack;
        if ask.wakes && !ask.answered {
            all.passes(5000 * MS);
            continue;
        }
        all.passes(MS);
        if ask.answered {
            all.running = ask.server;
            all.wakes(MAIN, WRITE);
            all.waits(READ, 9, MAIN);
        }
    }
    all.ends_after(3000 * MS);
    all
}

fn of_main() -> Request {
    Request {
        thread: Some(MAIN),
        ..Request::default()
    }
}

fn ask(server: u32, stack: u32, wakes: bool, answered: bool) -> Ask {
    Ask {
        server,
        stack,
        wakes,
        answered,
    }
}

/// Good rounds in turn, the last of which asks A.
fn rounds(has_stacks: bool) -> Vec<Ask> {
    let stack = |number| if has_stacks { number } else { 0 };
    let good = (0..9).map(|round| match round % 2 {
        0 => ask(A, stack(1), true, true),
        _ => ask(B, stack(2), true, true),
    });
    good.collect()
}

#[test]
fn whole_call_stacks_tell_requests_apart_that_wait_in_one_function() {
    let mut asks = rounds(true);
    // B was never woken for this: it is busy.
    asks.push(ask(B, 2, false, false));
    let mut graph = recording(asks).graph();
    // As they would be named where the code is there: wait_answer, from ask_A and from ask_B.
    graph.meta.stacks = vec![vec![], vec![0, 1, 2], vec![0, 1, 3]];
    graph.meta.sites = ["poll+0x1", "wait_answer+0x2", "ask_A+0x3", "ask_B+0x4"]
        .map(str::to_owned)
        .to_vec();
    let found = explained(&graph, &of_main());
    assert_eq!(found.compared.as_ref().unwrap().by_tid, Some(B));
    assert_eq!(culprits(&found), [B]);
}

#[test]
fn without_stacks_the_asked_threads_tell_requests_apart() {
    let mut asks = rounds(false);
    asks.push(ask(B, 0, true, false));
    let found = explained(&recording(asks).graph(), &of_main());
    assert_eq!(found.compared.as_ref().unwrap().by_tid, Some(B));
    assert_eq!(culprits(&found), [B]);
}

#[test]
fn a_thread_that_never_answered_before_is_not_taken_for_another() {
    let mut asks: Vec<Ask> = (0..5).map(|_| ask(A, 1, true, true)).collect();
    asks.push(ask(B, 2, true, false));
    let found = explained(&recording(asks).graph(), &of_main());
    assert_eq!(culprits(&found), [B]);
}

#[test]
fn the_peer_of_what_is_waited_on_decides() {
    let mut asks = rounds(false);
    asks.push(ask(B, 0, false, false));
    let all = recording(asks);
    let seen = Looked {
        ts: all.now - MS,
        tid: MAIN,
        pid: MAIN,
        name: String::new(),
        state: 'S',
        call: Some(POLL.into()),
        first: 5,
        how: Some(How::Peer),
        by: vec![Holder { pid: B, tid: None }],
        descriptors: Vec::new(),
    };
    let file = all.file(|writer| writer.fact(BlockKind::Waits, &[&seen]).unwrap());
    let found = explained(&build(&file, &[]), &of_main());
    assert_eq!(culprits(&found), [B]);
}
