// SPDX-License-Identifier: MIT
//! Imports arbitrary text as a Tenet trace of arbitrary code: no panic, bounded memory, and the
//! recording can be read and exported.

use crate::{image, MemoryFile, CODE_BYTES};
use flagfinder_export::{drcov, import_tenet, tenet, Image};
use flagfinder_trace::{check, Trace};

/// See the module.
pub fn run(data: &[u8]) {
    let (code, text) = data.split_at(data.len().min(CODE_BYTES));
    let program = MemoryFile::new(&image(code)).expect("a file in memory");
    let Ok(program) = Image::open(&program.path(), 0) else {
        return;
    };
    let Ok((recording, _)) = import_tenet(&mut &text[..], &[program], "fuzz") else {
        return;
    };
    let trace = Trace::from_bytes(recording).expect("what was written can be read");
    check(&trace).expect("what was written can be read");
    for process in trace.processes() {
        drcov(process, &mut std::io::sink()).expect("what was written can be read");
        for thread in process.threads() {
            let _ = tenet(process, thread, 1000, &mut std::io::sink());
        }
    }
}
