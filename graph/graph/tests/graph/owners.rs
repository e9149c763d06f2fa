// SPDX-License-Identifier: MIT
//! Who owed the end of a wait: the thread that ended it, whatever else it did; nobody, where none
//! is known.

use flagfinder_events::container::BlockKind;
use flagfinder_events::{DescriptorFact, Kind};
use flagfinder_graph::{build, Class, Diagnosis, Request};

use crate::made_up::{
    culprits, explained, Recording, FUTEX, MS, POLL, READ, SLEEP, SLEEPS, TASK, WRITE,
};

const MAIN: u32 = 1;
const OWNER: u32 = 2;
const OTHER: u32 = 3;
/// As the recorder numbers states.
const STOPPED: u8 = 3;

fn of_main(all: &Recording) -> Diagnosis {
    let request = Request {
        thread: Some(MAIN),
        ..Request::default()
    };
    explained(&all.graph(), &request)
}

/// A thread goes on, which nobody ran before.
fn runs(all: &mut Recording, thread: u32) {
    all.running = 0;
    all.preempted(thread);
}

/// Main asks, and the owner is woken for it by another thread, which then waits for events.
fn asked() -> Recording {
    let mut all = Recording::of(&[MAIN, OWNER, OTHER]);
    all.running = OWNER;
    all.waits(READ, 7, OTHER);
    all.passes(MS);
    all.wakes(OWNER, WRITE);
    all.waits(POLL, 9, MAIN);
    all.waits(FUTEX, 0x1000, OWNER);
    all
}

#[test]
fn a_thread_that_was_started_late_owed_nothing_before() {
    // One thread sleeps before it starts the one that ends main's wait, or after.
    for (naps, owner) in [([300, 0], OWNER), ([0, 300], OTHER)] {
        let mut all = Recording::of(&[MAIN, OWNER]);
        all.waits(READ, 3, OWNER);
        for (who, ms) in [OWNER, OTHER].into_iter().zip(naps) {
            if who == OTHER {
                let pids = u64::from(OTHER) | u64::from(OWNER) << 32;
                all.event(Kind::Fork, 0, OTHER, pids);
                all.waits(READ, 7, OTHER);
            }
            if ms > 0 {
                all.waits(SLEEP, 0, 0);
                all.passes(ms * MS);
                all.times_out(who);
                runs(&mut all, who);
            }
        }
        all.wakes(MAIN, WRITE);
        all.waits(READ, 7, MAIN);
        all.ends_after(MS);
        assert_eq!(culprits(&of_main(&all)), [owner]);
    }
}

#[test]
fn an_owner_that_does_many_short_things_is_blamed_and_they_are_counted() {
    let mut all = asked();
    for _ in 0..50 {
        all.passes(MS);
        all.waits(READ, 5, 0);
        all.passes(9 * MS);
        all.times_out(OWNER);
        runs(&mut all, OWNER);
    }
    all.wakes(MAIN, FUTEX);
    all.waits(READ, 7, MAIN);
    all.ends_after(MS);
    let found = of_main(&all);
    assert_eq!(culprits(&found), [OWNER]);
    let owner = &found.culprits[0];
    assert_eq!(owner.class, Class::Busy);
    let work = owner.work.as_ref().unwrap();
    let reads = &work.counted[0];
    assert_eq!(
        (&reads.call[..], reads.count, reads.blocked),
        ("read", 50, true)
    );
    assert!((450 * MS..451 * MS).contains(&reads.dur), "{}", reads.dur);
    assert!((50 * MS..51 * MS).contains(&work.run), "{}", work.run);
}

#[test]
fn a_thread_that_is_made_to_wait_now_and_then_computes_all_the_same() {
    for (piece, class) in [(9 * MS, Class::LongRunning), (MS / 2, Class::Busy)] {
        let mut all = asked();
        for _ in 0..300 * MS / piece {
            all.passes(piece);
            all.waits(FUTEX, 0x3000, 0);
            all.passes(piece / 2);
            all.times_out(OWNER);
            runs(&mut all, OWNER);
        }
        all.wakes(MAIN, FUTEX);
        all.waits(READ, 7, MAIN);
        all.ends_after(MS);
        let found = of_main(&all);
        assert_eq!(culprits(&found), [OWNER]);
        assert_eq!(found.culprits[0].class, class);
    }
}

#[test]
fn calls_that_ran_are_counted_with_their_descriptor_where_all_were_recorded() {
    const PREAD: u16 = libc::SYS_pread64 as u16;
    let mut all = asked();
    all.info.syscalls = "target".into();
    for _ in 0..50 {
        for _ in 0..40 {
            all.enter(PREAD, 5);
            all.passes(MS / 10);
            all.returns(PREAD, 4096);
        }
        all.blocks(READ, 6, 0);
        all.passes(6 * MS);
        all.times_out(OWNER);
        runs(&mut all, OWNER);
        all.returns(READ, 1);
    }
    all.wakes(MAIN, FUTEX);
    all.blocks(READ, 7, MAIN);
    all.ends_after(MS);
    let file = DescriptorFact {
        pid: OWNER,
        fd: 5,
        target: "/big.bin".into(),
        ..DescriptorFact::default()
    };
    let events = all.file(|writer| writer.fact(BlockKind::Descriptors, &[&file]).unwrap());
    let request = Request {
        thread: Some(MAIN),
        ..Request::default()
    };
    let found = explained(&build(&events, &[]), &request);
    let work = found.culprits[0].work.as_ref().unwrap();
    let told: Vec<_> = work
        .counted
        .iter()
        .map(|one| (&one.call[..], one.target.as_deref(), one.blocked))
        .collect();
    assert_eq!(
        told[..2],
        [("read", None, true), ("pread64", Some("/big.bin"), false)]
    );
    let reads = &work.counted[1];
    assert!((1950..=2000).contains(&reads.count), "{}", reads.count);
    assert!((190 * MS..205 * MS).contains(&reads.dur), "{}", reads.dur);
}

#[test]
fn a_thread_that_only_hands_on_what_came_is_not_blamed() {
    let mut all = Recording::of(&[MAIN, OWNER, OTHER]);
    all.running = OTHER;
    all.waits(POLL, 9, MAIN);
    all.waits(FUTEX, 0x1000, OWNER);
    all.passes(300 * MS);
    all.wakes(OTHER, WRITE);
    all.waits(READ, 7, OTHER);
    all.wakes(MAIN, FUTEX);
    all.waits(POLL, 9, MAIN);
    all.ends_after(MS);
    let found = of_main(&all);
    assert_eq!(culprits(&found)[0], OWNER);
    assert_eq!(found.culprits[0].class, Class::LongRunning);
}

/// Main waits for the owner, which asks for a lock again and again that others take before it.
fn convoy(look: u64, is_answered: bool) -> Diagnosis {
    let mut all = Recording::of(&[MAIN, OWNER, OTHER]);
    all.waits(FUTEX, 0x1000, OWNER);
    all.waits(FUTEX, 0x2000, OTHER);
    for _ in 0..10 {
        all.waits(SLEEP, 0, 0);
        all.passes(40 * MS);
        all.times_out(OTHER);
        runs(&mut all, OTHER);
        all.wakes(OWNER, FUTEX);
        all.preempted(OWNER);
        all.passes(look);
        if is_answered {
            all.wakes(OTHER + 1, FUTEX);
            all.waits(FUTEX, 0x2000, OTHER + 1);
            all.waits(READ, 7, OTHER);
        } else {
            all.waits(FUTEX, 0x2000, OTHER);
        }
    }
    all.wakes(OWNER, FUTEX);
    all.preempted(OWNER);
    all.wakes(MAIN, FUTEX);
    all.waits(READ, 7, OTHER);
    all.ends_after(MS);
    of_main(&all)
}

#[test]
fn a_thread_that_does_not_get_its_lock_is_explained_by_who_has_it() {
    let found = convoy(1000, false);
    assert_eq!(culprits(&found), [OTHER, OWNER]);
    assert_eq!(found.culprits[1].class, Class::LongWait);
    // It works in between, or answers somebody: these are rounds of its own.
    for found in [convoy(2 * MS, false), convoy(1000, true)] {
        assert_eq!(culprits(&found), [OWNER]);
        assert_eq!(found.culprits[0].class, Class::Busy);
    }
}

#[test]
fn who_lets_a_stopped_thread_go_on_is_not_blamed_for_what_it_did_meanwhile() {
    let mut all = asked();
    let stop = libc::SIGSTOP as u64;
    all.running = OTHER;
    all.event(Kind::Signal, TASK, OWNER, stop);
    all.running = OWNER;
    all.event(Kind::Switch, STOPPED, 0, 0);
    all.running = OTHER;
    all.waits(SLEEP, 0, 0);
    all.passes(300 * MS);
    all.times_out(OTHER);
    runs(&mut all, OTHER);
    all.wakes(OWNER, libc::SYS_kill as u16);
    all.waits(READ, 8, OWNER);
    all.wakes(MAIN, FUTEX);
    all.waits(READ, 7, MAIN);
    all.ends_after(MS);
    let found = of_main(&all);
    assert_eq!(culprits(&found), [OWNER]);
    let doing = &found.culprits[0].doing;
    assert_eq!(
        doing,
        &format!("stopped by SIGSTOP from thread {OTHER} (thread-{OTHER})")
    );
}

#[test]
fn a_thread_that_waits_for_events_is_not_suspected_for_what_it_did_before() {
    for (call, blamed) in [(POLL, vec![]), (READ, vec![OWNER])] {
        let mut all = Recording::of(&[MAIN, OWNER]);
        all.running = OWNER;
        all.waits(call, 7, MAIN);
        for _ in 0..5 {
            all.passes(MS);
            all.wakes(OWNER, WRITE);
            all.waits(FUTEX, 0x1000, OWNER);
            all.passes(MS);
            all.wakes(MAIN, FUTEX);
            all.waits(call, 7, MAIN);
        }
        all.waits(FUTEX, 0x1000, 0);
        all.ends_after(3000 * MS);
        assert_eq!(culprits(&of_main(&all)), blamed);
    }
}

/// Main waits at a futex that another thread woke it from before, so often, and then for ever.
fn endless(rounds: usize) -> Diagnosis {
    let mut all = Recording::of(&[MAIN, OWNER]);
    all.running = OWNER;
    all.waits(READ, 7, MAIN);
    for _ in 0..rounds {
        all.passes(MS);
        all.wakes(OWNER, WRITE);
        all.waits(FUTEX, 0x1000, OWNER);
        all.passes(MS);
        all.wakes(MAIN, FUTEX);
        all.waits(READ, 7, MAIN);
    }
    all.waits(FUTEX, 0x1000, 0);
    all.ends_after(3000 * MS);
    of_main(&all)
}

#[test]
fn what_happened_once_at_a_word_of_memory_blames_nobody() {
    assert_eq!(culprits(&endless(5)), [OWNER]);
    let found = endless(1);
    assert!(found.culprits.is_empty(), "{:?}", culprits(&found));
    assert!(found.compared.is_none());
}

#[test]
fn a_thread_that_is_asleep_by_itself_is_its_own_culprit() {
    let mut all = Recording::of(&[MAIN, OWNER]);
    all.event(Kind::Switch, SLEEPS, 0, {
        let (number, first) = (SLEEP, 0);
        flagfinder_events::Call { number, first }.pack()
    });
    all.passes(400 * MS);
    all.times_out(MAIN);
    runs(&mut all, MAIN);
    all.waits(READ, 7, 0);
    all.ends_after(MS);
    assert_eq!(culprits(&of_main(&all)), [MAIN]);
}

#[test]
fn an_event_loop_with_a_clock_only_handed_on_what_another_made_late() {
    const EPOLL: u16 = libc::SYS_epoll_wait as u16;
    let mut all = Recording::of(&[MAIN, OWNER, OTHER]);
    all.running = OWNER;
    all.waits(EPOLL, 5, MAIN);
    all.passes(MS);
    all.wakes(OWNER, WRITE);
    all.waits(READ, 3, OWNER);
    all.waits(EPOLL, 5, OTHER);
    // The other computes meanwhile.
    for _ in 0..8 {
        all.passes(100 * MS);
        all.times_out(OWNER);
        all.preempted(OWNER);
        all.waits(EPOLL, 5, OTHER);
    }
    all.passes(50 * MS);
    all.wakes(OWNER, WRITE);
    all.waits(READ, 9, OWNER);
    all.wakes(MAIN, WRITE);
    all.waits(EPOLL, 5, MAIN);
    all.waits(READ, 8, 0);
    all.ends_after(MS / 2);
    let found = of_main(&all);
    assert_eq!(culprits(&found), [OTHER, OWNER]);
    assert_eq!(found.culprits[0].class, Class::LongRunning);
}

/// Main asks the owner again and again, who once does not answer and waits for what main sends to a
/// descriptor. Main's patience ends.
fn unanswered(descriptor: u64) -> Diagnosis {
    let mut all = Recording::of(&[MAIN, OWNER]);
    all.running = OWNER;
    all.waits(READ, 4, MAIN);
    for round in 0..8 {
        all.passes(MS);
        all.wakes(OWNER, WRITE);
        all.waits(READ, 3, OWNER);
        all.passes(MS);
        if round == 5 {
            all.waits(READ, descriptor, 0);
            all.passes(700 * MS);
            all.times_out(MAIN);
            runs(&mut all, MAIN);
        } else {
            all.wakes(MAIN, WRITE);
            all.waits(READ, 4, MAIN);
        }
    }
    all.ends_after(MS / 2);
    of_main(&all)
}

#[test]
fn a_server_that_waits_for_the_next_request_is_no_part_of_a_circle() {
    for (descriptor, is_circular) in [(4, false), (6, true)] {
        let found = unanswered(descriptor);
        assert_eq!(culprits(&found), [OWNER]);
        assert_eq!(found.circular, is_circular);
    }
}

#[test]
fn who_asks_for_a_files_lock_between_sleeps_waits_for_the_thread_that_has_it() {
    // In a read that comes to nothing it waits for something else.
    for (call, thread, culprit) in [(SLEEP, 0, OWNER), (SLEEP, OWNER, OWNER), (READ, 0, MAIN)] {
        let mut all = Recording::of(&[MAIN, OWNER]);
        for _ in 0..30 {
            all.event(Kind::Refused, 0, thread, OWNER.into());
            all.waits(call, 0, OWNER);
            all.passes(10 * MS);
            all.times_out(MAIN);
            all.preempted(MAIN);
        }
        all.ends_after(MS);
        assert_eq!(culprits(&of_main(&all)).first(), Some(&culprit));
    }
}
