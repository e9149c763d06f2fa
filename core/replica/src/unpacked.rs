// SPDX-License-Identifier: MIT
//! Core files as they are kept: packed by zstd or lz4.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use flagfinder_failure::{Failure, Result};

/// Why a core file can't be read.
pub(crate) fn unreadable(
    what: impl Into<String>,
    found: impl Into<String>,
    fix: impl Into<String>,
) -> Failure {
    let still_works = "`flagfinder spin PID` looks at a process that still runs.";
    Failure::bad_file(what, found, fix, still_works)
}

/// The file itself, or what it holds where it is compressed, in a file without a name.
pub fn unpacked(mut file: File, path: &Path) -> Result<File> {
    let mut magic = [0; 4];
    let cannot = |e: std::io::Error| {
        unreadable(
            format!("{} can't be unpacked", path.display()),
            format!("The system says: {e}"),
            "Unpack it yourself (`unzstd`, `unlz4`), and give the result; TMPDIR names where there is room.",
        )
    };
    let read = file.read_at(&mut magic, 0).unwrap_or(0);
    file.seek(SeekFrom::Start(0)).map_err(cannot)?;
    let mut packed: Box<dyn Read> = match &magic[..read] {
        [0x28, 0xb5, 0x2f, 0xfd] => Box::new(zstd::Decoder::new(file).map_err(cannot)?),
        [0x04, 0x22, 0x4d, 0x18] => Box::new(lz4_flex::frame::FrameDecoder::new(file)),
        _ => return Ok(file),
    };
    let mut whole = tempfile::tempfile().map_err(cannot)?;
    let mut block = vec![0; 1 << 16];
    let mut length = 0;
    loop {
        let got = packed.read(&mut block).map_err(cannot)?;
        if got == 0 {
            break;
        }
        // Cores have holes: zeroes are skipped.
        if block[..got].iter().all(|byte| *byte == 0) {
            whole.seek(SeekFrom::Current(got as i64)).map_err(cannot)?;
        } else {
            whole.write_all(&block[..got]).map_err(cannot)?;
        }
        length += got as u64;
    }
    whole.set_len(length).map_err(cannot)?;
    Ok(whole)
}
