// SPDX-License-Identifier: MIT
//! The threads that there are, as the events tell: whose they are, and their names.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::{Event, Kind};
use crate::facts::ThreadFact;

#[derive(Debug, Default)]
pub(crate) struct Threads {
    known: BTreeMap<u32, ThreadFact>,
    /// Of those: they ended, but events of theirs may still be on their way.
    ended: BTreeSet<u32>,
}

impl Threads {
    pub fn add(&mut self, thread: ThreadFact) {
        self.ended.remove(&thread.tid);
        self.known.insert(thread.tid, thread);
    }

    pub fn see(&mut self, event: &Event) {
        match event.kind {
            Kind::Fork => self.add(ThreadFact {
                tid: event.b,
                pid: event.halves(0).0,
                name: event.name(1),
                kernel: self.known.get(&event.a).is_some_and(|parent| parent.kernel),
                parent: event.halves(0).1,
            }),
            Kind::Exec => {
                if let Some(thread) = self.known.get_mut(&event.a) {
                    (thread.name, thread.kernel) = (event.name(1), false);
                }
            }
            Kind::Rename => {
                if let Some(thread) = self.known.get_mut(&event.b) {
                    thread.name = event.name(0);
                }
            }
            Kind::Exit => {
                self.ended.insert(event.a);
            }
            _ => {}
        }
    }

    /// The process of a thread.
    pub fn pid(&self, tid: u32) -> Option<u32> {
        self.known.get(&tid).map(|thread| thread.pid)
    }

    /// Empty where it is not known.
    pub fn name(&self, tid: u32) -> &str {
        self.known.get(&tid).map_or("", |thread| &thread.name)
    }

    pub fn pids(&self) -> BTreeSet<u32> {
        self.known.values().map(|thread| thread.pid).collect()
    }

    pub fn list(&self) -> Vec<&ThreadFact> {
        self.known.values().collect()
    }

    pub fn forget_ended(&mut self) {
        for tid in std::mem::take(&mut self.ended) {
            self.known.remove(&tid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: Kind, a: u32, b: u32, words: [u64; 3]) -> Event {
        Event {
            ts: 0,
            a,
            b,
            cpu: 0,
            kind,
            flags: 0,
            stack: 0,
            words,
        }
    }

    fn word(name: &[u8; 8]) -> u64 {
        u64::from_le_bytes(*name)
    }

    #[test]
    fn threads_come_are_renamed_and_go_when_they_are_forgotten() {
        let mut threads = Threads::default();
        threads.see(&event(Kind::Fork, 5, 6, [6, word(b"child\0\0\0"), 0]));
        threads.see(&event(Kind::Fork, 6, 7, [6, word(b"worker\0\0"), 0]));
        threads.see(&event(Kind::Rename, 7, 7, [word(b"pool\0\0\0\0"), 0, 0]));
        threads.see(&event(Kind::Exit, 6, 0, [6, 0, 0]));
        let told = |threads: &Threads| -> Vec<(u32, String)> {
            let list = threads.list().into_iter();
            list.map(|t| (t.tid, t.name.clone())).collect()
        };
        let both = [(6, "child".into()), (7, "pool".into())];
        assert_eq!(told(&threads), both);
        threads.forget_ended();
        assert_eq!(told(&threads), both[1..]);
        assert_eq!(threads.pid(7), Some(6));
    }

    #[test]
    fn an_id_that_is_used_again_is_a_new_thread() {
        let mut threads = Threads::default();
        threads.see(&event(Kind::Exit, 6, 0, [6, 0, 0]));
        threads.see(&event(Kind::Fork, 5, 6, [6, word(b"again\0\0\0"), 0]));
        threads.forget_ended();
        assert_eq!(threads.pid(6), Some(6));
    }
}
