// SPDX-License-Identifier: MIT
//! Calls that are repeated and bring nothing, in the diagnosis.

use flagfinder_events::container::BlockKind;
use flagfinder_events::{DescriptorFact, Kind};
use flagfinder_graph::{build, Class, Diagnosis, Hot, Request};

use crate::made_up::{explained, Recording, MS, READ, SLEEP};

const OPENAT: u16 = libc::SYS_openat as u16;
const CLOSE: u16 = libc::SYS_close as u16;
const STAT: u16 = libc::SYS_newfstatat as u16;
const PARENT: u32 = 1;
const CHILD: u32 = 2;

/// The parent runs a script of opens and closes, and starts the child, which calls over and over.
fn recording(opens: &[(u16, u64)], number: u16, result: i64) -> Recording {
    let mut all = Recording::of(&[PARENT]);
    all.passes(MS);
    for &(number, fd) in opens {
        let first = if number == CLOSE { fd } else { u64::MAX };
        all.enter(number, first);
        all.returns(number, if number == CLOSE { 0 } else { fd });
    }
    let pids = u64::from(CHILD) | u64::from(PARENT) << 32;
    all.event(Kind::Fork, 0, CHILD, pids);
    all.enter(CLOSE, 5);
    all.returns(CLOSE, 0);
    all.waits(SLEEP, 0, CHILD);
    for _ in 0..3000 {
        all.enter(number, 5);
        all.passes(1000);
        all.returns(number, result as u64);
    }
    all.info.syscalls = "target".into();
    all.ends_after(10);
    all
}

fn diagnosis(all: &Recording) -> Diagnosis {
    let facts = [DescriptorFact {
        ts: all.now,
        pid: CHILD,
        fd: 5,
        target: "pipe:[7]".into(),
        ..DescriptorFact::default()
    }];
    let file = all.file(|writer| writer.fact(BlockKind::Descriptors, &facts).unwrap());
    let request = Request {
        thread: Some(CHILD),
        ..Request::default()
    };
    explained(&build(&file, &[]), &request)
}

fn hot(found: &Diagnosis) -> &Hot {
    assert_eq!(found.class, Class::HotCalls);
    found.hot.as_ref().unwrap()
}

#[test]
fn the_process_that_opened_the_descriptor_and_passed_it_on_is_named() {
    let found = diagnosis(&recording(&[(OPENAT, 5)], READ, 0));
    assert_eq!(found.doing, "calling read on pipe:[7] over and over");
    let hot = hot(&found);
    assert_eq!((&hot.call[..], hot.result, hot.calls), ("read", 0, 3000));
    assert!(hot.per_second > 900_000, "{}", hot.per_second);
    let [descriptor] = &hot.descriptors[..] else {
        panic!("{:?}", hot.descriptors)
    };
    let why = descriptor.why.as_deref();
    assert_eq!(why, Some("end of file: no process has it open for writing"));
    let by = hot.opened_by.as_ref().unwrap();
    assert_eq!((by.tid, &by.call[..]), (PARENT, "openat"));
}

#[test]
fn a_descriptor_that_was_closed_in_between_is_not_the_one_that_was_opened() {
    let found = diagnosis(&recording(&[(OPENAT, 5), (CLOSE, 5)], READ, 0));
    assert!(hot(&found).opened_by.is_none());
}

#[test]
fn calls_that_bring_something_are_no_hang_of_this_class() {
    for (number, result) in [(READ, 64), (STAT, -2)] {
        let found = diagnosis(&recording(&[(OPENAT, 5)], number, result));
        assert_eq!(found.class, Class::LongRunning);
        assert!(found.hot.is_none());
    }
}
