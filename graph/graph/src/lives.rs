// SPDX-License-Identifier: MIT
//! How long threads live, and how long what they do lasts: to their exit, else to the recording's
//! end, which is later than its last event if nothing happens any more.

use flagfinder_events::{Event, FORK_NOT_FOLLOWED};

use crate::build::Builder;
use crate::edge::EdgeKind;

impl Builder<'_> {
    /// A thread, or a process, starts. An id that is used again is a new thread.
    pub(crate) fn fork(&mut self, event: &Event) {
        let creator = self.thread(event.a);
        let from = self.current(creator, event.ts);
        if let Some(gone) = self.numbers.get(event.b) {
            self.end(gone as usize, event.ts);
        }
        let child = self.new_thread(event.b);
        let (pid, parent) = event.halves(0);
        self.stacks.forked(pid, parent);
        self.hot.forked(pid, parent, event.ts);
        self.threads[child].is_followed = event.flags & FORK_NOT_FOLLOWED == 0;
        let meta = &mut self.meta.threads[child];
        (meta.pid, meta.parent, meta.name) = (pid, parent, event.name(1));
        let child = self.begin(child, event.ts);
        self.caused(child, EdgeKind::Fork, from, 0);
    }

    /// Another program takes the process's place. If another thread than the first called exec, it
    /// goes on under the first one's id.
    pub(crate) fn exec(&mut self, event: &Event) {
        self.describe(event.a, |meta| meta.name = event.name(1));
        let (pid, before) = event.halves(0);
        self.stacks.executed(pid);
        let other = self.numbers.get(before).filter(|_| before != event.a);
        if let Some(gone) = other {
            self.end(gone as usize, event.ts);
        }
    }

    /// A thread ends. What it still wakes comes from its last vertex; the switch away from it may
    /// not be recorded.
    pub(crate) fn exit(&mut self, event: &Event) {
        let thread = self.thread(event.a);
        self.current(thread, event.ts);
        self.threads[thread].ended = Some(event.ts);
    }

    /// Nothing more comes of a thread.
    fn end(&mut self, thread: usize, ts: u64) {
        let known = &mut self.threads[thread];
        known.is_over = true;
        let Some(open) = known.open.take() else {
            return;
        };
        // A damaged file may hold events after its last one.
        let ts = known.ended.unwrap_or(ts).max(self.vertices.get(open).start);
        let since = known.on_cpu.take();
        let ran = since.map_or(0, |since| ts.saturating_sub(since));
        self.vertices.lasts(open, ts, ran);
        known.last = Some(open);
    }

    pub(crate) fn close(&mut self) {
        let wanted = self.file.info.names();
        for (thread, meta) in self.threads.iter().zip(&mut self.meta.threads) {
            meta.followed = thread.is_followed && thread.is_switched && wanted.fits(&meta.name);
        }
        for thread in 0..self.threads.len() {
            if !self.threads[thread].is_over {
                self.end(thread, self.meta.last);
            }
        }
    }
}
