// SPDX-License-Identifier: MIT
//! Where the bytes of a file come from.

use std::fs::File;
use std::io::{ErrorKind, Result};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use flagfinder_files::open_regular;

/// A file, read with `pread`: one that shrinks meanwhile gives an error, not a SIGBUS. Or memory.
pub struct Storage {
    source: Source,
    bytes: u64,
    disk_bytes: u64,
}

enum Source {
    File(File),
    Memory(Vec<u8>),
}

impl Storage {
    /// Opens a regular file.
    ///
    /// # Errors
    /// The system's, and `InvalidInput` for what is no regular file.
    pub fn open(path: &Path) -> Result<Storage> {
        let file = open_regular(path)?;
        let metadata = file.metadata()?;
        Ok(Storage {
            source: Source::File(file),
            bytes: metadata.len(),
            disk_bytes: metadata.len().min(metadata.blocks() * 512),
        })
    }

    /// A file's bytes that stand in memory.
    pub fn memory(bytes: Vec<u8>) -> Storage {
        let length = bytes.len() as u64;
        Storage {
            source: Source::Memory(bytes),
            bytes: length,
            disk_bytes: length,
        }
    }

    /// Length of the file when it was opened.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that the file takes on the disk, without its holes.
    pub fn disk_bytes(&self) -> u64 {
        self.disk_bytes
    }

    /// Fills the buffer from `offset` on.
    ///
    /// # Errors
    /// The system's, and where the bytes are not all there.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        match &self.source {
            Source::File(file) => file.read_exact_at(buffer, offset),
            Source::Memory(data) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                let source = start
                    .checked_add(buffer.len())
                    .and_then(|end| data.get(start..end))
                    .ok_or(ErrorKind::UnexpectedEof)?;
                buffer.copy_from_slice(source);
                Ok(())
            }
        }
    }
}
