// SPDX-License-Identifier: MIT
//! Loops that are told apart by time: slow pollers, short spins, busy machines, idling threads.

use crate::toy::{branch_of, diff, Code, End, Pen, Script, World};
use flagfinder_diff::input::{Event, Run};
use flagfinder_diff::{PartingKind, Verdict};

const MS: u64 = 1_000_000;

/// main: do { wait(); work } while (more); wait: while (!flag) sleep();
fn program() -> Code {
    Code::new(&[
        ("m1", 0x110, End::Call(0x2000)),
        ("m3", 0x120, End::If(0x110)),
        ("m4", 0x130, End::Ret),
        ("w0", 0x2000, End::If(0x2030)),
        ("w1", 0x2010, End::Sys),
        ("w2", 0x2020, End::Jump(0x2000)),
        ("w3", 0x2030, End::Ret),
        ("k0", 0x4000, End::If(0x4000)),
        ("k1", 0x4010, End::Ret),
    ])
}

/// Waits of so many ms each, looking at the flag every `nap` ms; the last one is open if `open`.
fn waits(pen: &mut Pen, ms: &[u64], nap: u64, open: bool) {
    let mut now = MS;
    pen.event(Event::Start { ts: now });
    for (number, wait) in ms.iter().enumerate() {
        pen.run("m1");
        let until = now + wait * MS;
        while now < until {
            pen.run("w0 w1").event(Event::SyscallEnter {
                number: 35,
                ts: now,
            });
            now += nap * MS;
            pen.event(Event::SyscallExit {
                number: 35,
                result: 0,
                ts: now,
            });
            pen.run("w2");
        }
        if !open || number + 1 < ms.len() {
            pen.run("w0 w3 m3");
        }
    }
    if !open {
        pen.run("m4").event(Event::Exit { ts: now });
    }
}

fn one(code: &Code, number: u32, end: u64, write: impl FnOnce(&mut Pen)) -> Run<Script> {
    let mut world = World::new(code, number);
    world.thread(100 * number, 0, write);
    world.run.end_ts = end * MS;
    world.run
}

const GOOD: [u64; 5] = [1000, 50, 50, 50, 50];

/// Twice as long as the wait for the first request, but that was no ordinary one: it is the wait
/// that is held, not the loop of main around it.
#[test]
fn a_spin_not_much_longer_than_one_earlier_wait() {
    let code = program();
    let good = one(&code, 1, 1300, |pen| waits(pen, &GOOD, 1, false));
    let bad = one(&code, 2, 3200, |pen| {
        waits(pen, &[1000, 50, 50, 50, 2000], 1, true);
    });
    let found = diff(&[good], &bad);
    let parting = &found.partings[0];
    assert_eq!(parting.kind, PartingKind::LoopExit, "{:?}", parting.why);
    assert_eq!(parting.branch, branch_of(0x2000));
    assert_eq!(parting.spin_loop.longest_earlier_ns / MS, 1000);
    assert!(parting.spin_loop.lasted / MS >= 2000);
    assert!(!parting.second_guess);
}

/// A starved thread: fewer blocks than in an earlier wait, but ten times as long.
#[test]
fn a_long_spin_of_few_blocks() {
    let code = program();
    let good = one(&code, 1, 300, |pen| waits(pen, &[100, 50, 50], 1, false));
    let bad = one(&code, 2, 1400, |pen| {
        waits(pen, &[100, 50], 1, false);
        pen.script.items.truncate(pen.script.items.len() - 2);
        pen.run("m1").times(20, "w0 w1 w2");
    });
    let found = diff(&[good], &bad);
    assert_eq!(
        found.partings[0].branch,
        branch_of(0x2000),
        "{}",
        found.reason
    );
}

/// The thread waited for long in the same function, called from elsewhere: nothing else holds it,
/// so only calls like the present one count.
#[test]
fn another_callers_long_wait() {
    let code = Code::new(&[
        ("a0", 0x100, End::Call(0x2000)),
        ("a1", 0x110, End::Call(0x2000)),
        ("a2", 0x120, End::Ret),
        ("w0", 0x2000, End::If(0x2020)),
        ("w1", 0x2010, End::Jump(0x2000)),
        ("w2", 0x2020, End::Ret),
    ]);
    let run = |number: u32, laps: usize, open: bool| {
        one(&code, number, 0, |pen| {
            pen.run("a0").times(5000, "w0 w1").run("w0 w2 a1");
            pen.times(laps, "w0 w1");
            if !open {
                pen.run("w0 w2 a2").exit();
            }
        })
    };
    let found = diff(&[run(1, 5, false)], &run(2, 2000, true));
    assert_eq!(found.partings.len(), 1, "{}", found.reason);
    assert_eq!(found.partings[0].branch, branch_of(0x2000));
}

/// No longer than an ordinary wait: main's loop may hold it, and the wait is a second guess at
/// best.
#[test]
fn an_ordinary_wait_is_not_held() {
    let code = program();
    let good = one(&code, 1, 3000, |pen| waits(pen, &[500; 5], 10, false));
    let bad = one(&code, 2, 1600, |pen| {
        waits(pen, &[500, 500, 500, 100], 10, true)
    });
    let found = diff(&[good], &bad);
    assert!(
        found
            .partings
            .iter()
            .all(|parting| parting.branch != branch_of(0x2000)),
        "{found:?}"
    );
}

/// Both runs end in the wait for the next request, after as long: nothing to tell.
#[test]
fn both_runs_idle() {
    let code = program();
    let good = one(&code, 1, 3200, |pen| waits(pen, &[50, 50, 3000], 10, true));
    let bad = one(&code, 2, 4200, |pen| waits(pen, &[50, 50, 4000], 10, true));
    let found = diff(&[good], &bad);
    assert_eq!(found.verdict, Verdict::NoDivergence, "{found:?}");
    assert_eq!(found.partings[0].kind, PartingKind::Alike);
}

/// A thread that computes executes a thousand times as much as one that sleeps in a wait that never
/// ends; what it does lasts no longer than in the normal run.
#[test]
fn a_slow_poller_comes_before_a_busy_worker() {
    let code = program();
    let worker = |pen: &mut Pen, laps: usize, open: bool| {
        pen.event(Event::Start { ts: MS });
        for lap in 0..laps {
            pen.times(500, "k0").event(Event::Clock {
                ts: (lap as u64 + 2) * 100 * MS,
            });
        }
        if !open {
            pen.run("k1").exit();
        }
    };
    let mut good = World::new(&code, 1);
    good.thread(100, 0, |pen| {
        pen.clone_thread(101);
        waits(pen, &[50, 50], 10, false);
    });
    good.thread(101, 100, |pen| worker(pen, 15, false));
    good.run.end_ts = 2000 * MS;
    let mut bad = World::new(&code, 2);
    bad.thread(200, 0, |pen| {
        pen.clone_thread(201);
        waits(pen, &[50, 1800], 10, true);
    });
    bad.thread(201, 200, |pen| worker(pen, 18, true));
    bad.run.end_ts = 2000 * MS;
    let found = diff(&[good.run], &bad.run);
    assert_eq!(found.partings[0].thread.tid, 200, "{found:?}");
    assert_eq!(found.partings[0].branch, branch_of(0x2000));
}

/// A service asks for its whole life whether to stop. That the spin run was given more time makes
/// it no stranger than a wait that one hitch of the machine had made long before.
#[test]
fn a_main_loop_comes_after_the_wait_that_holds_the_run() {
    let code = program();
    let service = |pen: &mut Pen, ms: u64, open: bool| {
        pen.event(Event::Start { ts: MS });
        for now in 2..ms {
            pen.run("k0").event(Event::Clock { ts: now * MS });
        }
        if !open {
            pen.run("k1").exit();
        }
    };
    let run = |number: u32, waited: &[u64], ms: u64, open: bool| {
        let mut world = World::new(&code, number);
        world.thread(100 * number, 0, |pen| {
            pen.clone_thread(100 * number + 1);
            waits(pen, waited, 1, open);
        });
        world.thread(100 * number + 1, 100 * number, |pen| service(pen, ms, open));
        world.run.end_ts = ms * MS;
        world.run
    };
    let good = run(1, &[5; 20], 110, false);
    let bad = run(2, &[5, 300, 1800], 2110, true);
    let found = diff(&[good], &bad);
    assert_eq!(found.partings.len(), 2, "{found:?}");
    assert_eq!(found.partings[0].thread.tid, 200, "{found:?}");
    assert_eq!(found.partings[0].branch, branch_of(0x2000));
}
