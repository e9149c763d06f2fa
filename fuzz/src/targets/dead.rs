// SPDX-License-Identifier: MIT
//! Asks arbitrary bytes what `core` and `why --core` ask of a core file: no panic, bounded memory,
//! and whatever code it holds, no system call is made for it.
//!
//! Copies of its threads execute its code. Two descriptors are there for that code to write to: if
//! anything comes to them, or a process is left, a call was made.

use std::fs::File;
use std::io::{Error, Read, Seek, SeekFrom};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::time::Duration;

use flagfinder_live::{look_at_core, why_of_core};

use super::cores::{opened, options};
use crate::MemoryFile;

/// A descriptor that the code of the seeds writes to: a pipe.
pub const PIPE: i32 = 200;
/// The same: a file.
pub const FILE: i32 = 201;
/// For how long a copy goes on.
const BUDGET: Duration = Duration::from_millis(20);

/// See the module.
pub fn run(data: &[u8]) {
    static TRAPS: OnceLock<Traps> = OnceLock::new();
    let traps = TRAPS.get_or_init(|| Traps::set().expect("descriptors"));
    let file = MemoryFile::new(data).expect("a file in memory");
    let path = file.path();
    let Some(core) = opened(&path, None) else {
        return;
    };
    let options = options(BUDGET);
    let _ = look_at_core(&core, &options, &|_| ());
    for thread in [None, core.threads().first().map(|thread| thread.tid)] {
        let _ = why_of_core(&core, &path, thread, true, &options, &|_| ());
    }
    traps.check();
}

struct Traps {
    reads: File,
    file: File,
}

impl Traps {
    fn set() -> Result<Traps, Error> {
        let mut ends = [0; 2];
        let file = c"trap".as_ptr();
        // SAFETY: plain system calls; the descriptors are nobody else's.
        unsafe {
            let made = libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK) == 0
                && libc::dup2(ends[1], PIPE) == PIPE
                && libc::close(ends[1]) == 0
                && libc::dup2(libc::memfd_create(file, 0), FILE) == FILE;
            let own = libc::dup(FILE);
            if !made || own < 0 {
                return Err(Error::last_os_error());
            }
            Ok(Traps {
                reads: OwnedFd::from_raw_fd(ends[0]).into(),
                file: OwnedFd::from_raw_fd(own).into(),
            })
        }
    }

    fn check(&self) {
        let mut byte = [0];
        let read = (&self.reads).read(&mut byte);
        assert!(read.is_err(), "a copy wrote into the pipe: {read:?}");
        let place = (&self.file).stream_position().expect("its place");
        let bytes = (&self.file).seek(SeekFrom::End(0)).expect("its size");
        assert_eq!((place, bytes), (0, 0), "a copy wrote into the file");
        // Those that open files are kept for the next. /proc may number processes otherwise.
        let children = children().expect("/proc tells our children");
        assert_eq!(
            children,
            flagfinder_files::openers().len(),
            "processes are left"
        );
    }
}

/// How many children live, or are still to be waited for.
fn children() -> Result<usize, Error> {
    let mut found = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let text = std::fs::read_to_string(task?.path().join("children"))?;
        found += text.split_whitespace().count();
    }
    Ok(found)
}
