// SPDX-License-Identifier: MIT
//! Where hits come from: BPF on hardware breakpoints, or a debugger's helper that feeds the same
//! records.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::perf::Perf;
use crate::protocol::{Held, Hit, ReadSite, Reader};
use crate::Result;

/// What `Watch::open` sets up.
#[derive(Clone, Copy, Debug)]
pub enum Backend<'a> {
    /// The compiled `bpf/watch.bpf.c`.
    Perf(&'a [u8]),
    /// A debugger, whose name this is, stops the process at every access, and hands them over with
    /// `Watch::feed`.
    Fed(&'a str),
}

/// Accesses that trapped, and records lost by CPU.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub hits: u64,
    /// Reads that were not held back: there was no room for another reader.
    pub crowded: u64,
    pub lost: BTreeMap<u32, u64>,
}

/// Hits that a helper handed over, until they are drained.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    /// The beginning of a record.
    rest: Vec<u8>,
    waiting: VecDeque<Hit>,
    hits: u64,
    closed: bool,
}

impl Feed {
    /// Records in the order in which they were made, cut anywhere.
    pub fn add(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        let whole = self.rest.len() / size_of::<Hit>() * size_of::<Hit>();
        for mut hit in self.rest[..whole]
            .chunks(size_of::<Hit>())
            .filter_map(Hit::read)
        {
            hit.sequence = self.hits;
            self.hits += 1;
            self.waiting.push_back(hit);
        }
        self.rest.drain(..whole);
    }
}

pub(crate) enum Source {
    Perf(Box<Perf>),
    Fed { name: String, feed: Feed },
}

impl Source {
    pub fn name(&self) -> &str {
        match self {
            Source::Perf(_) => "perf",
            Source::Fed { name, .. } => name,
        }
    }

    /// Whether no hit is late: those of one stop come together.
    pub fn in_order(&self) -> bool {
        matches!(self, Source::Fed { .. })
    }

    pub fn feed(&mut self) -> Option<&mut Feed> {
        match self {
            Source::Perf(_) => None,
            Source::Fed { feed, .. } => Some(feed),
        }
    }

    pub fn wait(&mut self, patience: Duration) {
        if let Source::Perf(perf) = self {
            perf.wait(patience);
        }
    }

    /// Hands over up to `most` hits; returns how many.
    pub fn drain(
        &mut self,
        most: usize,
        mut take: impl FnMut(Hit) -> Option<(u64, ReadSite)>,
    ) -> usize {
        match self {
            Source::Perf(perf) => perf.drain(most, take),
            Source::Fed { feed, .. } => {
                let count = feed.waiting.len().min(most);
                feed.waiting.drain(..count).for_each(|hit| {
                    take(hit);
                });
                count
            }
        }
    }

    /// What is held back for a reader.
    pub fn held(&self, reader: &Reader) -> Option<Held> {
        match self {
            Source::Perf(perf) => perf.held(reader),
            Source::Fed { .. } => None,
        }
    }

    /// Covers CPUs that came online.
    ///
    /// # Errors
    /// When one can't be.
    pub fn renew(&mut self) -> Result<()> {
        match self {
            Source::Perf(perf) => perf.renew(),
            Source::Fed { .. } => Ok(()),
        }
    }

    /// What only BPF does: a debugger's words are all known when it begins.
    pub fn perf(&mut self) -> Option<&mut Perf> {
        match self {
            Source::Perf(perf) => Some(perf),
            Source::Fed { .. } => None,
        }
    }

    /// Nothing is trapped any more. A feed's own helper does that.
    pub fn detach(&mut self) {
        if let Source::Perf(perf) = self {
            perf.detach();
        }
    }

    /// Whether more may come from a process that has `ended`.
    pub fn is_over(&self, ended: bool) -> bool {
        match self {
            Source::Perf(_) => ended,
            Source::Fed { feed, .. } => feed.closed,
        }
    }

    pub fn close_feed(&mut self) {
        if let Some(feed) = self.feed() {
            feed.closed = true;
        }
    }

    pub fn counted(&self) -> Counted {
        match self {
            Source::Perf(perf) => perf.counted(),
            Source::Fed { feed, .. } => Counted {
                hits: feed.hits,
                crowded: 0,
                lost: BTreeMap::new(),
            },
        }
    }
}
