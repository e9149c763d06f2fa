// SPDX-License-Identifier: MIT
//! What a report says of a process's files that tell us less than they hold: those of a file system
//! that does not answer, and those whose debug information is too large.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use flagfinder_code::Names;
use flagfinder_files::{facts_of, path_of_process};

/// Adds a note for each such file. A file with code is no module if its first page is missing.
pub fn note(pid: u32, names: &Names, notes: &mut Vec<String>) {
    let input = names.input();
    let modules = input.modules.iter().map(|module| module.file.clone());
    let is_module = |path: &str| input.modules.iter().any(|module| module.path == path);
    let code = input.maps.iter().flat_map(|maps| maps.all());
    let code = code.filter(|m| m.executable && m.path.starts_with('/') && !is_module(m.file()));
    let others = code.map(|mapping| path_of_process(pid, Path::new(mapping.file())));
    let files: BTreeSet<PathBuf> = modules.chain(others).collect();
    let with_path = files.iter().filter(|file| file.has_root());
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
