// SPDX-License-Identifier: MIT
//! Programs that a process ran before the one that spins, by exec. Synthetic runs, answers inline.

use crate::toy::{branch_of, diff, single, Code, End, Pen, Script, World};
use flagfinder_diff::input::{Event, Run};
use flagfinder_diff::{Divergence, Verdict};

/// main: while (!flag) yield();  A starter only loops (over its PATH, say) and calls exec in it.
fn program() -> Code {
    Code::new(&[
        ("m0", 0x100, End::Call(0x2000)),
        ("m1", 0x110, End::Ret),
        ("w0", 0x2000, End::If(0x2020)),
        ("w1", 0x2010, End::Jump(0x2000)),
        ("w2", 0x2020, End::Ret),
        ("e0", 0x7000, End::If(0x7000)),
        ("e1", 0x7010, End::Sys),
    ])
}

const EXECVE: u32 = 59;

fn starts(pen: &mut Pen) {
    pen.times(3000, "e0").run("e1");
    pen.event(Event::SyscallEnter {
        number: EXECVE,
        ts: 5,
    });
    pen.event(Event::Exec);
}

fn normal(pen: &mut Pen) {
    pen.run("m0 w0 w1 w0 w2 m1").exit();
}

fn spinning(pen: &mut Pen) {
    pen.run("m0").times(500, "w0 w1");
}

/// The program behind a starter, in one process.
fn behind(code: &Code, number: u32, starter: &str, write: fn(&mut Pen)) -> Run<Script> {
    let mut world = World::new(code, number);
    let tid = 100 * number;
    world.program(starter).thread(tid, 0, starts);
    world.exec("app").thread(tid, 0, write);
    world.run
}

fn assert_names_the_program(found: &Divergence, image: u32) {
    assert_eq!(found.verdict, Verdict::Parted, "{}", found.reason);
    assert_eq!(found.partings.len(), 1, "{:?}", found.partings);
    let parting = &found.partings[0];
    assert_eq!(parting.branch, branch_of(0x2000));
    assert_eq!(
        (parting.thread.image, parting.thread.program.as_str()),
        (image, "app")
    );
}

#[test]
fn what_ran_before_the_exec_does_not_spin() {
    let code = program();
    let normal = behind(&code, 1, "env", normal);
    let found = diff(&[normal], &behind(&code, 2, "env", spinning));
    assert_names_the_program(&found, 2);
    assert!(found.unlike.is_empty(), "{:?}", found.unlike);
    assert_eq!(found.threads.len(), 2, "{:?}", found.threads);
    for pair in &found.threads {
        let images = [&pair.normal, &pair.spin].map(|side| side.as_ref().map(|t| t.image));
        assert_eq!(images[0], images[1], "{pair:?}");
    }
}

#[test]
fn a_program_is_found_however_it_was_started() {
    let code = program();
    for (normal, spin, image, ways) in [
        (
            single(&code, 1, normal),
            behind(&code, 2, "env", spinning),
            2,
            "directly in the normal run and through env in the spin run",
        ),
        (
            behind(&code, 1, "nice", normal),
            single(&code, 2, spinning),
            1,
            "through nice in the normal run and directly in the spin run",
        ),
    ] {
        let found = diff(&[normal], &spin);
        assert_names_the_program(&found, image);
        let pair = found.threads.iter().find(|pair| pair.normal.is_some());
        assert!(pair.is_some_and(|pair| pair.spin.as_ref().is_some_and(|t| t.program == "app")));
        assert_eq!(found.unlike.len(), 1, "{:?}", found.unlike);
        assert!(found.unlike[0].contains(ways), "{:?}", found.unlike);
    }
}

#[test]
fn an_exec_that_failed_leaves_the_program_where_it_was() {
    let code = program();
    let spin = single(&code, 2, |pen| {
        pen.run("m0");
        pen.event(Event::SyscallEnter {
            number: EXECVE,
            ts: 5,
        });
        pen.event(Event::Exec);
        pen.event(Event::SyscallExit {
            number: EXECVE,
            result: -2,
            ts: 6,
        });
        pen.times(500, "w0 w1");
    });
    let found = diff(&[single(&code, 1, normal)], &spin);
    assert_names_the_program(&found, 1);
    assert_eq!(found.partings[0].stack.len(), 2, "main and the wait");
}

#[test]
fn an_exec_that_nobody_followed_ends_the_thread() {
    let code = program();
    let found = diff(&[single(&code, 1, normal)], &single(&code, 2, starts));
    assert_eq!(found.verdict, Verdict::NoDivergence);
    assert_eq!(found.reason, "every thread of the spin run ended by itself");
}
