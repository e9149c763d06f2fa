// SPDX-License-Identifier: MIT
//! Progress over all scans, without slowing them.

use std::sync::atomic::{AtomicU64, Ordering};

/// How far a diff is. Blocks count once per scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done, for a human.
    pub stage: &'static str,
    /// Blocks scanned in this stage.
    pub blocks: u64,
    /// About how many there are to scan in this stage; 0: not known.
    pub total: u64,
}

/// Called from several threads.
pub type Callback<'a> = &'a (dyn Fn(Progress) + Sync);

const STRIDE: u64 = 1 << 20;

/// Counts the blocks of one stage.
pub struct Meter<'a> {
    callback: Callback<'a>,
    stage: &'static str,
    done: AtomicU64,
    total: u64,
}

impl<'a> Meter<'a> {
    /// A stage that will scan `total` blocks.
    pub fn new(callback: Callback<'a>, stage: &'static str, total: u64) -> Meter<'a> {
        let meter = Meter {
            callback,
            stage,
            done: AtomicU64::new(0),
            total,
        };
        meter.report(0);
        meter
    }

    /// A scan has seen `index` blocks of its thread.
    #[inline]
    pub fn tick(&self, index: u64) {
        if index % STRIDE == 0 {
            self.report(STRIDE);
        }
    }

    /// So many blocks more are done.
    pub fn add(&self, blocks: u64) {
        self.report(blocks);
    }

    /// A scan of `blocks` blocks is over.
    pub fn finish(&self, blocks: u64) {
        self.report(blocks % STRIDE);
    }

    fn report(&self, more: u64) {
        let blocks = self.done.fetch_add(more, Ordering::Relaxed) + more;
        (self.callback)(Progress {
            stage: self.stage,
            blocks,
            total: self.total,
        });
    }
}
