// SPDX-License-Identifier: MIT
//! Imports arbitrary bytes as a perf.data file: no panic, bounded memory, and what is written can
//! be read.

use super::imported;

/// See the module.
pub fn run(data: &[u8]) {
    let mut bytes = data.to_vec();
    if let Some(magic) = bytes.get_mut(..8) {
        magic.copy_from_slice(b"PERFILE2");
    }
    imported::check(&bytes);
}
