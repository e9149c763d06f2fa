// SPDX-License-Identifier: MIT
//! Folders and files for tests.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// An empty folder of this test's own; who gets it removes it.
pub fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("ff-files-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

pub fn fifo_in(folder: &Path) -> PathBuf {
    let fifo = folder.join("fifo");
    let name = CString::new(fifo.as_os_str().as_bytes()).unwrap();
    // SAFETY: a path that ends with a zero.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    fifo
}
