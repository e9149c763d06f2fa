// SPDX-License-Identifier: MIT
//! Others' recordings, which are imported into an event file.

use crate::MemoryFile;
use flagfinder_events::{import, EventFile};

/// What is written of such a file can be read.
pub fn check(recording: &[u8]) {
    let input = MemoryFile::new(recording).expect("a file in memory");
    let output = MemoryFile::new(&[]).expect("a file in memory");
    if import(&input.path(), &output.path()).is_ok() {
        let file = EventFile::open(&output.path()).expect("what was written can be read");
        assert!(file.events(|_| {}).is_empty());
    }
}
