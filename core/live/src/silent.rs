// SPDX-License-Identifier: MIT
//! What a report says of a process's files that tell us less than they hold: those of a file system
//! that does not answer, and those whose debug information is too large.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use flagfinder_code::Names;
use flagfinder_files::facts_of;

/// Adds a note for each such file.
pub fn note(names: &Names, notes: &mut Vec<String>) {
    let files: BTreeSet<_> = names.input().modules.iter().map(|m| &m.file).collect();
    let with_path = files.into_iter().filter(|file| file.has_root());
    let silent = with_path.filter_map(|file| match facts_of(file) {
        Err(error) if error.kind() == ErrorKind::TimedOut => Some(error),
        _ => None,
    });
    let silent = silent.map(|error| format!("{error}; places in it are told by their offset"));
    for note in silent.chain(names.without_debug()) {
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
}
