// SPDX-License-Identifier: MIT
//! Where two runs part, for each situation that real programs bring. Synthetic runs, answers
//! inline.

use crate::toy::{at, branch_of, diff, single, Code, End, World};
use crate::waiting::{normal, program, round, spinning, LAP};
use flagfinder_diff::input::Event;
use flagfinder_diff::{ContextMatch, PartingKind, Verdict};

#[test]
fn a_signal_that_ends_the_process_finds_its_threads_in_their_loops() {
    let code = program();
    let verdict = |killed: bool, by_call: bool| {
        let mut spin = single(&code, 2, |pen| {
            spinning(pen, 1000);
            if by_call {
                pen.event(Event::SyscallEnter { number: 60, ts: 0 });
            }
            pen.exit();
        });
        spin.processes[0].killed = killed;
        diff(&[single(&code, 1, normal)], &spin).verdict
    };
    assert_eq!(verdict(true, false), Verdict::Parted);
    assert_eq!(verdict(true, true), Verdict::NoDivergence);
    assert_eq!(verdict(false, false), Verdict::NoDivergence);
}

#[test]
fn loop_left_in_normal_only() {
    let code = program();
    let found = diff(
        &[single(&code, 1, normal)],
        &single(&code, 2, |pen| spinning(pen, 1000)),
    );
    assert_eq!(found.verdict, Verdict::Parted, "{}", found.reason);
    let parting = &found.partings[0];
    assert_eq!(parting.kind, PartingKind::LoopExit);
    assert_eq!(parting.branch, branch_of(0x2000));
    assert_eq!(parting.normal_target, at(0x2030));
    assert_eq!(parting.spin_target, at(0x2010));
    assert_eq!(parting.context, ContextMatch::Paired);
    assert_eq!((parting.frame, parting.loop_frame), (1, 1));
    // 2 + 1 and 4 + 1 executions before the call that is never left.
    assert_eq!(parting.occurrence, 9);
    assert_eq!(parting.spin_loop.iterations, 1000);
    assert_eq!(parting.spin_loop.earlier_stays, 2);
    let normal = parting
        .spin_loop
        .normal
        .expect("the normal run was in this loop");
    assert_eq!((normal.left, normal.most_iterations), (6, 6));
    assert!(parting.confidence > 0.9);
    let call_sites: Vec<_> = parting
        .stack
        .iter()
        .map(|frame| frame.call_site.clone())
        .collect();
    assert_eq!(call_sites, [None, branch_of(0x110)]);
    let outcome = &parting.own_exits[0];
    assert_eq!(outcome.instruction, branch_of(0x2000).unwrap());
    assert_eq!(
        (
            outcome.successors[0].target.clone(),
            outcome.successors[0].normal
        ),
        (at(0x2030), 6)
    );
    assert_eq!(outcome.successors[0].spin, 2);
    assert!(!outcome.successors[0].repeated && outcome.successors[1].repeated);
}

/// Wherever in the loop the recording ends, also inside the callee, the answer is the same.
#[test]
fn any_end_of_the_recording() {
    let code = program();
    let good = [single(&code, 1, normal)];
    for cut in ["", "w0", "w0 w1", "w0 w1 y0", "w0 w1 y0 y1"] {
        let found = diff(
            &good,
            &single(&code, 2, |pen| {
                spinning(pen, 50);
                pen.run(cut);
            }),
        );
        assert_eq!(
            found.partings[0].branch,
            branch_of(0x2000),
            "cut after {cut:?}"
        );
        assert_eq!(found.partings[0].loop_frame, 1, "cut after {cut:?}");
    }
}

#[test]
fn never_reached_the_loop() {
    let code = program();
    // The normal run passes through main without ever calling wait().
    let good = single(&code, 1, |pen| {
        pen.run("m0 i0 m1")
            .run("w0 w3")
            .run("m2 k0 k1 m3 m4")
            .exit();
    });
    // The spin run ends in work(), which loops on.
    let found = diff(
        &[good],
        &single(&code, 2, |pen| {
            pen.run("m0 i0 m1 w0 w3 m2").times(500, "k0");
        }),
    );
    // work()'s loop was passed with one iteration in the normal run: left there by the same branch.
    assert_eq!(found.partings[0].kind, PartingKind::LoopExit);
    assert_eq!(found.partings[0].branch, branch_of(0x4000));
    assert_eq!(found.partings[0].normal_target, at(0x4010));
}

#[test]
fn call_never_made() {
    let code = Code::new(&[
        ("m0", 0x100, End::If(0x130)),
        ("m1", 0x110, End::Call(0x2000)),
        ("m2", 0x120, End::Fall),
        ("m3", 0x130, End::Ret),
        ("w0", 0x2000, End::If(0x2000)),
        ("w1", 0x2010, End::Ret),
    ]);
    let good = single(&code, 1, |pen| {
        pen.run("m0 m3").exit();
    });
    let found = diff(
        &[good],
        &single(&code, 2, |pen| {
            pen.run("m0 m1").times(100, "w0");
        }),
    );
    let parting = &found.partings[0];
    assert_eq!(parting.kind, PartingKind::PathToCall);
    assert_eq!(
        (parting.branch.clone(), parting.frame, parting.loop_frame),
        (branch_of(0x100), 0, 1)
    );
    assert_eq!(
        (parting.normal_target.clone(), parting.spin_target.clone()),
        (at(0x130), at(0x110))
    );
    assert_eq!(parting.spin_loop.normal, None);
}

#[test]
fn loop_passed_by_in_the_same_call() {
    let code = Code::new(&[
        ("m0", 0x100, End::If(0x120)),
        ("m1", 0x110, End::If(0x110)),
        ("m2", 0x120, End::Ret),
    ]);
    let good = single(&code, 1, |pen| {
        pen.run("m0 m2").exit();
    });
    let found = diff(
        &[good],
        &single(&code, 2, |pen| {
            pen.run("m0").times(100, "m1");
        }),
    );
    let parting = &found.partings[0];
    assert_eq!(parting.kind, PartingKind::PathToLoop);
    assert_eq!(parting.branch, branch_of(0x100));
    assert_eq!(parting.normal_target, at(0x120));
}

#[test]
fn earlier_stays_of_the_same_run_tell_the_exit() {
    let code = program();
    let good = single(&code, 1, |pen| {
        pen.run("m0 i0 m4").exit();
    });
    let found = diff(
        &[good],
        &single(&code, 2, |pen| {
            pen.run("c0");
            spinning(pen, 200);
        }),
    );
    let parting = &found.partings[0];
    assert_ne!(parting.kind, PartingKind::LoopExit);
    assert_eq!(parting.own_exits.len(), 1);
    assert_eq!(parting.own_exits[0].instruction, branch_of(0x2000).unwrap());
    assert_eq!(parting.own_exits[0].successors[0].target, at(0x2030));
}

#[test]
fn another_callee() {
    let code = program();
    let good = single(&code, 1, |pen| {
        pen.run("s0 c0 k0 k1 c1 s1").exit();
    });
    let found = diff(
        &[good],
        &single(&code, 2, |pen| {
            pen.run("s0 c0").times(100, "h0");
        }),
    );
    let parting = &found.partings[0];
    assert_eq!(parting.kind, PartingKind::Callee);
    assert_eq!(parting.branch, branch_of(0x8100));
    assert_eq!(
        (parting.normal_target.clone(), parting.spin_target.clone()),
        (at(0x4000), at(0x6000))
    );
}

#[test]
fn entered_by_another_path() {
    let code = program();
    // The normal run waits in other(), the spin run in main().
    let good = single(&code, 1, |pen| {
        pen.run("o0")
            .times(3, LAP)
            .run("w0 w3 o1 k0 k1 o2 o3")
            .exit();
    });
    let found = diff(&[good], &single(&code, 2, |pen| spinning(pen, 300)));
    let parting = &found.partings[0];
    assert_eq!(parting.context, ContextMatch::SameFunction);
    assert_eq!(
        (parting.kind, parting.branch.clone()),
        (PartingKind::LoopExit, branch_of(0x2000))
    );
    assert!(parting.confidence < 0.7, "{}", parting.confidence);
}

#[test]
fn same_caller_by_another_path() {
    let code = program();
    // wait() is called from main's call site both times, but main was itself called in the spin
    // run.
    let good = single(&code, 1, normal);
    let found = diff(
        &[good],
        &single(&code, 2, |pen| {
            pen.run("c0 m0 i0");
            round(pen, 1, 2);
            pen.run("m1").times(300, LAP);
        }),
    );
    let parting = &found.partings[0];
    assert_eq!(
        (parting.context, parting.branch.clone()),
        (ContextMatch::SameCaller, branch_of(0x2000))
    );
}

fn two_threads<'a>(code: &'a Code, number: u32, first_waits: bool, forever: bool) -> World<'a> {
    let mut world = World::new(code, number);
    let tid = |offset: u32| 1000 * number + offset;
    world.thread(tid(0), 0, |pen| {
        pen.run("m0 i0")
            .clone_thread(tid(7))
            .clone_thread(tid(3))
            .run("m4")
            .exit();
    });
    let mut worker = |id: u32, waits: bool| {
        world.thread(tid(id), tid(0), |pen| {
            for _ in 0..3 {
                // The last to arrive does not wait; each of them passes through wait().
                pen.run("o0")
                    .times(if waits { 5 } else { 0 }, LAP)
                    .run("w0 w3 o1");
                pen.times(10, "k0").run("k1 o2");
            }
            match forever {
                true if waits => pen.run("o0").times(400, LAP),
                true => pen
                    .run("r0")
                    .event(Event::SyscallEnter { number: 0, ts: 1 }),
                false => pen.run("o3").exit(),
            };
        });
    };
    worker(7, first_waits);
    worker(3, !first_waits);
    world.run.end_ts = 10_000_000_000;
    world
}

#[test]
fn roles_swapped() {
    let code = program();
    let good = two_threads(&code, 1, true, false).run;
    let bad = two_threads(&code, 2, false, true).run;
    let found = diff(&[good], &bad);
    assert_eq!(
        found.partings.len(),
        1,
        "only the one that loops: {:?}",
        found.partings
    );
    let parting = &found.partings[0];
    assert_eq!(parting.thread.tid, 2003);
    assert_eq!(
        (parting.kind, parting.branch.clone()),
        (PartingKind::LoopExit, branch_of(0x2000))
    );
    assert_eq!(found.blocked.len(), 1);
    assert_eq!(
        (found.blocked[0].thread.tid, found.blocked[0].syscall),
        (2007, 0)
    );
    // Pairs: by creation, whatever the ids.
    let of = |tid: u32| {
        found
            .threads
            .iter()
            .find(|pair| pair.spin.as_ref().is_some_and(|spin| spin.tid == tid))
    };
    assert_eq!(
        of(2000)
            .and_then(|pair| pair.normal.clone())
            .map(|normal| normal.tid),
        Some(1000)
    );
    assert!(
        of(2007).is_some_and(|pair| pair.normal.is_some())
            && of(2003).is_some_and(|pair| pair.normal.is_some())
    );
}

#[test]
fn thread_in_one_run_only() {
    let code = program();
    let good = single(&code, 1, |pen| {
        pen.run("m0 i0 m4").exit();
    });
    let mut world = World::new(&code, 2);
    world.thread(200, 0, |pen| {
        pen.run("m0 i0").clone_thread(201).run("m4").exit();
    });
    world.thread(201, 200, |pen| {
        pen.run("h0").times(100, "h0");
    });
    let found = diff(&[good], &world.run);
    assert_eq!(found.partings[0].kind, PartingKind::OnlyInSpin);
    assert_eq!(found.partings[0].branch, None);
    let alone: Vec<_> = found
        .threads
        .iter()
        .filter(|pair| pair.normal.is_none())
        .collect();
    assert_eq!(alone.len(), 1);
    assert_eq!(alone[0].spin.as_ref().map(|spin| spin.tid), Some(201));
}
