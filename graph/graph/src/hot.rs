// SPDX-License-Identifier: MIT
//! Calls that a vertex repeats and that bring nothing, with what they are about: the descriptor,
//! its file, why the call comes back, who opened it.
//!
//! In: all calls (`--syscalls target`), and what the recorder saw of their descriptors. Blind
//! spots: descriptors of a poll whose process had ended before it was looked at; calls that are
//! about no descriptor.

use flagfinder_events::{Call, CallEnd, Calls, Event, Looked, Told};
use flagfinder_linux::traits;
use flagfinder_waits::hot_call::{recorded, HotCall as Asked};
use serde::Serialize;

use crate::build::Builder;
use crate::graph::Graph;
use crate::hot_call::{HotCall, Opened};

impl Builder<'_> {
    /// A thread begins a call in this vertex.
    pub(crate) fn counts(&mut self, thread: usize, vertex: u32, event: &Event) {
        let all = &mut self.hot.calls;
        if thread >= all.len() {
            all.resize_with(thread + 1, || (u32::MAX, Calls::default()));
        }
        if all[thread].0 != vertex {
            self.judge(thread);
            let (of, calls) = &mut self.hot.calls[thread];
            *of = vertex;
            calls.clear();
        }
        self.hot.calls[thread].1.enter(event.words[0], [0; 2]);
        const CLOSE: u16 = libc::SYS_close as u16;
        if let Some(Call {
            number: CLOSE,
            first,
        }) = event.call()
        {
            let pid = self.meta.threads[thread].pid;
            self.hot.changes(pid, first as i32, event.ts, None);
        }
    }

    pub(crate) fn returned(&mut self, thread: usize, event: &Event, end: CallEnd) {
        if let Some((_, calls)) = self.hot.calls.get_mut(thread) {
            calls.exit(end);
        }
        if end.result >= 0 && traits::opens(end.number.into()) {
            let pid = self.meta.threads[thread].pid;
            let opened = Opened {
                thread: thread as u32,
                vertex: self.current(thread, event.ts),
                ts: event.ts,
                number: end.number,
            };
            let fd = end.result as i32;
            self.hot.changes(pid, fd, event.ts, Some(opened));
        }
    }

    /// Keeps the call that the thread's last vertex repeated and that brought nothing, if any.
    fn judge(&mut self, thread: usize) {
        let (vertex, calls) = &self.hot.calls[thread];
        if *vertex as usize >= self.vertices.len() {
            return;
        }
        let Some(one) = calls.in_vain(self.vertices.get(*vertex).run) else {
            return;
        };
        let call = one.call();
        let asked = Asked {
            number: call.number.into(),
            args: [call.first, 0, 0, 0, 0, 0],
            result: Some(one.result),
            found: Vec::new(),
        };
        let pid = self.meta.threads[thread].pid;
        let links = self.file.descriptors.iter().rev();
        let descriptors = call.descriptor().into_iter().map(|fd| {
            let mut same = links.clone().filter(|d| (d.pid, d.fd) == (pid, fd));
            recorded(fd, same.next().map_or("", |d| &d.target), &asked)
        });
        let hot = HotCall {
            vertex: *vertex,
            number: call.number,
            count: one.count,
            result: one.result,
            descriptors: descriptors.collect(),
            opened: Vec::new(),
            code: String::new(),
        };
        self.meta.hot.push(hot);
    }

    /// After all events: adds what goes on at the end, what was seen of descriptors, and who made
    /// them.
    pub(crate) fn tell_hot(&mut self) {
        (0..self.hot.calls.len()).for_each(|thread| self.judge(thread));
        let mut all = std::mem::take(&mut self.meta.hot);
        all.sort_by_key(|one| one.vertex);
        let file = self.file;
        for looked in &file.looked {
            self.seen(looked, &mut all);
        }
        for one in &mut all {
            let row = self.vertices.get(one.vertex);
            let pid = self.meta.threads[row.thread as usize].pid;
            let fds = one.descriptors.iter().map(|told| told.fd);
            let opened = fds.map(|fd| self.hot.opened(pid, fd, row.end));
            one.opened = opened.collect();
        }
        self.meta.hot = all;
    }

    /// What the recorder saw of a call while it was made over and over.
    fn seen(&self, looked: &Looked, all: &mut [HotCall]) {
        let thread = self.numbers.get(looked.tid);
        let vertex = thread.and_then(|thread| self.vertex_at(thread as usize, looked.ts));
        let Some(vertex) = vertex.filter(|_| !looked.descriptors.is_empty()) else {
            return;
        };
        let place = all.binary_search_by_key(&vertex, |one| one.vertex);
        let one = place.ok().map(|place| &mut all[place]);
        if let Some(one) = one.filter(|one| Some(u32::from(one.number)) == looked.call) {
            one.descriptors.clone_from(&looked.descriptors);
        }
    }
}

/// As `diagnose` tells it.
#[derive(Clone, Debug, Serialize)]
pub struct Hot {
    /// Its name, such as `poll`.
    pub call: String,
    /// How many were made, at least.
    pub calls: u32,
    /// Calls for each second that the thread had a CPU.
    pub per_second: u64,
    /// Result of the newest call.
    pub result: i64,
    /// The function that makes it; empty: it was not sampled with a stack.
    pub code: String,
    /// Those that keep it coming back, as far as they were seen.
    pub descriptors: Vec<Told>,
    /// Who made the first of them; null: it was there before, or that was not recorded.
    pub opened_by: Option<OpenedBy>,
}

/// A thread that made a descriptor, and the call.
#[derive(Clone, Debug, Serialize)]
pub struct OpenedBy {
    pub tid: u32,
    pub thread: String,
    pub call: String,
    pub vertex: u32,
    pub ts: u64,
}

impl Graph {
    /// The call that a vertex repeated and that brought nothing.
    pub(crate) fn hot_call(&self, vertex: u32) -> Option<&HotCall> {
        let all = &self.meta.hot;
        let place = all.binary_search_by_key(&vertex, |one| one.vertex);
        place.ok().map(|place| &all[place])
    }

    pub(crate) fn hot(&self, vertex: u32) -> Option<Hot> {
        const SECOND: u128 = 1_000_000_000;
        let one = self.hot_call(vertex)?;
        let run = self.vertex(vertex).run.max(1);
        let opened = one.opened.first().copied().flatten();
        let thread = |index: u32| self.meta.threads.get(index as usize);
        Some(Hot {
            call: Call::name_of(one.number),
            calls: one.count,
            per_second: (u128::from(one.count) * SECOND / u128::from(run)) as u64,
            result: one.result,
            code: one.code.clone(),
            descriptors: one.descriptors.clone(),
            opened_by: opened.and_then(|by| {
                let thread = thread(by.thread)?;
                Some(OpenedBy {
                    tid: thread.tid,
                    thread: thread.name.clone(),
                    call: Call::name_of(by.number),
                    vertex: by.vertex,
                    ts: by.ts,
                })
            }),
        })
    }
}
