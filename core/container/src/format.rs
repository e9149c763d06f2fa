// SPDX-License-Identifier: MIT
//! The header of a file: which format it has, and who can read it.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use bytemuck::{Pod, Zeroable};
use flagfinder_failure::{Failure, Result};

use crate::storage::Storage;

/// Size of [`FileHeader`]; the first section begins behind it.
pub const FILE_HEADER_BYTES: usize = 64;

/// What stands at a file's beginning, little-endian.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct FileHeader {
    magic: [u8; 8],
    version: u32,
    minimum_reader: u32,
    /// Features a reader may ignore; incompatible ones raise `minimum_reader`.
    features: u64,
    /// ns since the Unix epoch.
    created: u64,
    reserved: [u64; 4],
}
const _: () = assert!(std::mem::size_of::<FileHeader>() == FILE_HEADER_BYTES);

/// One kind of file.
pub struct Format {
    /// The file's first bytes.
    pub magic: [u8; 8],
    /// Version that this code writes.
    pub version: u32,
    /// Oldest reader that understands what this code writes.
    pub minimum_reader: u32,
    /// Oldest version that this code reads.
    pub oldest: u32,
    /// What such a file is called, with its article.
    pub name: &'static str,
    /// The command that writes such files.
    pub made_by: &'static str,
    /// That part of a [`Failure`], for files that can't be read.
    pub still_works: &'static str,
}

impl Format {
    /// The header of a file that is begun now.
    pub fn header(&self) -> FileHeader {
        let created = SystemTime::now().duration_since(UNIX_EPOCH);
        FileHeader {
            magic: self.magic,
            version: self.version,
            minimum_reader: self.minimum_reader,
            features: 0,
            created: created.map_or(0, |since| since.as_nanos() as u64),
            reserved: [0; 4],
        }
    }

    fn refused(&self, found: String, fix: String) -> Failure {
        let what = format!("This is not {} that can be read", self.name);
        Failure::bad_file(what, found, fix, self.still_works)
    }

    /// Opens a file of this format.
    ///
    /// # Errors
    /// Those of the system, and for foreign, empty, too old and too new files.
    pub fn open(&self, path: &Path) -> Result<(Storage, FileHeader)> {
        let storage = Storage::open(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidInput => self.refused(
                error.to_string(),
                format!("Give a file that `{}` wrote.", self.made_by),
            ),
            _ => self.cant_read(Some(path), &error),
        })?;
        // Of several files that a command names, this one.
        let header = self.check(&storage).map_err(|failure| Failure {
            found: format!("{}: {}", path.display(), failure.found),
            ..failure
        })?;
        Ok((storage, header))
    }

    /// That the system refused to read `path`; `None`: a file that was opened before.
    pub fn cant_read(&self, path: Option<&Path>, error: &std::io::Error) -> Failure {
        let noun = self
            .name
            .split_once(' ')
            .map_or(self.name, |(_, noun)| noun);
        let path = path.map_or(String::new(), |path| format!(" {}", path.display()));
        let what = format!("The {noun}{path} can't be read");
        let fix = "Check the path, its permissions and the disk.";
        Failure::io(what, error, fix, self.still_works)
    }

    /// Reads the header.
    ///
    /// # Errors
    /// For foreign, empty, too old and too new files.
    pub fn check(&self, storage: &Storage) -> Result<FileHeader> {
        let again = || format!("Make it again with `{}`.", self.made_by);
        if storage.bytes() == 0 {
            return Err(self.refused("an empty file".into(), again()));
        }
        let mut bytes = [0u8; FILE_HEADER_BYTES];
        let available = storage.bytes().min(FILE_HEADER_BYTES as u64) as usize;
        let read = storage.read_at(0, &mut bytes[..available]);
        read.map_err(|error| self.cant_read(None, &error))?;
        let header: FileHeader = bytemuck::cast(bytes);
        if header.magic != self.magic {
            let start = String::from_utf8_lossy(&bytes[..available.min(8)])
                .escape_debug()
                .to_string();
            let magic = String::from_utf8_lossy(&self.magic);
            let found = format!(
                "a file that begins with \"{start}\" instead of \"{}\"",
                magic.trim_end()
            );
            let fix = format!("Give a file that `{}` wrote.", self.made_by);
            return Err(self.refused(found, fix));
        }
        if available < FILE_HEADER_BYTES {
            let found = format!("a file of {available} bytes, cut inside its header");
            return Err(self.refused(found, again()));
        }
        if header.minimum_reader > self.version {
            let found = format!(
                "format version {} that needs a reader of version {}; this one is {}",
                header.version, header.minimum_reader, self.version
            );
            let fix = "Upgrade flagfinder, or make the file again with this version.";
            return Err(self.refused(found, fix.into()));
        }
        if header.version < self.oldest {
            let found = format!(
                "format version {}; this reader begins with {}",
                header.version, self.oldest
            );
            return Err(self.refused(found, again()));
        }
        Ok(header)
    }
}
