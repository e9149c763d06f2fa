// SPDX-License-Identifier: MIT
//! The names of the runs that a report is about.

use flagfinder_code::{DataName, Names};

/// Names of both runs; `normal` is absent for a live thread or a lone spin trace.
pub struct Naming<'a> {
    pub spin: &'a Names,
    pub normal: Option<&'a Names>,
}

/// A word's name where it stands within a text: without its kind and thread.
pub(crate) fn short_name(data: &DataName, address: u64) -> String {
    match (&data.symbol, &data.field) {
        (Some(symbol), Some(field)) => format!("{symbol}{field}"),
        (Some(symbol), None) => symbol.clone(),
        (None, _) => match (&data.module, data.offset) {
            (Some(module), Some(offset)) => format!("[{module}+{offset:#x}]"),
            _ => format!("[{address:#x}]"),
        },
    }
}
