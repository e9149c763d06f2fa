// SPDX-License-Identifier: MIT
//! Where hits come from: BPF on hardware breakpoints, or a helper that feeds the same records.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::perf::{Counted, Perf};
use crate::protocol::{Held, Hit, ReadSite, Reader, NO_PLACE};
use crate::Result;

/// What `Watch::open` sets up.
#[derive(Clone, Copy, Debug)]
pub enum Backend<'a> {
    /// The compiled `bpf/watch.bpf.c`.
    Perf(&'a [u8]),
    /// A helper hands accesses over with `Watch::feed`.
    Fed(Helper),
}

/// Who traps accesses where BPF does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Helper {
    /// A debugger that stops the process at every access.
    Lldb,
    /// An agent inside the process.
    Frida,
}

impl Helper {
    /// By the name that reports show.
    pub fn named(name: &str) -> Option<Helper> {
        let mut all = [Helper::Lldb, Helper::Frida].into_iter();
        all.find(|helper| helper.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Helper::Lldb => "lldb",
            Helper::Frida => "frida",
        }
    }

    /// Whether it can hook instructions.
    pub fn hooks(self) -> bool {
        self == Helper::Frida
    }

    /// Whether no hit is late. Threads that hand over their own hits overtake each other.
    fn in_order(self) -> bool {
        self == Helper::Lldb
    }
}

/// Hits that a helper handed over, until they are drained.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    /// The beginning of a record.
    rest: Vec<u8>,
    waiting: VecDeque<Hit>,
    hits: u64,
    lost: u64,
    closed: bool,
}

impl Feed {
    /// Records in the order in which they were made, cut anywhere; `place` finds the word of one
    /// that does not tell it. `lost` had no room so far.
    pub fn add(&mut self, bytes: &[u8], lost: u64, mut place: impl FnMut(&mut Hit)) {
        self.hits += lost.saturating_sub(self.lost);
        self.lost = lost.max(self.lost);
        self.rest.extend_from_slice(bytes);
        let whole = self.rest.len() / size_of::<Hit>() * size_of::<Hit>();
        for mut hit in self.rest[..whole]
            .chunks(size_of::<Hit>())
            .filter_map(Hit::read)
        {
            hit.sequence = self.hits;
            if hit.place == NO_PLACE {
                place(&mut hit);
            }
            self.hits += 1;
            self.waiting.push_back(hit);
        }
        self.rest.drain(..whole);
    }
}

pub(crate) enum Source {
    Perf(Box<Perf>),
    Fed { helper: Helper, feed: Feed },
}

impl Source {
    pub fn name(&self) -> &'static str {
        match self {
            Source::Perf(_) => "perf",
            Source::Fed { helper, .. } => helper.name(),
        }
    }

    /// Whether no hit is late.
    pub fn in_order(&self) -> bool {
        matches!(self, Source::Fed { helper, .. } if helper.in_order())
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

    /// Only BPF does this: a debugger's words are all known when it begins.
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
                lost: feed.lost,
                cpus: BTreeMap::new(),
            },
        }
    }
}
