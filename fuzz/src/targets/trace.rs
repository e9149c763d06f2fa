// SPDX-License-Identifier: MIT
//! Opens arbitrary bytes as a trace and walks all of it: no panic, bounded memory.

use crate::repair;
use flagfinder_trace::{check, dump, DecodedFlow, DumpKind, DumpOptions, Trace};

/// See the module.
pub fn run(data: &[u8]) {
    let mut bytes = data.to_vec();
    // Checksums would keep nearly every mutation out; repair them for most inputs.
    if data.len() & 7 != 0 {
        repair(&mut bytes);
    }
    let Ok(trace) = Trace::from_bytes(bytes) else {
        return;
    };
    let mut section = DecodedFlow::default();
    for process in trace.processes() {
        let _ = process.module_at(0x1000);
        for thread in process.threads() {
            let walked = thread.flow().count();
            let tail = thread.flow_tail(4096).count();
            assert!(tail <= walked + 1);
            let _ = (thread.value_tail(64, 64), thread.values_from(100));
            let mut decoder = thread.flow_decoder();
            for index in 0..thread.flow_section_count() {
                decoder.decode(index, &mut section).unwrap();
            }
        }
    }
    check(&trace).unwrap();
    for kind in [
        DumpKind::Flow,
        DumpKind::Values,
        DumpKind::Blocks,
        DumpKind::Modules,
    ] {
        let options = DumpOptions {
            kind,
            pid: None,
            tid: None,
            from: 0,
            limit: 200,
        };
        dump(&trace, &options, &mut std::io::sink()).unwrap();
    }
}
