// SPDX-License-Identifier: MIT
//! What is no parting, and what must not hide one: ended runs, signals, noise, inner loops, jumps
//! out of calls. Synthetic runs, answers inline.

use crate::toy::{at, branch_of, diff, single, Code, End, Pen};
use crate::waiting::{normal, program, round, spinning, LAP};
use flagfinder_diff::input::Event;
use flagfinder_diff::{PartingKind, Verdict};

#[test]
fn different_way_inside_a_loop_that_never_ends() {
    // A server: for (;;) { r = select(); if (r) handle(); }; neither run leaves it.
    let code = Code::new(&[
        ("m0", 0x100, End::Call(0x3000)),
        ("m1", 0x110, End::If(0x130)),
        ("m2", 0x120, End::Jump(0x100)),
        ("m3", 0x130, End::Call(0x4000)),
        ("m4", 0x140, End::Jump(0x100)),
        ("y0", 0x3000, End::Sys),
        ("y1", 0x3010, End::Ret),
        ("k0", 0x4000, End::Ret),
    ]);
    let good = single(&code, 1, |pen| {
        pen.times(40, "m0 y0 y1 m1 m2 m0 y0 y1 m1 m3 k0 m4");
    });
    let found = diff(
        &[good],
        &single(&code, 2, |pen| {
            pen.times(3, "m0 y0 y1 m1 m3 k0 m4")
                .times(500, "m0 y0 y1 m1 m2");
        }),
    );
    let parting = &found.partings[0];
    assert_eq!(
        (parting.kind, parting.branch.clone()),
        (PartingKind::InsideLoop, branch_of(0x110))
    );
    assert_eq!(parting.normal_target, at(0x130));
    assert!(parting
        .spin_loop
        .normal
        .is_some_and(|normal| normal.ends_inside));
}

#[test]
fn same_loop_to_the_end_in_both_is_no_divergence() {
    let code = program();
    let found = diff(
        &[single(&code, 1, |pen| spinning(pen, 70))],
        &single(&code, 2, |pen| {
            pen.run("m0 i0");
            pen.run("m1").times(100, LAP);
        }),
    );
    // The earlier rounds of the normal run left the loop, so the exit is known; it is a parting.
    assert_eq!(found.partings[0].branch, branch_of(0x2000));
    let endless = |number, laps| {
        single(&code, number, move |pen: &mut Pen| {
            pen.run("m0 i0 m1").times(laps, LAP);
        })
    };
    let found = diff(&[endless(1, 70)], &endless(2, 300));
    assert_eq!(found.verdict, Verdict::NoDivergence);
    assert_eq!(found.partings[0].kind, PartingKind::Alike);
}

#[test]
fn ended_run_is_no_divergence() {
    let code = program();
    let found = diff(&[single(&code, 1, normal)], &single(&code, 2, normal));
    assert_eq!(
        (found.verdict, found.partings.len()),
        (Verdict::NoDivergence, 0)
    );
}

#[test]
fn cut_without_a_loop_is_no_divergence() {
    let code = program();
    let found = diff(
        &[single(&code, 1, normal)],
        &single(&code, 2, |pen| {
            pen.run("m0 i0 m1 w0 w3 m2 k0 k1 m3 m4");
        }),
    );
    assert_eq!(
        (found.verdict, found.partings.len()),
        (Verdict::NoDivergence, 0),
        "{:?}",
        found.partings
    );
}

#[test]
fn signals_do_not_matter() {
    let code = program();
    let handler = |pen: &mut Pen| {
        pen.event(Event::Signal { ts: 0 })
            .times(7, "h0")
            .run("h1 r0")
            .event(Event::SignalReturn);
    };
    let good = single(&code, 1, normal);
    let found = diff(
        &[good],
        &single(&code, 2, |pen| {
            pen.run("m0 i0");
            round(pen, 2, 5);
            pen.run("m1");
            for number in 0..200 {
                // Between any two blocks: also between a call and its first block, a return and
                // what follows.
                for (place, name) in LAP.split_whitespace().enumerate() {
                    if (number + place) % 9 == 0 {
                        handler(pen);
                    }
                    pen.run(name);
                }
            }
        }),
    );
    let parting = &found.partings[0];
    assert_eq!(
        (parting.branch.clone(), parting.loop_frame),
        (branch_of(0x2000), 1)
    );
    assert_eq!(parting.spin_loop.iterations, 200);
    assert_eq!(parting.stack.len(), 2);
}

#[test]
fn a_second_normal_run_takes_noise_away() {
    // Two ways out: a timeout (only by chance) and the flag.
    let code = Code::new(&[
        ("m0", 0x100, End::Call(0x2000)),
        ("m1", 0x110, End::Ret),
        ("w0", 0x2000, End::If(0x2030)),
        ("w1", 0x2010, End::If(0x2030)),
        ("w2", 0x2020, End::Jump(0x2000)),
        ("w3", 0x2030, End::Ret),
    ]);
    let by_timeout = |number| {
        single(&code, number, |pen: &mut Pen| {
            pen.times(9, "m0 w0 w1 w2 w0 w1 w3 m1")
                .run("m0 w0 w1 w2 w0 w3 m1")
                .exit();
        })
    };
    let by_flag = |number| {
        single(&code, number, |pen: &mut Pen| {
            pen.times(3, "m0 w0 w1 w2 w0 w3 m1").exit();
        })
    };
    let spin = single(&code, 9, |pen| {
        pen.run("m0").times(100, "w0 w1 w2");
    });
    let alone = diff(&[by_timeout(1)], &spin);
    assert_eq!(
        alone.partings[0].branch,
        branch_of(0x2010),
        "most often left that way"
    );
    let both = diff(&[by_timeout(1), by_flag(2)], &spin);
    assert_eq!(
        both.partings[0].branch,
        branch_of(0x2000),
        "all normal runs leave that way"
    );
    assert_eq!(
        both.partings[0].others[0].instruction,
        branch_of(0x2010).unwrap()
    );
}

/// An inner loop of a callee, cut in its middle, is not what holds the thread.
#[test]
fn inner_loops_that_end_are_not_the_loop() {
    let code = program();
    let lap = |pen: &mut Pen, work: usize| {
        pen.run("o0 w0 w3 o1").times(work, "k0").run("k1 o2");
    };
    let good = single(&code, 1, |pen| {
        for work in [3, 9, 4] {
            lap(pen, work);
        }
        pen.run("o3").exit();
    });
    let found = diff(
        &[good],
        &single(&code, 2, |pen| {
            for number in 0..200 {
                lap(pen, 3 + number % 13);
            }
            pen.run("o0 w0 w3 o1 k0 k0 k0 k0 k0 k0 k0");
        }),
    );
    let parting = &found.partings[0];
    assert_eq!(
        (parting.loop_frame, parting.branch.clone()),
        (0, branch_of(0x5020))
    );
    assert_eq!(parting.normal_target, at(0x5030));
}

#[test]
fn longjmp_and_recursion() {
    let code = Code::new(&[
        ("m0", 0x100, End::Call(0x9000)),
        ("m1", 0x110, End::Call(0x2000)),
        ("m2", 0x120, End::If(0x110)),
        ("m3", 0x130, End::Ret),
        ("j0", 0x9000, End::Ret),
        ("f0", 0x2000, End::If(0x2030)),
        ("f1", 0x2010, End::Call(0x2000)),
        ("f2", 0x2020, End::Ret),
        ("f3", 0x2030, End::Call(0xa000)),
        ("f4", 0x2040, End::Ret),
        ("l0", 0xa000, End::Dyn),
    ]);
    // main: setjmp(); f() recurses, then longjmps back behind setjmp.
    let dive = "m1 f0 f1 f0 f1 f0 f3 l0";
    let good = single(&code, 1, |pen| {
        pen.run("m0 j0")
            .times(4, dive)
            .run("m1 f0 f1 f0 f3 l0 m1 f0 f1 f0 f3 f4 f2 m2 m3")
            .exit();
    });
    let found = diff(
        &[good],
        &single(&code, 2, |pen| {
            pen.run("m0 j0").times(300, dive);
        }),
    );
    let parting = &found.partings[0];
    // The stack did not grow: the loop is main's.
    assert_eq!(parting.loop_frame, 0, "{:?}", parting.stack);
    assert!(parting.stack.len() <= 5, "{}", parting.stack.len());
}
