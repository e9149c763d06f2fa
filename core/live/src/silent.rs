// SPDX-License-Identifier: MIT
//! What a report says of a process's files whose file system does not answer: their functions and
//! variables have no names, and what they would tell is missing.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use flagfinder_code::Names;
use flagfinder_files::facts_of;

/// One note for each such file.
pub fn notes(names: &Names) -> Vec<String> {
    let files: BTreeSet<_> = names.input().modules.iter().map(|m| &m.file).collect();
    let with_path = files.into_iter().filter(|file| file.has_root());
    let silent = with_path.filter_map(|file| match facts_of(file) {
        Err(error) if error.kind() == ErrorKind::TimedOut => Some(error),
        _ => None,
    });
    silent
        .map(|error| format!("{error}; places in it are told by their offset"))
        .collect()
}
