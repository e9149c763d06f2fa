// SPDX-License-Identifier: MIT
//! A tally by name: what waits and delays took, the longest first.

use std::collections::{BTreeMap, HashMap};

use flagfinder_events::{Call, Sums, Tally, WaitKey};
use serde::Serialize;

use crate::site::{code_of, function};
use crate::stacks::{Named, Stacks};

/// Times of one kind, all in ns.
#[derive(Clone, Debug, Serialize)]
pub struct Times {
    pub count: u64,
    pub total: u64,
    pub longest: u64,
    /// How many of `count` still go on.
    pub unfinished: u64,
}

/// How many were at least `from` ns long and shorter than `to`; `None`: no bound.
#[derive(Clone, Debug, Serialize)]
pub struct Bar {
    pub from: u64,
    pub to: Option<u64>,
    pub count: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct TopThread {
    pub tid: u32,
    pub pid: u32,
    pub thread: String,
}

/// Waits of one thread in one call at one place.
#[derive(Clone, Debug, Serialize)]
pub struct TopWait {
    #[serde(flatten)]
    pub who: TopThread,
    /// Empty: the thread was not in a call, as with a page fault.
    pub call: String,
    pub errno: Option<u32>,
    /// The innermost function that is not the C library's.
    pub code: String,
    pub stack: Vec<String>,
    #[serde(flatten)]
    pub times: Times,
}

/// Waits of one thread in one call.
#[derive(Clone, Debug, Serialize)]
pub struct TopCall {
    #[serde(flatten)]
    pub who: TopThread,
    pub call: String,
    #[serde(flatten)]
    pub times: Times,
    pub histogram: Vec<Bar>,
}

/// Who had the processor, and how long, ns.
#[derive(Clone, Debug, Serialize)]
pub struct Instead {
    #[serde(flatten)]
    pub who: TopThread,
    pub total: u64,
}

/// How long a thread was ready to run without a processor.
#[derive(Clone, Debug, Serialize)]
pub struct TopDelay {
    #[serde(flatten)]
    pub who: TopThread,
    #[serde(flatten)]
    pub times: Times,
    pub histogram: Vec<Bar>,
    pub instead: Vec<Instead>,
}

/// A wait that began before the counting: it was at least so long.
#[derive(Clone, Debug, Serialize)]
pub struct TopEarlier {
    #[serde(flatten)]
    pub who: TopThread,
    pub call: String,
    /// ns from the beginning of the counting.
    pub dur: u64,
    /// It went on when the counting ended.
    pub unfinished: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct Top {
    pub span: u64,
    pub waits: Vec<TopWait>,
    pub calls: Vec<TopCall>,
    pub delays: Vec<TopDelay>,
    pub earlier: Vec<TopEarlier>,
    pub lost: u64,
    pub stacks_dropped: u64,
}

fn times(sums: &Sums) -> Times {
    Times {
        count: sums.count,
        total: sums.total,
        longest: sums.longest,
        unfinished: sums.unfinished,
    }
}

/// From the first bar that holds anything to the last one.
fn histogram(sums: &Sums) -> Vec<Bar> {
    let slots = &sums.slots;
    let holds = |&index: &usize| slots[index] > 0;
    let first = (0..slots.len()).find(holds);
    let last = (0..slots.len()).rfind(holds);
    let bound = |index: usize| 1000u64 << index;
    let bars = first.zip(last).map(|(first, last)| {
        (first..=last).map(|index| Bar {
            from: index.checked_sub(1).map_or(0, bound),
            to: (index + 1 < slots.len()).then(|| bound(index)),
            count: slots[index],
        })
    });
    bars.into_iter().flatten().collect()
}

fn call_name(call: Option<u16>) -> String {
    call.map_or(String::new(), Call::name_of)
}

/// A stack by its functions: the same call may stand in one of them more than once.
fn functions(stack: &[&String]) -> Vec<String> {
    stack.iter().map(|site| function(site)).collect()
}

/// Names threads, calls and places.
pub fn top(tally: &Tally) -> Top {
    let who = |tid: u32| {
        let known = tally.threads.get(&tid);
        TopThread {
            tid,
            pid: known.map_or(0, |who| who.pid),
            thread: known.map_or(String::new(), |who| who.name.clone()),
        }
    };
    let mut stacks = Stacks::default();
    let mut numbers = HashMap::new();
    for (index, (pid, _)) in (1u32..).zip(&tally.stacks) {
        numbers.insert(index, stacks.number(*pid, index));
    }
    let maps: HashMap<u32, &str> = tally.maps.iter().map(|m| (m.pid, &m.text[..])).collect();
    let words = |stack: u32| &tally.stacks[stack as usize - 1].1[..];
    let Named { sites, stacks, .. } = stacks.name(&maps, &tally.python, tally.recorded, words);
    let stack_of = |index: u32| -> Vec<&String> {
        let stack = numbers.get(&index).map(|&number| &stacks[number as usize]);
        let stack = stack.into_iter().flatten();
        stack.map(|&site| &sites[site as usize]).collect()
    };
    let mut waits: HashMap<_, (WaitKey, Sums)> = HashMap::new();
    let mut calls: BTreeMap<(u32, Option<u16>), Sums> = BTreeMap::new();
    let mut all: Vec<_> = tally.waits.iter().collect();
    all.sort_by_key(|(key, _)| **key);
    for (key, sums) in all {
        calls.entry((key.tid, key.call)).or_default().join(sums);
        let place = functions(&stack_of(key.stack));
        let known = waits.entry((key.tid, key.pid, key.call, key.error, place));
        known.or_insert((*key, Sums::default())).1.join(sums);
    }
    let mut waits: Vec<_> = waits.into_values().collect();
    waits.sort_by_key(|(key, sums)| (std::cmp::Reverse(sums.total), *key));
    let mut calls: Vec<_> = calls.into_iter().collect();
    calls.sort_by_key(|(_, sums)| std::cmp::Reverse(sums.total));
    let mut delays: Vec<_> = tally.delays.iter().collect();
    delays.sort_by_key(|(tid, sums)| (std::cmp::Reverse(sums.total), **tid));
    let instead = |tid: u32| {
        let all = tally.instead.range((tid, 0)..=(tid, u32::MAX));
        let mut all: Vec<Instead> = all
            .map(|(&(_, other), &total)| Instead {
                who: who(other),
                total,
            })
            .collect();
        all.sort_by_key(|one| std::cmp::Reverse(one.total));
        all
    };
    let mut earlier = tally.earlier.clone();
    earlier.sort_by_key(|wait| (std::cmp::Reverse(wait.ns), wait.tid));
    Top {
        span: tally.span,
        earlier: earlier
            .into_iter()
            .map(|wait| TopEarlier {
                who: who(wait.tid),
                call: call_name(wait.call),
                dur: wait.ns,
                unfinished: wait.unfinished,
            })
            .collect(),
        waits: waits
            .into_iter()
            .map(|(key, sums)| {
                let stack = stack_of(key.stack);
                TopWait {
                    who: TopThread {
                        pid: key.pid,
                        ..who(key.tid)
                    },
                    call: call_name(key.call),
                    errno: (key.error != 0).then_some(key.error),
                    code: code_of(stack.iter().copied()),
                    stack: stack.into_iter().cloned().collect(),
                    times: times(&sums),
                }
            })
            .collect(),
        calls: calls
            .into_iter()
            .map(|((tid, call), sums)| TopCall {
                who: who(tid),
                call: call_name(call),
                times: times(&sums),
                histogram: histogram(&sums),
            })
            .collect(),
        delays: delays
            .into_iter()
            .map(|(&tid, sums)| TopDelay {
                who: who(tid),
                times: times(sums),
                histogram: histogram(sums),
                instead: instead(tid),
            })
            .collect(),
        lost: tally.lost,
        stacks_dropped: tally.stacks_dropped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_powers_of_two_of_microseconds() {
        let mut sums = Sums::default();
        [999, 1000, 3999, 4000]
            .into_iter()
            .for_each(|ns| sums.add(ns));
        let bars = histogram(&sums);
        let told: Vec<_> = bars
            .iter()
            .map(|bar| (bar.from, bar.to, bar.count))
            .collect();
        assert_eq!(
            told,
            [
                (0, Some(1000), 1),
                (1000, Some(2000), 1),
                (2000, Some(4000), 1),
                (4000, Some(8000), 1)
            ]
        );
        sums.add(u64::MAX / 4);
        assert_eq!(histogram(&sums).last().unwrap().to, None);
        assert!(histogram(&Sums::default()).is_empty());
    }
}
