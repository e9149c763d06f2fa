// SPDX-License-Identifier: MIT
//! Asks two traces made of arbitrary bytes what `registers`, `why` and `trace export` ask: no
//! panic, whatever they say. Inputs are those of `engine`.

use std::io::sink;

use flagfinder_diff::{diff, Options};
use flagfinder_export::{drcov, perfetto, tenet};
use flagfinder_live::why_recorded;
use flagfinder_machine::registers::{registers_before, BlockPlace};

use super::engine::pair;

/// Blocks of which registers are told.
const BLOCKS: u64 = 8;
/// Instructions of each thread that are exported.
const INSTRUCTIONS: u64 = 1000;

/// See the module.
pub fn run(data: &[u8]) {
    let Some((normal, spin)) = pair(data) else {
        return;
    };
    if let Ok(divergence) = diff(&[&normal], &spin, &Options::default(), &|_| {}) {
        for parting in &divergence.partings {
            let place = BlockPlace {
                pid: parting.thread.pid,
                image: parting.thread.image,
                tid: parting.thread.tid,
                index: parting.spin_index,
            };
            let _ = registers_before(&spin, &place, BLOCKS);
        }
    }
    let _ = why_recorded(&normal, &spin, None);
    for trace in [&normal, &spin] {
        let _ = perfetto(trace, &mut sink());
        for process in trace.processes() {
            let _ = drcov(process, &mut sink());
            for thread in process.threads() {
                let _ = tenet(process, thread, INSTRUCTIONS, &mut sink());
            }
        }
    }
}
