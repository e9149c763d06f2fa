// SPDX-License-Identifier: MIT
//! Rounds handed over as a cycle give the same answer as rounds spelled out.

use crate::toy::{diff, Code, End, Item, Pen, Script, World};
use flagfinder_diff::input::{Event, Run};
use flagfinder_diff::{Divergence, Verdict};

/// ```text
/// main: init(); do { wait(); work(); } while (more);
/// wait: while (!ready()) pause;
/// ready: for (each of some) if (peek()) return true; return false;
/// ```
fn program() -> Code {
    Code::new(&[
        ("m0", 0x100, End::Call(0x1000)),
        ("m1", 0x110, End::Call(0x2000)),
        ("m2", 0x120, End::Call(0x4000)),
        ("m3", 0x130, End::If(0x110)),
        ("m4", 0x140, End::Ret),
        ("i0", 0x1000, End::Ret),
        ("w0", 0x2000, End::Call(0x3000)),
        ("w1", 0x2010, End::If(0x2030)),
        ("w2", 0x2020, End::Jump(0x2000)),
        ("w3", 0x2030, End::Ret),
        ("r0", 0x3000, End::Call(0x5000)),
        ("r1", 0x3010, End::If(0x3030)),
        ("r2", 0x3020, End::If(0x3000)),
        ("r3", 0x3030, End::Ret),
        ("p0", 0x5000, End::Ret),
        ("k0", 0x4000, End::If(0x4000)),
        ("k1", 0x4010, End::Ret),
    ])
}

/// One look at `some` places.
fn lap(some: usize) -> String {
    let inner = ["r0 p0 r1 r2"; 8][..some].join(" ");
    format!("w0 {inner} r3 w1 w2")
}

/// Writes the cycles out, block by block.
fn spell(run: &mut Run<Script>) {
    for thread in &mut run.threads {
        let items = std::mem::take(&mut thread.flow.items);
        for item in items {
            match item {
                Item::Cycle(round, count) => {
                    let ids = round.iter().cycle().take(count as usize);
                    thread.flow.items.extend(ids.map(|&id| Item::Block(id)));
                }
                other => thread.flow.items.push(other),
            }
        }
    }
}

fn run(code: &Code, number: u32, write: impl FnOnce(&mut Pen)) -> Run<Script> {
    let mut world = World::new(code, number);
    world.thread(100 * number, 0, |pen| {
        pen.run("m0 i0");
        write(pen);
    });
    world.run.end_ts = 2_000_000_000;
    world.run
}

/// A wait of `count` blocks in laps that begin anywhere in the lap, in pieces as a recording has
/// them, up to the lap's end.
fn wait(pen: &mut Pen, some: usize, phase: usize, pieces: &[u64]) {
    let lap = lap(some);
    let names: Vec<&str> = lap.split_whitespace().collect();
    let mut at = phase % names.len();
    pen.run("m1").run(&names[..at].join(" "));
    let mut ts = 1_000;
    for &count in pieces {
        let turned = [&names[at..], &names[..at]].concat().join(" ");
        pen.event(Event::Clock { ts }).cycle(count, &turned);
        ts += 500_000_000;
        pen.event(Event::Clock { ts });
        at = (at + count as usize) % names.len();
    }
    if at != 0 {
        pen.run(&names[at..].join(" "));
    }
}

/// The answer, which must be the same with the cycles written out.
fn same(normal: Run<Script>, mut spin: Run<Script>) -> Divergence {
    let mut normals = [normal];
    let folded = diff(&normals, &spin);
    spell(&mut normals[0]);
    spell(&mut spin);
    assert_eq!(folded, diff(&normals, &spin));
    folded
}

#[test]
fn spins_of_every_phase_and_length() {
    let code = program();
    let mut answers = 0;
    for some in [1, 2, 3] {
        let length = lap(some).split_whitespace().count();
        let normal = |pen: &mut Pen| {
            for number in 0..4 {
                wait(pen, some, 0, &[40 * length as u64]);
                pen.run("w0 r0 p0 r1 r3 w1 w3 m2")
                    .times(20 + number, "k0")
                    .run("k1 m3");
            }
            pen.run("m4").exit();
        };
        for phase in 0..length {
            for pieces in [&[5_000, 7_001][..], &[9, 3_003, 64, 6_000], &[20_000]] {
                let spin = run(&code, 2, |pen| {
                    wait(pen, some, phase, &[1_000]);
                    pen.run("w0 r0 p0 r1 r3 w1 w3 m2 k0 k0 k1 m3");
                    wait(pen, some, phase, pieces);
                });
                let found = same(run(&code, 1, normal), spin);
                assert_eq!(found.verdict, Verdict::Parted, "{}", found.reason);
                answers += 1;
            }
        }
    }
    assert!(answers > 50);
}

/// The recording ends anywhere in the round.
#[test]
fn cut_rounds() {
    let code = program();
    let normal = |pen: &mut Pen| {
        wait(pen, 2, 3, &[500]);
        pen.run("w0 r0 p0 r1 r3 w1 w3 m2 k0 k1 m3 m4").exit();
    };
    for cut in 0..12 {
        let spin = run(&code, 2, |pen| {
            pen.run("m1").cycle(10_000 + cut, &lap(2));
        });
        same(run(&code, 1, normal), spin);
    }
}

/// Recursion that never comes back is no round, whatever the ids look like.
#[test]
fn recursion_is_followed() {
    let code = Code::new(&[
        ("a0", 0x100, End::Call(0x100)),
        ("a1", 0x110, End::Ret),
        ("b0", 0x200, End::If(0x200)),
        ("b1", 0x210, End::Ret),
    ]);
    let normal = crate::toy::single(&code, 1, |pen| {
        pen.cycle(3_000, "a0").run("b0 b1").exit();
    });
    let spin = crate::toy::single(&code, 2, |pen| {
        pen.cycle(3_000, "a0").cycle(5_000, "b0");
    });
    same(normal, spin);
}
