// SPDX-License-Identifier: MIT
//! How a core is opened and asked about, whichever target made it.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use flagfinder_live::{CoreOptions, Deadline};
use flagfinder_replica::{CoreFile, Files};

/// The core, if it is one. The paths in it lead nowhere from here, so that the answer depends on
/// the input alone; `program` is the file of its program.
pub fn opened(path: &Path, program: Option<PathBuf>) -> Option<Rc<CoreFile>> {
    let files = Files {
        sysroot: Some(PathBuf::from("/proc/self/fd/none")),
        program,
    };
    CoreFile::open(path, files).ok().map(Rc::new)
}

/// All threads are asked about; `budget`: for how long a copy goes on.
pub fn options(budget: Duration) -> CoreOptions {
    CoreOptions {
        of_program: Vec::new(),
        threads: Vec::new(),
        budget,
        deadline: Deadline::default(),
    }
}
