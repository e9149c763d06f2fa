// SPDX-License-Identifier: MIT
//! Words that have no fixed place: a hooked instruction tells where one is, and it is watched from
//! then on.
//!
//! A hook costs the thread a microsecond or two each time, and the instruction may be a hot one. So
//! the hooks rest after some hits, and are gone once each debug register has a word. Blind spots:
//! a write before the first read that was hooked; objects that are used only while the hooks rest.

use std::time::{Duration, Instant};

use crate::protocol::{Hit, HIT_SITE, WATCH_MAX};
use crate::site::Site;

/// Hits after which the hooks rest. A hit takes up to 30 us, and some hundred come until the hooks
/// are off.
const HITS: u64 = 100;
/// How long they rest at least: then the hooks cost a percent or two.
const REST: Duration = Duration::from_secs(1);
/// How many times longer the hooks rest than it took to remove them: until they are removed they
/// may trap.
const REST_FOR_REMOVAL: u32 = 50;
/// How often it is checked whether the hooks should rest, and which words there are. A wait may end
/// a few ms after it began, and a hot instruction costs time until the hooks are off.
const TICK: Duration = Duration::from_millis(2);

/// A word that a site used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Used {
    pub place: (u64, u32),
    pub object: Option<u64>,
}

impl Used {
    /// `None`: no debug register covers it, or the site's words are not to be followed.
    pub fn of(hit: &Hit, sites: &[Site]) -> Option<Used> {
        let site = sites.get(usize::from(hit.place))?;
        let size = site.size();
        let fits = matches!(size, 1 | 2 | 4 | 8) && hit.address % u64::from(size) == 0;
        let followed = hit.kind == HIT_SITE && site.follow && hit.address != 0 && fits;
        followed.then(|| Used {
            place: (hit.address, size),
            object: site.object(&hit.registers),
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hooks {
    Stay,
    Remove,
    Set,
}

/// When the hooks are set.
#[derive(Debug)]
pub(crate) enum Pace {
    /// They are set; `since`: hits counted until then.
    Set { since: u64 },
    /// They are removed until this moment.
    Rest(Instant),
    /// There is nothing to follow, or no debug register left.
    Over,
}

impl Pace {
    pub fn new(sites: &[Site]) -> Pace {
        match sites.iter().any(|site| site.follow) {
            true => Pace::Set { since: 0 },
            false => Pace::Over,
        }
    }

    pub fn is_set(&self) -> bool {
        matches!(self, Pace::Set { .. })
    }

    pub fn is_over(&self) -> bool {
        matches!(self, Pace::Over)
    }

    /// `words` are watched, the sites were hit `hits` times so far.
    pub fn next(&mut self, words: usize, hits: u64, now: Instant) -> Hooks {
        let (next, hooks) = match *self {
            Pace::Over => return Hooks::Stay,
            _ if words >= WATCH_MAX => (Pace::Over, Hooks::Remove),
            Pace::Set { since } if hits >= since + HITS => (Pace::Rest(now + REST), Hooks::Remove),
            Pace::Rest(until) if now >= until => (Pace::Set { since: hits }, Hooks::Set),
            _ => return Hooks::Stay,
        };
        *self = next;
        hooks
    }

    /// The hooks rest from `now` on; it took so long to remove them.
    pub fn rest(&mut self, now: Instant, removal: Duration) {
        if !self.is_over() {
            *self = Pace::Rest(now + REST.max(removal * REST_FOR_REMOVAL));
        }
    }

    /// How long may be waited for hits at a time.
    pub fn patience(&self, asked: Duration) -> Duration {
        match self {
            Pace::Set { .. } => asked.min(TICK),
            _ => asked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_rest_after_many_hits_and_end_with_the_registers() {
        let now = Instant::now();
        let mut pace = Pace::Set { since: 0 };
        assert_eq!(pace.next(0, HITS - 1, now), Hooks::Stay);
        assert_eq!(pace.next(1, HITS, now), Hooks::Remove);
        assert_eq!(pace.next(1, HITS, now), Hooks::Stay);
        assert_eq!(pace.next(1, HITS, now + REST), Hooks::Set);
        assert_eq!(pace.next(1, HITS + 1, now + REST), Hooks::Stay);
        assert_eq!(pace.next(WATCH_MAX, HITS + 1, now), Hooks::Remove);
        assert_eq!(pace.next(WATCH_MAX, 5 * HITS, now + REST), Hooks::Stay);
    }

    #[test]
    fn hooks_rest_the_longer_the_longer_it_took_to_remove_them() {
        let (now, removal) = (Instant::now(), Duration::from_millis(100));
        let mut pace = Pace::Set { since: 0 };
        pace.rest(now, removal);
        let end = now + removal * REST_FOR_REMOVAL;
        assert_eq!(pace.next(1, 0, now + REST), Hooks::Stay);
        assert_eq!(pace.next(1, 0, end), Hooks::Set);
        let mut pace = Pace::Over;
        pace.rest(now, removal);
        assert_eq!(pace.next(1, 0, end), Hooks::Stay);
    }
}
