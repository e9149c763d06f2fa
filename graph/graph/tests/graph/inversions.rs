// SPDX-License-Identifier: MIT
//! A less urgent thread has the lock that a more urgent one waits for, and others its CPU.

use flagfinder_events::container::BlockKind;
use flagfinder_events::{Holder, How, Looked};
use flagfinder_graph::{build, Diagnosis, Request};

use crate::made_up::{culprits, explained, Recording, FUTEX, MS, READ};

const WAITER: u32 = 1;
const HOLDER: u32 = 2;
const RIVAL: u32 = 3;
const URGENT: u64 = 110;
const LATER: u64 = 130;

/// A wake by the running thread; both have priorities.
fn wakes(all: &mut Recording, other: u32, priority: u64, own: u64) {
    all.wakes(other, FUTEX).words[0] |= priority << 32 | own << 40;
}

/// The waiter needs the holder's lock, which can run but has no CPU most of the time. `ends`: it
/// lets go of the lock, else it is seen to have it.
fn recorded(holder: u64, ends: bool) -> Diagnosis {
    let mut all = Recording::of(&[WAITER, HOLDER, RIVAL]);
    all.passes(5 * MS);
    // Wakes tell priorities.
    all.waits(READ, 3, HOLDER);
    wakes(&mut all, WAITER, URGENT, holder);
    all.waits(READ, 4, WAITER);
    wakes(&mut all, HOLDER, holder, URGENT);
    all.waits(FUTEX, 0x1000, HOLDER);
    all.passes(MS);
    all.preempted(RIVAL);
    all.passes(60 * MS);
    all.preempted(HOLDER);
    all.passes(2 * MS);
    if ends {
        wakes(&mut all, WAITER, URGENT, holder);
        all.waits(READ, 4, WAITER);
        all.waits(READ, 3, 0);
        all.ends_after(MS);
    } else {
        all.preempted(RIVAL);
        all.passes(40 * MS);
        all.ends_after(0);
    }
    let looked = Looked {
        ts: all.now,
        tid: WAITER,
        pid: WAITER,
        name: "waiter".into(),
        state: 'S',
        call: Some(FUTEX.into()),
        first: 0x1000,
        how: Some(How::Lock),
        by: vec![Holder {
            pid: HOLDER,
            tid: Some(HOLDER),
        }],
        descriptors: Vec::new(),
    };
    let file = all.file(|writer| {
        if !ends {
            let looks = std::slice::from_ref(&looked);
            writer.fact(BlockKind::Waits, &looks).unwrap();
        }
    });
    let request = Request {
        thread: Some(WAITER),
        ..Request::default()
    };
    explained(&build(&file, &[]), &request)
}

#[test]
fn who_had_the_holder_s_cpu_is_named_where_the_lock_is_still_held() {
    let found = recorded(LATER, false);
    assert_eq!(culprits(&found), [HOLDER]);
    let turned = found.culprits[0].inversion.as_ref().unwrap();
    assert_eq!((turned.waiter, turned.holder), (110, 130));
    assert_eq!(turned.instead_tid, Some(RIVAL));
    assert!(turned.starved >= 100 * MS, "{}", turned.starved);
}

#[test]
fn a_holder_as_urgent_as_who_waits_is_no_inversion() {
    let found = recorded(URGENT, false);
    assert_eq!(culprits(&found), [HOLDER]);
    assert!(found.culprits[0].inversion.is_none());
}

#[test]
fn a_futex_of_which_no_stack_tells_that_it_is_a_lock_is_no_inversion() {
    let found = recorded(LATER, true);
    assert_eq!(culprits(&found), [HOLDER]);
    assert!(found.culprits[0].inversion.is_none());
}
