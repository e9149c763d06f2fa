// SPDX-License-Identifier: MIT
//! Which instructions' results a tracer does not record.

use std::collections::HashSet;
use std::sync::LazyLock;

const LIST: &str = include_str!("../../../include/ff_computed.h");

/// iced's names of the instructions whose results the evaluator computes.
pub fn computed() -> impl Iterator<Item = &'static str> {
    names("FF_COMPUTED(")
}

fn names(macro_name: &'static str) -> impl Iterator<Item = &'static str> {
    let rows = LIST
        .lines()
        .filter_map(move |line| line.strip_prefix(macro_name));
    rows.flat_map(|row| row.trim_end_matches(')').split([',', ' ']))
        .filter(|name| name.starts_with(|c: char| c.is_ascii_uppercase()) && !name.contains('_'))
}

/// Whether nothing that it leaves in general registers is to be recorded.
pub fn is_computed(mnemonic: &str) -> bool {
    static NAMES: LazyLock<HashSet<&str>> =
        LazyLock::new(|| computed().chain(names("FF_TOLD(")).collect());
    NAMES.contains(mnemonic)
}
