// SPDX-License-Identifier: MIT
//! Imports arbitrary bytes as a perf.data file: no panic, bounded memory, and what is written can
//! be read.

use crate::MemoryFile;
use flagfinder_events::{import, EventFile};

/// See the module.
pub fn run(data: &[u8]) {
    let mut bytes = data.to_vec();
    if let Some(magic) = bytes.get_mut(..8) {
        magic.copy_from_slice(b"PERFILE2");
    }
    let input = MemoryFile::new(&bytes).expect("a file in memory");
    let output = MemoryFile::new(&[]).expect("a file in memory");
    if import(&input.path(), &output.path()).is_ok() {
        let file = EventFile::open(&output.path()).expect("what was written can be read");
        assert!(file.events(|_| {}).is_empty());
    }
}
