// SPDX-License-Identifier: MIT
//! A program that waits in rounds, for the tests of partings.

use crate::toy::{Code, End, Pen};

/// main calls wait() in a loop; wait() tests a flag and yields.
///
/// ```text
/// main: init(); do { wait(); work(); } while (more);
/// wait: while (!flag) yield();
/// other: calls wait() too
/// ```
pub fn program() -> Code {
    Code::new(&[
        ("m0", 0x100, End::Call(0x1000)),
        ("m1", 0x110, End::Call(0x2000)),
        ("m2", 0x120, End::Call(0x4000)),
        ("m3", 0x130, End::If(0x110)),
        ("m4", 0x140, End::Ret),
        ("i0", 0x1000, End::Ret),
        ("w0", 0x2000, End::If(0x2030)),
        ("w1", 0x2010, End::Call(0x3000)),
        ("w2", 0x2020, End::Jump(0x2000)),
        ("w3", 0x2030, End::Ret),
        ("y0", 0x3000, End::Sys),
        ("y1", 0x3010, End::Ret),
        ("k0", 0x4000, End::If(0x4000)),
        ("k1", 0x4010, End::Ret),
        ("o0", 0x5000, End::Call(0x2000)),
        ("o1", 0x5010, End::Call(0x4000)),
        ("o2", 0x5020, End::If(0x5000)),
        ("o3", 0x5030, End::Ret),
        ("h0", 0x6000, End::If(0x6000)),
        ("h1", 0x6010, End::Ret),
        ("r0", 0x7000, End::Sys),
        ("s0", 0x8000, End::Call(0x8100)),
        ("s1", 0x8010, End::Ret),
        ("c0", 0x8100, End::DynCall),
        ("c1", 0x8110, End::Ret),
    ])
}

pub const LAP: &str = "w0 w1 y0 y1 w2";

pub fn round(pen: &mut Pen, laps: usize, work: usize) {
    pen.run("m1")
        .times(laps, LAP)
        .run("w0 w3 m2")
        .times(work, "k0")
        .run("k1 m3");
}

pub fn normal(pen: &mut Pen) {
    pen.run("m0 i0");
    for number in 0..6 {
        round(pen, number, 20 + number * 7);
    }
    pen.run("m4").exit();
}

pub fn spinning(pen: &mut Pen, laps: usize) {
    pen.run("m0 i0");
    round(pen, 2, 31);
    round(pen, 4, 9);
    pen.run("m1").times(laps, LAP);
}
