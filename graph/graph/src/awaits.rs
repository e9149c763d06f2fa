// SPDX-License-Identifier: MIT
//! Waits that had not ended when somebody looked: edges from those who are waited for.
//!
//! In: what threads were in at marks and in the end, as the recorder read it from the live
//! processes; and who was refused the lock of a file. Out: an edge `holds` from the thread that has
//! what another one waits for (a lock, its own end), an edge `peer` from a thread at the other end
//! of its descriptors. Both lead to the vertex that ends in the wait, where all others say why a
//! vertex began.

use flagfinder_events::{Call, Holder, How, Looked};

use crate::activity::is_sleep;
use crate::build::Builder;
use crate::edge::{EdgeKind, NOBODY};

/// The call that a blocked thread is in, packed as in events.
fn call(looked: &Looked) -> Option<Call> {
    let number = u16::try_from(looked.call?).ok()?;
    let first = looked.first;
    Some(Call { number, first })
}

fn is_blocked(looked: &Looked) -> bool {
    matches!(looked.state, 'S' | 'D')
}

/// What a thread was in, for people.
fn doing(looked: &Looked) -> String {
    match (looked.state, call(looked)) {
        ('S' | 'D', Some(call)) => format!("blocked in {}", Call::name_of(call.number)),
        ('S' | 'D', None) => "blocked in the kernel".into(),
        ('T' | 't', _) => "stopped".into(),
        ('Z' | 'X', _) => "ended".into(),
        (Looked::UNKNOWN, _) => String::new(),
        _ => "running".into(),
    }
}

impl Builder<'_> {
    /// Takes over what was looked at. After all events: the vertices of all threads are there.
    pub(crate) fn take_looks(&mut self) {
        let looked = &self.file.looked;
        for one in looked {
            self.meet(one);
        }
        for one in looked {
            self.awaits(one);
        }
    }

    /// Names a thread of which no event told. A thread of the target that was never switched was in
    /// the same state all the time.
    fn meet(&mut self, looked: &Looked) {
        let thread = self.thread(looked.tid);
        let meta = &mut self.meta.threads[thread];
        if meta.pid == 0 {
            (meta.pid, meta.name) = (looked.pid, looked.name.clone());
        }
        if !meta.followed && looked.state != Looked::UNKNOWN {
            meta.doing = doing(looked);
        }
        if self.threads[thread].open.is_some() || self.threads[thread].last.is_some() {
            return;
        }
        let (first, last) = (self.meta.first, self.meta.last);
        let vertex = self.begin(thread, first);
        let known = &mut self.threads[thread];
        (known.open, known.last, known.is_over) = (None, Some(vertex), true);
        self.meta.threads[thread].followed = known.is_followed;
        self.vertices.change(vertex, |row| {
            if is_blocked(looked) {
                row.call = call(looked).map_or(0, Call::pack);
                row.blocks = 1;
            } else {
                row.end = last;
                row.run = if looked.state == 'R' { last - first } else { 0 };
            }
        });
    }

    /// The vertex of a thread at a time, or the last one before it.
    pub(crate) fn vertex_at(&self, thread: usize, ts: u64) -> Option<u32> {
        let list = self.vertices.of(thread as u32);
        let after = list.partition_point(|&index| self.vertices.get(index).start <= ts);
        after.checked_sub(1).map(|place| list[place])
    }

    fn awaits(&mut self, looked: &Looked) {
        let Some(how) = looked.how.filter(|_| is_blocked(looked)) else {
            return;
        };
        let thread = self.thread(looked.tid);
        let Some(waiting) = self.vertex_at(thread, looked.ts) else {
            return;
        };
        let row = self.vertices.get(waiting);
        let number = |call: Option<Call>| call.map(|call| call.number);
        let is_it =
            row.blocks == 1 && row.end <= looked.ts && number(row.call()) == number(call(looked));
        if !is_it && self.meta.threads[thread].followed {
            return; // It went on meanwhile.
        }
        let kind = match how {
            How::Peer => EdgeKind::Peer,
            How::Lock | How::Thread | How::Child | How::FileLock => EdgeKind::Holds,
        };
        for holder in &looked.by {
            let owner = self.owner(holder, thread, looked.ts);
            let from = owner.and_then(|owner| self.vertex_at(owner, looked.ts));
            if let Some(from) = from {
                self.later(from, waiting, kind, looked.ts);
            }
        }
    }

    /// Edges from those who had the lock of a file to the vertices in which others did not get it:
    /// these ask later again, after a sleep that ends by itself.
    pub(crate) fn take_refusals(&mut self) {
        for (waiting, event) in std::mem::take(&mut self.refused) {
            if !self.vertices.get(waiting).call().is_some_and(is_sleep) {
                continue; // It did something else instead.
            }
            let tid = Some(event.b).filter(|&tid| tid != 0);
            let pid = event.halves(0).0;
            let thread = self.vertices.get(waiting).thread as usize;
            let owner = self.owner(&Holder { pid, tid }, thread, event.ts);
            let from = owner.and_then(|owner| self.vertex_at(owner, event.ts));
            if let Some(from) = from {
                self.later(from, waiting, EdgeKind::Holds, event.ts);
            }
        }
    }

    /// The thread that is waited for, if a process is waited for: its only thread; else the one
    /// that last sent something to the waiting thread; else the first.
    fn owner(&self, holder: &Holder, waiting: usize, ts: u64) -> Option<usize> {
        if let Some(tid) = holder.tid {
            return self.numbers.get(tid).map(|number| number as usize);
        }
        let threads = self.meta.threads.iter().zip(&self.threads).enumerate();
        let lives = |ended: Option<u64>| ended.is_none_or(|ended| ended > ts);
        let alive =
            threads.filter(|(_, (meta, known))| meta.pid == holder.pid && lives(known.ended));
        let mut alive = alive.map(|(number, _)| number);
        let (first, second) = (alive.next()?, alive.next());
        if second.is_none() {
            return Some(first);
        }
        let own = self.vertices.of(waiting as u32).iter().rev();
        let wakers = own.filter_map(|&vertex| {
            let row = self.vertices.get(vertex);
            (row.cause() == EdgeKind::Ipc && row.from != NOBODY)
                .then(|| self.vertices.get(row.from).thread as usize)
        });
        let mut of_process = wakers.filter(|&thread| self.meta.threads[thread].pid == holder.pid);
        let main = || self.numbers.get(holder.pid).map(|number| number as usize);
        of_process.next().or_else(main).or(Some(first))
    }
}
