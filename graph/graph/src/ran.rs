// SPDX-License-Identifier: MIT
//! What a vertex spent its time on: the functions that the clock found it in, and its system calls.
//!
//! In: samples every few milliseconds, calls where all were recorded. Out: of each vertex that was
//! found running at least [`FEWEST`] times, shares of functions and costs of calls. Shares of few
//! samples are rough.

use std::collections::BTreeMap;

use flagfinder_events::{Call, CallEnd};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::site::{function, line};

/// With fewer samples it is not known where the time went.
const FEWEST: u64 = 2;
/// Most functions and calls that are kept of a vertex.
const MOST: usize = 8;

/// A function and how often it was found running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RanFunction {
    /// The innermost one that is not the C library's; in the kernel the call, as `read()`.
    pub function: String,
    /// The source line that most of the samples have, where lines are known.
    #[serde(default)]
    pub line: Option<String>,
    pub samples: u64,
}

/// System calls of one sort.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RanCall {
    pub call: String,
    pub count: u64,
    /// ns from entry to return.
    pub total: u64,
    pub errors: u64,
}

/// What a vertex ran, most first. Calls are there only where all were recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    pub samples: u64,
    pub functions: Vec<RanFunction>,
    pub calls: Vec<RanCall>,
}

/// Where the clock found a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Spot {
    /// The call whose work the kernel did.
    pub call: Option<u16>,
    /// As [`crate::stacks::Stacks`] numbers places and stacks; 0: none.
    pub place: u32,
    pub stack: u32,
}

#[derive(Debug, Default)]
struct Cost {
    count: u64,
    total: u64,
    errors: u64,
}

/// The calls of a thread since its vertex began, and the one that it is in.
#[derive(Debug, Default)]
struct Calls {
    vertex: Option<u32>,
    /// There are few kinds: they are searched one by one.
    costs: Vec<(u16, Cost)>,
    open: Option<(u32, Call, u64)>,
}

#[derive(Debug, Default)]
pub(crate) struct Running {
    samples: FxHashMap<u32, Vec<(Spot, u64)>>,
    /// By number of the thread.
    calls: Vec<Calls>,
    costly: FxHashMap<u32, Vec<(u16, Cost)>>,
}

impl Running {
    pub fn sample(&mut self, vertex: u32, spot: Spot) {
        let spots = self.samples.entry(vertex).or_default();
        match spots.iter_mut().find(|(known, _)| *known == spot) {
            Some((_, count)) => *count += 1,
            None => spots.push((spot, 1)),
        }
    }

    /// Where the clock found a vertex, and how often.
    pub fn spots(&self, vertex: u32) -> &[(Spot, u64)] {
        self.samples.get(&vertex).map_or(&[], Vec::as_slice)
    }

    fn of(&mut self, thread: usize) -> &mut Calls {
        if thread >= self.calls.len() {
            self.calls.resize_with(thread + 1, Calls::default);
        }
        &mut self.calls[thread]
    }

    /// A thread begins a call in this vertex.
    pub fn enter(&mut self, thread: usize, vertex: u32, call: Call, ts: u64) {
        self.of(thread).open = Some((vertex, call, ts));
    }

    /// The call returns, and tells when it began. A call that blocked ends in another vertex, and
    /// is no cost of either.
    pub fn exit(
        &mut self,
        thread: usize,
        vertex: u32,
        end: CallEnd,
        ts: u64,
    ) -> Option<(Call, u64)> {
        let calls = self.of(thread);
        let (begun, call, since) = calls.open.take()?;
        let number = call.number;
        if begun != vertex || number != end.number {
            return None;
        }
        let mut done = None;
        if calls.vertex != Some(vertex) {
            let costs = std::mem::take(&mut calls.costs);
            done = calls.vertex.replace(vertex).map(|before| (before, costs));
        }
        let costs = &mut calls.costs;
        let place = costs.iter().position(|(known, _)| *known == number);
        let place = place.unwrap_or_else(|| {
            costs.push((number, Cost::default()));
            costs.len() - 1
        });
        let cost = &mut costs[place].1;
        cost.count += 1;
        cost.total += ts.saturating_sub(since);
        cost.errors += u64::from((-4095..0).contains(&end.result));
        if let Some((before, costs)) = done {
            self.keep(before, costs);
        }
        Some((call, since))
    }

    /// Keeps what a vertex's calls cost, if the clock found it running.
    fn keep(&mut self, vertex: u32, costs: Vec<(u16, Cost)>) {
        if self.samples.contains_key(&vertex) {
            self.costly.insert(vertex, costs);
        }
    }

    /// What vertices ran, by vertex. `site` names a spot.
    pub fn finish(mut self, site: impl Fn(Spot) -> String) -> BTreeMap<u32, Ran> {
        for calls in std::mem::take(&mut self.calls) {
            if let Some(vertex) = calls.vertex {
                self.keep(vertex, calls.costs);
            }
        }
        let mut found = BTreeMap::new();
        for (vertex, spots) in self.samples {
            let samples = spots.iter().map(|(_, count)| count).sum();
            if samples < FEWEST {
                continue;
            }
            let mut functions: BTreeMap<String, BTreeMap<Option<String>, u64>> = BTreeMap::new();
            for (spot, count) in spots {
                let site = site(spot);
                let lines = functions.entry(function(&site)).or_default();
                *lines.entry(line(&site).map(str::to_owned)).or_default() += count;
            }
            let functions = functions.into_iter().map(|(function, lines)| RanFunction {
                function,
                samples: lines.values().sum(),
                line: lines
                    .into_iter()
                    .max_by_key(|one| one.1)
                    .and_then(|one| one.0),
            });
            let mut functions: Vec<_> = functions.collect();
            functions.sort_by_key(|one| std::cmp::Reverse(one.samples));
            functions.truncate(MOST);
            let costs = self.costly.remove(&vertex).unwrap_or_default().into_iter();
            let calls = costs.map(|(number, cost)| RanCall {
                call: Call::name_of(number),
                count: cost.count,
                total: cost.total,
                errors: cost.errors,
            });
            let mut calls: Vec<_> = calls.collect();
            calls.sort_by_key(|one| std::cmp::Reverse(one.total));
            calls.truncate(MOST);
            let ran = Ran {
                samples,
                functions,
                calls,
            };
            found.insert(vertex, ran);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(place: u32) -> Spot {
        Spot {
            call: None,
            place,
            stack: 0,
        }
    }

    fn call(number: u16) -> Call {
        Call { number, first: 0 }
    }

    fn end(number: u16, result: i64) -> CallEnd {
        CallEnd { number, result }
    }

    #[test]
    fn functions_have_shares_and_calls_costs() {
        let mut running = Running::default();
        // Two places of one function, and one of another.
        for place in [1, 2, 1, 3] {
            running.sample(7, spot(place));
        }
        running.sample(8, spot(1));
        for (ts, result) in [(100, 5), (200, -11)] {
            running.enter(0, 7, call(1), ts);
            running.exit(0, 7, end(1, result), ts + 30);
        }
        running.enter(0, 7, call(0), 300);
        running.exit(0, 7, end(0, 0), 400);
        // It blocks, so that it ends in the next vertex.
        running.enter(0, 7, call(0), 500);
        running.exit(0, 8, end(0, 0), 9000);
        let name = |spot: Spot| {
            ["", "f+0x1 (a) at f.c:7", "f+0x9 (a) at f.c:8", "g"][spot.place as usize].to_owned()
        };
        let ran = running.finish(name);
        assert_eq!(ran.len(), 1, "one sample says nothing");
        let functions: Vec<_> = ran[&7].functions.iter().collect();
        let told: Vec<_> = functions
            .iter()
            .map(|f| (&f.function[..], f.line.as_deref(), f.samples))
            .collect();
        assert_eq!(told, [("f (a)", Some("f.c:7"), 3), ("g", None, 1)]);
        assert_eq!(ran[&7].samples, 4);
        let calls: Vec<_> = ran[&7].calls.iter().collect();
        let told: Vec<_> = calls
            .iter()
            .map(|call| (&call.call[..], call.count, call.total, call.errors))
            .collect();
        assert_eq!(told, [("read", 1, 100, 0), ("write", 2, 60, 1)]);
    }
}
