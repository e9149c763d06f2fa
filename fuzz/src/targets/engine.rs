// SPDX-License-Identifier: MIT
//! Compares two traces made of arbitrary bytes and looks for the flag: no panic, whatever they say.
//!
//! An input is a normal run's trace and a spinning run's, one behind the other; without a second
//! one it is both.

use crate::repair;
use flagfinder_diff::{diff, Options as DiffOptions};
use flagfinder_flags::{find_flags, Options};
use flagfinder_trace::container::FORMAT;
use flagfinder_trace::Trace;

/// See the module.
pub fn run(data: &[u8]) {
    let Some((normal, spin)) = pair(data) else {
        return;
    };
    let normals = [normal];
    let divergence = diff(&[&normals[0]], &spin, &DiffOptions::default(), &|_| {}).ok();
    let _ = find_flags(&spin, &normals, divergence.as_ref(), &Options::default());
    // As `spin PID` does it.
    let _ = find_flags(&spin, &[], None, &Options::default());
}

/// The two traces of an input.
pub(super) fn pair(data: &[u8]) -> Option<(Trace, Trace)> {
    let second = data
        .windows(FORMAT.magic.len())
        .skip(1)
        .position(|bytes| bytes == FORMAT.magic)
        .map_or(0, |before| before + 1);
    let first = if second == 0 { data } else { &data[..second] };
    open(first).zip(open(&data[second..]))
}

fn open(data: &[u8]) -> Option<Trace> {
    let mut bytes = data.to_vec();
    repair(&mut bytes);
    Trace::from_bytes(bytes).ok()
}
