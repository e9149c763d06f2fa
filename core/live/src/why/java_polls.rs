// SPDX-License-Identifier: MIT
//! Which fields a loop of Java polls, and who is to write one.
//!
//! In: where compiled code loops, or the methods that a thread has open. Out: the fields that the
//! innermost loop of the program reads, if it does nothing but ask and pause, and the threads whose
//! code ahead writes one of them. It is known that it is the same field if that is static, or if
//! the other thread has the object at hand, and the first has only one of the class. Blind spots:
//! busy loops that are not compiled yet; what a loop asks by an interface; a field that is written
//! behind one.

use std::collections::VecDeque;

use flagfinder_code::{AddressSpace, Spot, Whose};
use rustc_hash::FxHashSet;

use super::hotspot::HotSpot;
use super::java_code::{Field, What, CALLS, METHODS};
use super::java_frames::{whose, Frames, Open};

/// What a loop that only waits may call of the library: pauses and clocks, and what asks an object.
const PAUSES: [&str; 6] = [
    "onSpinWait",
    "yield",
    "sleep",
    "parkNanos",
    "nanoTime",
    "currentTimeMillis",
];
const ASKS: [&str; 6] = [
    "get",
    "getAcquire",
    "getOpaque",
    "getPlain",
    "isEmpty",
    "size",
];
/// Most other threads that are asked.
const MOST_THREADS: usize = 64;

/// A loop that does nothing but ask.
pub struct Polled {
    /// The program's method, and the line if that is known.
    pub at: Option<Spot>,
    /// Those that are to be written come first.
    pub fields: Vec<Field>,
    /// Threads whose code ahead writes one of them, and whether that is the same object's.
    pub owing: Vec<(u32, bool)>,
}

/// `pc`: where the thread loops, if that is known. `others`: threads that run the program's code.
pub fn polled(
    machine: &HotSpot,
    memory: &dyn AddressSpace,
    (tid, pc): (u32, Option<u64>),
    others: &[u32],
) -> Option<Polled> {
    let look = machine.look(memory);
    let frames = look.frames();
    let mut open = pc.map_or_else(Vec::new, |pc| frames.compiled_at(pc));
    let own_thread = machine.thread(tid)?;
    let is_own = |one: &&Open| {
        let class = frames.class_of(one.method);
        class.is_some_and(|class| whose(&class) != Whose::System)
    };
    if open.is_empty() {
        open = frames.open(own_thread.address);
        // The library's method that the program called may wait for more than time.
        let first = open.iter().position(|one| is_own(&one))?;
        let called = first.checked_sub(1).map(|within| open[within].method);
        let pauses = |method| {
            let name = frames.name_of(method);
            name.is_some_and(|name| PAUSES.contains(&&*name))
        };
        called.is_none_or(pauses).then_some(())?;
    }
    let mut own = open.iter().filter(is_own);
    let (at, (mut fields, asks_objects)) =
        own.find_map(|one| Some((frames.spot(one), frames.asks(one)?)))?;
    let (mut owing, mut owed) = (Vec::new(), FxHashSet::default());
    for other in others.iter().take(MOST_THREADS) {
        let writer = machine.thread(*other)?;
        let its = frames.open(writer.address);
        let mut known = look.known().ahead.borrow_mut();
        let ahead = known.entry(*other).or_insert_with(|| frames.ahead(&its));
        let written = fields.iter().filter(|one| ahead.writes.contains(one));
        let written: Vec<Field> = written.cloned().collect();
        if !written.is_empty() {
            let is_same = |field: &Field| {
                let both = || look.share((own_thread, &open), (writer, &its), &field.class);
                field.is_static || both()
            };
            owing.push((*other, written.iter().any(is_same)));
            owed.extend(written);
        }
    }
    fields.sort_by_key(|field| !owed.contains(field));
    // Who changes an object that the field refers to does not write the field.
    (!asks_objects || !owing.is_empty()).then_some(Polled { at, fields, owing })
}

impl Frames<'_> {
    /// The fields that the method's loops read, also by methods of the program that they call, and
    /// whether they ask objects of the library. `None`: they read none, or do something else.
    fn asks(&self, open: &Open) -> Option<(Vec<Field>, bool)> {
        let mut asks_objects = false;
        let mut fields: Vec<Field> = Vec::new();
        let mut seen = FxHashSet::default();
        if self.computes(open.method)? {
            return None;
        }
        let mut todo = VecDeque::from(self.in_loops(open)?);
        while let Some(what) = todo.pop_front() {
            match what {
                What::Reads(field) if !fields.contains(&field) => fields.push(field),
                What::Reads(_) => {}
                What::Writes(_) | What::Stores => return None,
                What::Calls(call) if whose(&call.class) == Whose::System => {
                    let asks = ASKS.contains(&&*call.name);
                    if !asks && !PAUSES.contains(&&*call.name) {
                        return None;
                    }
                    asks_objects |= asks;
                }
                What::Calls(call) => {
                    let methods = self.named(call.klass?, &call.name);
                    for method in methods {
                        if seen.len() >= METHODS || todo.len() >= CALLS {
                            return None;
                        }
                        if seen.insert(method) {
                            if self.computes(method)? {
                                return None;
                            }
                            todo.extend(self.does(method, None)?);
                        }
                    }
                }
            }
        }
        (!fields.is_empty()).then_some((fields, asks_objects))
    }
}
