// SPDX-License-Identifier: MIT
//! Which user code makes which system calls, how often and for how long (Uscope, figure 7): what
//! two recordings are compared by.

use std::collections::BTreeMap;

use flagfinder_events::{Call, Event, EventFile, Kind, State};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use crate::hot_call::HotCall;
use crate::ran::Running;
use crate::site::code_of;
use crate::stacks::{Named, Stacks};

/// Calls of one sort from one place.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ProfileRow {
    pub call: String,
    /// The innermost Python function, or one that is not the C library's, by name or module +
    /// offset; empty: no stack was taken, as the call did not block and the clock did not find it.
    pub code: String,
    /// The code is that of samples; where several functions were found, numbers are in proportion.
    pub sampled: bool,
    pub count: u64,
    /// ns from entry to return where all calls were recorded, else ns blocked.
    pub total: u64,
    pub longest: u64,
    /// How often it failed, by errno; only where all calls were recorded.
    pub errors: BTreeMap<i64, u64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Profile {
    /// ns from the first event to the end.
    pub span: u64,
    pub syscalls: String,
    pub command: Vec<String>,
    pub lost: u64,
    pub rows: Vec<ProfileRow>,
}

/// A call that a thread is in.
#[derive(Clone, Copy)]
struct Open {
    number: u16,
    since: u64,
    /// As the graph numbers stacks.
    stack: u32,
    /// Its entry was recorded, so its return will be.
    entered: bool,
}

#[derive(Default)]
struct Profiler {
    open: FxHashMap<u32, Open>,
    processes: FxHashMap<u32, u32>,
    stacks: Stacks,
    /// By call and stack.
    found: BTreeMap<(u16, u32), Found>,
    /// Samples in calls, by call and stack.
    sampled: BTreeMap<(u16, u32), u64>,
    lost: u64,
    /// The processes that were asked for, and what they started; empty: all are meant.
    targets: FxHashSet<u32>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Found {
    count: u64,
    total: u64,
    longest: u64,
    errors: BTreeMap<i64, u64>,
}

impl Found {
    /// Calls that did not block, shared out among the functions that samples found in them: in
    /// proportion, so that rounding loses nothing.
    fn divided(&self, codes: &BTreeMap<String, u64>) -> Vec<(String, bool, Found)> {
        let all: u64 = codes.values().sum();
        let mut before = 0;
        let part = |whole: u64, from: u64, to: u64| {
            let up_to = |n: u64| (u128::from(whole) * u128::from(n) / u128::from(all)) as u64;
            up_to(to) - up_to(from)
        };
        let parts = codes.iter().map(|(code, samples)| {
            let (from, to) = (before, before + samples);
            before = to;
            let errors = self.errors.iter();
            let errors = errors.map(|(&errno, &count)| (errno, part(count, from, to)));
            let found = Found {
                count: part(self.count, from, to),
                total: part(self.total, from, to),
                longest: self.longest,
                errors: errors.filter(|(_, count)| *count > 0).collect(),
            };
            (code.clone(), true, found)
        });
        parts.collect()
    }
}

/// The errno of a result from -4095 to -1.
fn errno(result: i64) -> Option<i64> {
    (-4095..0).contains(&result).then_some(-result)
}

impl Profiler {
    /// `result`: where it was recorded.
    fn close(&mut self, tid: u32, ts: u64, result: Option<i64>) {
        if let Some(open) = self.open.remove(&tid) {
            let took = ts - open.since;
            let row = self.found.entry((open.number, open.stack)).or_default();
            row.count += 1;
            row.total += took;
            row.longest = row.longest.max(took);
            if let Some(errno) = result.and_then(errno) {
                *row.errors.entry(errno).or_default() += 1;
            }
        }
    }

    /// Whether a thread is of the target: others are only known from what they did to it.
    fn is_meant(&self, tid: u32) -> bool {
        let pid = self.processes.get(&tid);
        pid.is_some_and(|pid| self.targets.is_empty() || self.targets.contains(pid))
    }

    fn blocks(&mut self, event: &Event, call: Call) {
        if !self.is_meant(event.a) {
            return;
        }
        let pid = self.processes.get(&event.a).copied().unwrap_or(event.a);
        let number = match event.stack {
            0 => 0,
            stack => self.stacks.number(pid, stack),
        };
        let open = self.open.entry(event.a).or_insert(Open {
            number: call.number,
            since: event.ts,
            stack: 0,
            entered: false,
        });
        if open.stack == 0 {
            open.stack = number;
        }
    }

    fn see(&mut self, event: &Event) {
        match (event.kind, event.call()) {
            (Kind::Enter | Kind::EnterWide, Some(call)) => {
                // Entries are recorded of the target only.
                if let Some(&pid) = self.processes.get(&event.a) {
                    if !self.targets.is_empty() {
                        self.targets.insert(pid);
                    }
                }
                self.open.insert(
                    event.a,
                    Open {
                        number: call.number,
                        since: event.ts,
                        stack: 0,
                        entered: true,
                    },
                );
            }
            (Kind::ExitCall, _) => {
                let result = event.call_end().map(|end| end.result);
                self.close(event.a, event.ts, result);
            }
            (Kind::Switch, Some(call)) if event.state() != State::Preempted => {
                self.blocks(event, call);
            }
            (Kind::Sample, Some(call)) if event.stack != 0 && self.is_meant(event.a) => {
                let pid = self.processes.get(&event.a).copied().unwrap_or(event.a);
                let stack = self.stacks.number(pid, event.stack);
                *self.sampled.entry((call.number, stack)).or_default() += 1;
            }
            (Kind::Waking, _) if self.open.get(&event.b).is_some_and(|open| !open.entered) => {
                self.close(event.b, event.ts, None);
            }
            (Kind::Fork, _) => {
                let (pid, parent) = event.halves(0);
                self.processes.insert(event.b, pid);
                if self.targets.contains(&parent) {
                    self.targets.insert(pid);
                }
                self.stacks.forked(pid, parent);
            }
            (Kind::Exec, _) => self.stacks.executed(event.halves(0).0),
            (Kind::Exit, _) => {
                self.open.remove(&event.a);
            }
            (Kind::Lost, _) => {
                self.open.clear();
                self.lost += event.words[0];
            }
            _ => {}
        }
    }
}

/// Says which code makes the calls, as most samples in them have it.
pub(crate) fn name_hot_calls(all: &mut [HotCall], ran: &Running, named: &Named) {
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

/// The call sites of one recording, by call and user code.
pub fn profile(file: &EventFile) -> Profile {
    let mut profiler = Profiler::default();
    for thread in &file.threads {
        profiler.processes.insert(thread.tid, thread.pid);
    }
    if file.info.everything {
        profiler.targets.extend(&file.info.pids);
    }
    file.events(|event| profiler.see(event));
    let Named { sites, stacks, .. } = profiler.stacks.resolve(file);
    let code = |stack: u32| {
        let stack = stacks[stack as usize].iter();
        code_of(stack.map(|&site| &sites[site as usize]))
    };
    let mut rows: BTreeMap<(String, String), ProfileRow> = BTreeMap::new();
    // Which code a call was sampled in, and how often.
    let mut sampled: BTreeMap<u16, BTreeMap<String, u64>> = BTreeMap::new();
    for (&(number, stack), count) in &profiler.sampled {
        let codes = sampled.entry(number).or_default();
        *codes.entry(code(stack)).or_default() += count;
    }
    for (&(number, stack), found) in &profiler.found {
        let known = sampled.get(&number).filter(|_| stack == 0);
        let parts = match known {
            Some(codes) => found.divided(codes),
            None => vec![(code(stack), false, found.clone())],
        };
        for (code, sampled, found) in parts {
            let key = (Call::name_of(number), code);
            let row = rows.entry(key.clone()).or_insert_with(|| ProfileRow {
                call: key.0,
                code: key.1,
                ..ProfileRow::default()
            });
            row.sampled |= sampled;
            row.count += found.count;
            row.total += found.total;
            row.longest = row.longest.max(found.longest);
            for (errno, count) in &found.errors {
                *row.errors.entry(*errno).or_default() += count;
            }
        }
    }
    let (begin, end) = file.time();
    Profile {
        span: end - begin,
        syscalls: file.info.syscalls.clone(),
        command: file.info.command.clone(),
        lost: profiler.lost,
        rows: rows.into_values().collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::Found;

    #[test]
    fn calls_that_did_not_block_are_divided_among_the_code_that_was_sampled() {
        let found = Found {
            count: 100,
            total: 7,
            longest: 3,
            errors: BTreeMap::from([(2, 10), (4, 1)]),
        };
        let codes = BTreeMap::from([("f (app)".to_owned(), 2), ("g (app)".to_owned(), 1)]);
        let parts = found.divided(&codes);
        let counts: Vec<u64> = parts.iter().map(|(.., part)| part.count).collect();
        assert_eq!(counts, [66, 34]);
        assert_eq!(parts.iter().map(|(.., part)| part.total).sum::<u64>(), 7);
        let errors = parts.iter().flat_map(|(.., part)| part.errors.values());
        assert_eq!(errors.sum::<u64>(), 11);
        let one = BTreeMap::from([("f (app)".to_owned(), 5)]);
        assert_eq!(
            found.divided(&one),
            [("f (app)".to_owned(), true, found.clone())]
        );
    }
}
