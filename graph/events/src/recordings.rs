// SPDX-License-Identifier: MIT
//! Which recorder wrote a file.

use std::io::Read;
use std::path::Path;

use flagfinder_files::open_regular;
use flagfinder_perfetto::ftrace::PACKET_KEY;

use crate::error::cant_read;
use crate::import::Imported;
use crate::{perf_data, perfetto, Failure, Result};

const PERF_MAGIC: &[u8; 8] = b"PERFILE2";

fn unknown(start: &[u8]) -> Failure {
    let start = String::from_utf8_lossy(start).escape_debug().to_string();
    Failure::bad_file(
        "This is no recording that can be imported",
        format!("a file that begins with \"{start}\": neither perf.data nor a Perfetto trace"),
        "Record with `perf record -a -e sched:sched_switch -e sched:sched_waking`, or with \
         Perfetto's linux.ftrace.",
        "Other recordings are unaffected.",
    )
}

/// Writes the events of `input`, a perf.data file or a Perfetto trace, to `output`.
///
/// # Errors
/// When `input` is neither or has no switches, or a file can't be read or written.
pub fn import(input: &Path, output: &Path) -> Result<Imported> {
    let mut start = Vec::new();
    let file = open_regular(input).map_err(|error| cant_read(input, &error))?;
    let read = file.take(PERF_MAGIC.len() as u64).read_to_end(&mut start);
    read.map_err(|error| cant_read(input, &error))?;
    if start == PERF_MAGIC {
        perf_data::import_perf(input, output)
    } else if start.first() == Some(&PACKET_KEY) {
        perfetto::import_perfetto(input, output)
    } else {
        Err(unknown(&start))
    }
}
