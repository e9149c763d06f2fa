// SPDX-License-Identifier: MIT
//! Core files as they are kept: packed by zstd or lz4.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use flagfinder_failure::{Failure, Result};

use crate::source::PAGE;

/// Why a core file can't be read.
pub(crate) fn unreadable(
    what: impl Into<String>,
    found: impl Into<String>,
    fix: impl Into<String>,
) -> Failure {
    let still_works = "`flagfinder spin PID` looks at a process that still runs.";
    Failure::bad_file(what, found, fix, still_works)
}

/// The file itself, or what it holds where it is compressed, in a file without a name. It is
/// unpacked as far as there is room: a small file may hold more than the disk.
pub fn unpacked(mut file: File, path: &Path) -> Result<File> {
    let mut magic = [0; 4];
    let cannot = |e: std::io::Error| {
        unreadable(
            format!("{} can't be unpacked", path.display()),
            format!("The system says: {e}"),
            "Unpack it yourself (`unzstd`, `unlz4`), and give the result; TMPDIR names where there \
             is room.",
        )
    };
    let read = file.read_at(&mut magic, 0).unwrap_or(0);
    file.seek(SeekFrom::Start(0)).map_err(cannot)?;
    let mut packed: Box<dyn Read> = match &magic[..read] {
        [0x28, 0xb5, 0x2f, 0xfd] => Box::new(zstd::Decoder::new(file).map_err(cannot)?),
        [0x04, 0x22, 0x4d, 0x18] => Box::new(lz4_flex::frame::FrameDecoder::new(file)),
        _ => return Ok(file),
    };
    let mut whole = Whole::begin().map_err(cannot)?;
    // Cores have holes: pages of zeroes are left out.
    let mut block = vec![0; 1 << 16];
    loop {
        let got = packed.read(&mut block).map_err(cannot)?;
        if got == 0 {
            break;
        }
        for page in block[..got].chunks(PAGE as usize) {
            let is_written = whole.add(page).map_err(cannot)?;
            if !is_written {
                return Err(no_room(path, whole.content));
            }
        }
    }
    whole.end().map_err(cannot)
}

/// So much of a file system is left to others: a twentieth, and no less than this.
const LEFT: u64 = 64 << 20;
/// The file system is asked again behind so many bytes.
const ASKED: u64 = 1 << 20;

/// A file without a name, which ends with this process: what a core holds.
struct Whole {
    file: File,
    length: u64,
    content: u64,
    /// Bytes that may be written before the file system is asked again.
    may: u64,
}

impl Whole {
    fn begin() -> std::io::Result<Whole> {
        Ok(Whole {
            file: tempfile::tempfile()?,
            length: 0,
            content: 0,
            may: 0,
        })
    }

    /// `false`: there is no room for it.
    fn add(&mut self, bytes: &[u8]) -> std::io::Result<bool> {
        if bytes.iter().any(|byte| *byte != 0) {
            let size = bytes.len() as u64;
            if self.may < size {
                if room(&self.file)? < ASKED {
                    return Ok(false);
                }
                self.may = ASKED;
            }
            self.may -= size;
            self.content += size;
            self.file.write_all_at(bytes, self.length)?;
        }
        self.length += bytes.len() as u64;
        Ok(true)
    }

    fn end(self) -> std::io::Result<File> {
        self.file.set_len(self.length)?;
        Ok(self.file)
    }
}

/// Bytes that may still be written in the file's file system.
fn room(file: &File) -> std::io::Result<u64> {
    // SAFETY: plain data, filled by the kernel.
    let mut of: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, and the structure ours.
    if unsafe { libc::fstatvfs(file.as_raw_fd(), &raw mut of) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let left = (of.f_blocks.saturating_mul(of.f_frsize) / 20).max(LEFT);
    let free = of.f_bavail.saturating_mul(of.f_frsize);
    Ok(free.saturating_sub(left))
}

fn no_room(path: &Path, written: u64) -> Failure {
    let folder = std::env::temp_dir();
    unreadable(
        format!("{} can't be unpacked", path.display()),
        format!(
            "Unpacked it takes more than the {} MiB that {} has room for; some of it is left to \
             others",
            written >> 20,
            folder.display()
        ),
        "Name a folder with more room by TMPDIR, or unpack it yourself (`unzstd`, `unlz4`) and \
         give the result.",
    )
}
