// SPDX-License-Identifier: MIT
//! Calls that a vertex makes over and over and in vain, with what they are about: the descriptor,
//! its file, why the call comes back, who opened it.
//!
//! In: all calls (`--syscalls target`), and what the recorder saw of their descriptors. Blind
//! spots: descriptors of a poll whose process had ended before it was looked at; calls that are
//! about no descriptor.

use std::collections::BTreeMap;

use flagfinder_events::{Call, CallEnd, Calls, Event, Looked, Told};
use flagfinder_linux::traits;
use flagfinder_waits::hot_call::{recorded, HotCall as Asked};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::build::Builder;
use crate::graph::Graph;
use crate::profile::code_of;
use crate::ran::Running;
use crate::stacks::Named;

/// A call that a vertex made in vain, all the time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HotCall {
    pub vertex: u32,
    pub number: u16,
    /// How often, at least.
    pub count: u32,
    /// Of the newest one.
    pub result: i64,
    /// Those that keep it coming back, as they were seen while it went on; else the one that it
    /// names.
    pub descriptors: Vec<Told>,
    /// Who made each of them, where that was recorded.
    pub opened: Vec<Option<Opened>>,
    /// The function that makes it, as most samples in the call have it; empty: there are none.
    #[serde(default)]
    pub code: String,
}

/// Says which code makes the calls, as most samples in them have it.
pub(crate) fn name(all: &mut [HotCall], ran: &Running, named: &Named) {
    let code = |stack: u32| {
        let sites = named.stacks[stack as usize].iter();
        code_of(sites.map(|&site| &named.sites[site as usize]))
    };
    for one in all {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for (spot, count) in ran.spots(one.vertex) {
            if spot.call == Some(one.number) && spot.stack != 0 {
                *counts.entry(code(spot.stack)).or_default() += count;
            }
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        one.code = most.map_or(String::new(), |(code, _)| code);
    }
}

/// A call that made a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// Index of the thread.
    pub thread: u32,
    pub vertex: u32,
    pub ts: u64,
    pub number: u16,
}

/// When a descriptor changed, and who made the new one.
type Change = (u64, Option<Opened>);

/// What the builder knows of repeated calls.
#[derive(Default)]
pub(crate) struct HotCalls {
    /// By thread: the vertex whose calls these are.
    calls: Vec<(u32, Calls)>,
    /// By process and descriptor: the newest changes, `None` where it was closed.
    changed: FxHashMap<(u32, i32), Vec<Change>>,
    /// Of a process: who started it, and when.
    parents: FxHashMap<u32, (u32, u64)>,
}

impl HotCalls {
    pub fn forked(&mut self, pid: u32, parent: u32, ts: u64) {
        if pid != parent {
            self.parents.insert(pid, (parent, ts));
        }
    }

    fn changes(&mut self, pid: u32, fd: i32, ts: u64, opened: Option<Opened>) {
        /// Of one descriptor: a child may still have it as it was before.
        const MOST: usize = 4;
        let all = self.changed.entry((pid, fd)).or_default();
        if all.len() >= MOST {
            all.remove(0);
        }
        all.push((ts, opened));
    }

    /// Who made a descriptor that a process has at a time: the process itself, or one that it is
    /// descended from, before it started it.
    fn opened(&self, mut pid: u32, fd: i32, mut ts: u64) -> Option<Opened> {
        const MOST: usize = 64;
        for _ in 0..MOST {
            let known = self.changed.get(&(pid, fd)).map(Vec::as_slice);
            let mut before = known.unwrap_or_default().iter().rev();
            if let Some((_, opened)) = before.find(|(then, _)| *then <= ts) {
                return *opened;
            }
            (pid, ts) = *self.parents.get(&pid)?;
        }
        None
    }
}

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

    /// It returns.
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

    /// Keeps the call that the thread's last vertex made in vain, if there is one.
    fn judge(&mut self, thread: usize) {
        let (vertex, calls) = &self.hot.calls[thread];
        let Some(row) = self.vertices.rows.get(*vertex as usize) else {
            return;
        };
        let Some(one) = calls.in_vain(row.run) else {
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

    /// After all events: what goes on at the end, what was seen of descriptors, who made them.
    pub(crate) fn tell_hot(&mut self) {
        (0..self.hot.calls.len()).for_each(|thread| self.judge(thread));
        let mut all = std::mem::take(&mut self.meta.hot);
        all.sort_by_key(|one| one.vertex);
        let file = self.file;
        for looked in &file.looked {
            self.seen(looked, &mut all);
        }
        for one in &mut all {
            let row = &self.vertices[one.vertex];
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
    pub call: String,
    pub calls: u32,
    /// For a second on a CPU.
    pub per_second: u64,
    /// Of the newest one.
    pub result: i64,
    /// The function that makes it; empty: it was not sampled with a stack.
    pub code: String,
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
    /// The call that a vertex made in vain.
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
