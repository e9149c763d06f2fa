// SPDX-License-Identifier: MIT
//! Notices that a main thread is not back at its event wait: the moment to mark, while it hangs.
//!
//! In: events as they come, the time. Out: threads that hang. An *event wait* is a wait in poll,
//! select or epoll; while a thread is in one it is idle, for however long. A thread that has not
//! been in one yet hangs never. Blind spots: programs whose loop waits in read or on a condition
//! have no event wait; an answer that is waited for in poll looks like one.

use flagfinder_linux::traits;
use rustc_hash::FxHashMap;

use crate::event::{Event, Kind, State};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// It has not come to its event wait yet.
    Starts,
    Idle,
    /// Something else, since then.
    Works(u64),
    /// Too long, and that was told.
    Hangs,
}

#[derive(Debug)]
pub(crate) struct HangWatch {
    limit: u64,
    threads: FxHashMap<u32, Doing>,
}

impl HangWatch {
    /// Watches these threads; `limit` in ns.
    pub fn new(threads: &[u32], limit: u64) -> HangWatch {
        let starting = threads.iter().map(|&tid| (tid, Doing::Starts));
        HangWatch {
            limit,
            threads: starting.collect(),
        }
    }

    pub fn see(&mut self, event: &Event) {
        match event.kind {
            Kind::Switch => {
                let Some(doing) = self.threads.get_mut(&event.a) else {
                    return;
                };
                let call = event.call().filter(|_| event.state() == State::Sleeps);
                if call.is_some_and(|call| traits::looks(call.number.into())) {
                    *doing = Doing::Idle;
                }
            }
            Kind::Waking => {
                if let Some(doing) = self.threads.get_mut(&event.b) {
                    if *doing == Doing::Idle {
                        *doing = Doing::Works(event.ts);
                    }
                }
            }
            Kind::Exit => {
                self.threads.remove(&event.a);
            }
            _ => {}
        }
    }

    /// Threads that are late now, each told once until it is back.
    pub fn late(&mut self, now: u64) -> Vec<u32> {
        let mut late = Vec::new();
        for (&tid, doing) in &mut self.threads {
            if matches!(*doing, Doing::Works(since) if now.saturating_sub(since) > self.limit) {
                *doing = Doing::Hangs;
                late.push(tid);
            }
        }
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Call;

    const POLL: u16 = 7;
    const READ: u16 = 0;
    const NOBODY: [u32; 0] = [];

    fn event(kind: Kind, ts: u64, a: u32, b: u32, number: u16) -> Event {
        let call = Call { number, first: 0 }.pack();
        Event {
            ts,
            a,
            b,
            cpu: 0,
            kind,
            flags: 1,
            stack: 0,
            words: [call, 0, 0],
        }
    }

    fn blocks(ts: u64, number: u16) -> Event {
        event(Kind::Switch, ts, 5, 0, number)
    }

    fn wakes(ts: u64) -> Event {
        event(Kind::Waking, ts, 9, 5, 0)
    }

    fn watch(events: &[Event]) -> HangWatch {
        let mut watch = HangWatch::new(&[5], 100);
        events.iter().for_each(|event| watch.see(event));
        watch
    }

    #[test]
    fn a_thread_that_is_not_back_is_told_once() {
        let mut watch = watch(&[blocks(10, POLL), wakes(20), blocks(30, READ), wakes(90)]);
        assert_eq!(watch.late(120), NOBODY);
        assert_eq!(watch.late(121), [5]);
        assert_eq!(watch.late(500), NOBODY);
        for event in [blocks(600, POLL), wakes(700)] {
            watch.see(&event);
        }
        assert_eq!(watch.late(801), [5]);
    }

    #[test]
    fn to_be_idle_or_to_start_is_no_hang() {
        assert_eq!(watch(&[blocks(10, POLL)]).late(1_000), NOBODY);
        assert_eq!(watch(&[blocks(10, READ), wakes(20)]).late(1_000), NOBODY);
    }
}
