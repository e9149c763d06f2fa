// SPDX-License-Identifier: MIT
//! Files that stand in memory, for readers that want a path.

use std::fs::File;
use std::io::Result;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A file without a name in any directory. It is gone when this is dropped.
pub struct MemoryFile(File);

impl MemoryFile {
    /// # Errors
    /// When the kernel makes no such file.
    pub fn new(bytes: &[u8]) -> Result<MemoryFile> {
        // SAFETY: the name is a C string.
        let descriptor = unsafe { libc::memfd_create(c"fuzz".as_ptr(), libc::MFD_CLOEXEC) };
        if descriptor < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made, and nobody else knows it.
        let file = unsafe { File::from_raw_fd(descriptor) };
        file.write_all_at(bytes, 0)?;
        Ok(MemoryFile(file))
    }

    /// Under which it can be opened, by the processes that open files for us, too. /proc may be
    /// that of an outer pid namespace.
    pub fn path(&self) -> PathBuf {
        let own = std::fs::read_link("/proc/self").expect("/proc");
        let file = format!("fd/{}", self.0.as_raw_fd());
        Path::new("/proc").join(own).join(file)
    }
}
