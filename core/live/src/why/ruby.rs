// SPDX-License-Identifier: MIT
//! What a blocked thread of Ruby waits for: a `Mutex` and its owner, a `Queue`, a condition.
//!
//! In: the stacks of the threads, and Ruby's objects in memory. Out: the object in whose list of
//! waiters the thread stands: the entry lies on its own stack. A `Mutex` refers to the fiber that
//! has it; the thread that runs this one has addresses within it all over its stack. Source: Ruby's
//! `thread_sync.c`, versions 2.7 to 3.4. Blind spots: what Ruby's code does next; fibers that no
//! thread runs now.

use flagfinder_code::AddressSpace;

use super::obstacle::{Debtor, Obstacle, Who};
use super::process::{Inside, Process};
use super::report::Kind;
use crate::sample::Activity;

/// What the names of its modules begin with.
const MODULES: [&str; 2] = ["libruby", "ruby"];
/// Bytes of a stack that are read.
const STACK: usize = 32 << 10;
/// An object that keeps data of C: its kind in the flags, then where it has its type, that it has
/// one, and its data.
const KIND: u64 = 0x1f;
const OF_DATA: u64 = 0x0c;
const TYPE: u64 = 16;
const IS_TYPED: u64 = 24;
const DATA: u64 = 32;
/// From Ruby 3.3 on the data may lie in the object itself: a bit beside the 1.
const WITHIN: u64 = 2;
/// Where it may keep its list of waiters.
const LISTS: [u64; 5] = [0, 8, 16, 24, 32];
const MOST_WAITERS: usize = 1024;
/// Longest name of a type.
const NAME: usize = 16;
/// Bytes of a fiber, and how many words of a stack lead there at least.
const FIBER: u64 = 0x300;
const LEAST: usize = 3;

/// An object in whose list of waiters a thread stands.
struct Waits {
    name: &'static str,
    data: u64,
}

const NAMES: [(&str, &str); 4] = [
    ("mutex", "a Mutex"),
    ("queue", "a Queue"),
    ("szqueue", "a SizedQueue"),
    ("condvar", "a ConditionVariable"),
];
const MUTEX: &str = NAMES[0].1;

/// What this thread waits for, where a Mutex tells the thread that has it.
pub fn owed(process: &Process, tid: u32) -> Option<Obstacle> {
    let inside = inside(process)?;
    let stack = stack(&*inside.memory, process.activity(tid)?)?;
    let waits = waits(&*inside.memory, &stack).filter(|waits| waits.name == MUTEX)?;
    let fiber = inside.memory.word(waits.data).filter(|fiber| *fiber != 0)?;
    let mut found: Vec<(usize, u32)> = process
        .activities
        .iter()
        .filter(|one| one.tid != tid)
        .map(|one| (times(&*inside.memory, one, fiber), one.tid))
        .collect();
    found.sort_unstable();
    let (most, owner) = found.pop()?;
    let second = found.pop().map_or(0, |(times, _)| times);
    if most < LEAST || most < 2 * second {
        return None;
    }
    let reason = "the Mutex refers to the fiber that this thread runs";
    let debtor = Debtor::seen(Who::Thread(process.pid, owner), reason);
    Some(Obstacle::owed(Kind::Lock, MUTEX, vec![debtor]))
}

/// What else of Ruby's it waits for.
pub fn called(process: &Process, tid: u32) -> Option<&'static str> {
    let inside = inside(process)?;
    let stack = stack(&*inside.memory, process.activity(tid)?)?;
    Some(waits(&*inside.memory, &stack)?.name)
}

fn inside(process: &Process) -> Option<&Inside> {
    let inside = process.inside.as_ref()?;
    let mut modules = inside.names.input().modules.iter();
    let is_ruby = |name: &str| MODULES.iter().any(|begins| name.starts_with(begins));
    modules
        .any(|module| is_ruby(&module.identity.name))
        .then_some(inside)
}

/// The words that a thread which is in a call has open: where they begin, and what they are.
struct Stack {
    begin: u64,
    words: Vec<u64>,
}

fn stack(memory: &dyn AddressSpace, activity: &Activity) -> Option<Stack> {
    let begin = activity.call?.sp & !7;
    let mut bytes = vec![0; STACK];
    let got = memory.read(begin, &mut bytes);
    let words = bytes[..got].chunks_exact(8);
    let words = words.map(|eight| eight.try_into().map_or(0, u64::from_le_bytes));
    Some(Stack {
        begin,
        words: words.collect(),
    })
}

/// The object at hand in whose list of waiters an entry of this stack stands.
fn waits(memory: &dyn AddressSpace, stack: &Stack) -> Option<Waits> {
    let extent = stack.begin..stack.begin + stack.words.len() as u64 * 8;
    let objects = stack
        .words
        .iter()
        .filter(|word| **word > 4096 && *word % 8 == 0);
    objects.copied().find_map(|object| {
        let found = object_of_data(memory, object)?;
        let stands = |list: &u64| {
            let head = found.data.wrapping_add(*list);
            let mut at = memory.word(head);
            for _ in 0..MOST_WAITERS {
                match at {
                    Some(entry) if extent.contains(&entry) => return true,
                    Some(entry) if entry != head && entry > 4096 => at = memory.word(entry),
                    _ => return false,
                }
            }
            false
        };
        LISTS.iter().any(stands).then_some(found)
    })
}

fn object_of_data(memory: &dyn AddressSpace, object: u64) -> Option<Waits> {
    let field = |at: u64| memory.word(object.checked_add(at)?);
    let kind = field(0)? & KIND;
    let typed = field(IS_TYPED)?;
    if kind != OF_DATA || typed & 1 == 0 || typed > WITHIN + 1 {
        return None;
    }
    let mut bytes = [0u8; NAME];
    let got = memory.read(memory.word(field(TYPE)?)?, &mut bytes);
    let end = bytes[..got].iter().position(|byte| *byte == 0)?;
    let text = std::str::from_utf8(&bytes[..end]).ok()?;
    let (_, name) = NAMES.iter().find(|(own, _)| *own == text)?;
    let data = match typed & WITHIN {
        0 => field(DATA)?,
        _ => object + DATA,
    };
    Some(Waits { name, data })
}

/// How many words of the thread's stack lead into the fiber.
fn times(memory: &dyn AddressSpace, activity: &Activity, fiber: u64) -> usize {
    let extent = fiber..fiber.saturating_add(FIBER);
    let words = stack(memory, activity).map_or_else(Vec::new, |stack| stack.words);
    words.iter().filter(|word| extent.contains(word)).count()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    struct Words(BTreeMap<u64, u64>);

    impl AddressSpace for Words {
        fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
            for (at, byte) in buffer.iter_mut().enumerate() {
                let place = address + at as u64;
                let Some(word) = self.0.get(&(place & !7)) else {
                    return at;
                };
                *byte = word.to_le_bytes()[place as usize % 8];
            }
            buffer.len()
        }
    }

    const OBJECT: u64 = 0x5000;
    const MUTEX_DATA: u64 = 0x6000;

    /// A thread with a Mutex at hand, whose list begins with this entry.
    fn found(list: u64, entry: u64) -> Option<&'static str> {
        let text = u64::from_le_bytes(*b"mutex\0\0\0");
        let words = [
            (OBJECT, OF_DATA),
            (OBJECT + TYPE, 0x7000),
            (OBJECT + IS_TYPED, 1),
            (OBJECT + DATA, MUTEX_DATA),
            (0x7000, 0x7100),
            (0x7100, text),
            (0x7108, 0),
            (MUTEX_DATA, 0x9000),
            (MUTEX_DATA + list, entry),
            (entry, MUTEX_DATA + list),
        ];
        let empty = (0..5).map(|at| (MUTEX_DATA + at * 8, 0));
        let memory = Words(empty.chain(words).collect());
        let stack = Stack {
            begin: 0x8000,
            words: vec![0, OBJECT, 0, 0],
        };
        waits(&memory, &stack).map(|waits| waits.name)
    }

    #[test]
    fn a_thread_waits_for_the_object_that_lists_it() {
        for list in [16, 24] {
            assert_eq!(found(list, 0x8010), Some(MUTEX), "{list}");
            assert_eq!(found(list, 0xa010), None, "another thread");
        }
    }
}
