// SPDX-License-Identifier: MIT
//! Where async functions of JavaScript are suspended in `await`.
//!
//! In: V8's heap. Out: the places of those that have begun, whose promise is pending, and that do
//! not await another such function. V8 keeps no list of them: the heap is searched for their
//! objects, whose fields lie one behind the other (V8's `js-generator.tq`, `js-promise.tq`). Blind
//! spots: async generators; functions that were dropped while they awaited, until the collector
//! has taken them; heaps of more than [`MOST`] bytes.

use flagfinder_code::{Maps, Spot, Whose};
use rustc_hash::FxHashSet;

use super::v8::V8;

/// Most bytes that are searched, and bytes that are read at once.
const MOST: u64 = 512 << 20;
const PART: u64 = 1 << 20;
const FOUND: usize = 256;
/// Most objects that are looked at.
const TRIES: usize = 1 << 16;
const WORD: u64 = 8;
/// Fields of a suspended function, in words behind those of any object.
const FUNCTION: u64 = 0;
const AT: u64 = 3;
const CONTINUES: u64 = 5;
const PROMISE: u64 = 7;
/// And of a promise: what waits for it, and its state in the lowest bits of a small number.
const REACTIONS: u64 = 0;
const FLAGS: u64 = 1;
const STATE: u64 = 3;
/// From a promise to the function that awaits it: so many steps, of so many words each.
const STEPS: usize = 4;
const NEAR: u64 = 10;

const SUSPENDED: &str = "JSAsyncFunctionObject__JS_ASYNC_FUNCTION_OBJECT_TYPE";
const PENDING: &str = "JSPromise__JS_PROMISE_TYPE";

impl V8<'_> {
    /// The innermost ones.
    pub(super) fn suspended(&self) -> Vec<(Whose, Spot)> {
        self.look().unwrap_or_default()
    }

    fn look(&self) -> Option<Vec<(Whose, Spot)>> {
        let wanted = self.constant(&format!("type_{SUSPENDED}"))? as u16;
        let at = self.constant("class_Map__instance_type__uint16_t")?;
        let at = usize::try_from(at).ok().filter(|at| *at < 64)?;
        let mark = self.constant("HeapObjectTag")?;
        let (mut maps, mut tries) = (FxHashSet::default(), 0);
        self.search(|begin, _, bytes| {
            let kind = bytes.get(at..at + 2);
            let object = begin.wrapping_add(mark);
            if kind == Some(&wanted.to_le_bytes()[..]) && tries < TRIES {
                tries += 1;
                if maps.len() < FOUND && self.is(object, "Map__MAP_TYPE") {
                    maps.insert(object);
                }
            }
        });
        let (mut all, mut tries) = (Vec::new(), 0);
        self.search(|begin, word, _| {
            let object = begin.wrapping_add(mark);
            if maps.contains(&word) && tries < TRIES {
                tries += 1;
                if all.len() < FOUND && self.is_suspended(object) {
                    all.push(object);
                }
            }
        });
        let awaiting: FxHashSet<u64> = all
            .iter()
            .filter_map(|one| self.awaiting(*one, &all))
            .collect();
        let inner = all.iter().filter(|one| !awaiting.contains(one));
        let places = inner.filter_map(|one| {
            let at = self.own_field(*one, AT)?;
            let function = self.own_field(*one, FUNCTION)?;
            self.place_in(function, self.bytecodes(function), Some(at))
        });
        Some(places.collect())
    }

    /// Tells of each place of the heap its word, and what lies behind it.
    fn search(&self, mut tell: impl FnMut(u64, u64, &[u8])) {
        let maps = self.names.input().maps.iter().flat_map(Maps::all);
        let heap = maps.filter(|one| one.inode == 0 && one.writable && one.path.is_empty());
        let mut left = MOST;
        let mut bytes = vec![0; PART as usize];
        for map in heap {
            for begin in (map.start..map.end).step_by(PART as usize) {
                let size = (map.end - begin).min(PART);
                left = left.saturating_sub(size);
                if left == 0 {
                    return;
                }
                let got = self.memory.read(begin, &mut bytes[..size as usize]);
                for at in (0..got & !7).step_by(8) {
                    let word = bytes[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
                    tell(begin + at as u64, word, &bytes[at..got]);
                }
            }
        }
    }

    /// A field behind those that each object of JavaScript has.
    fn own_field(&self, object: u64, number: u64) -> Option<u64> {
        let last = self.place(object, "JSObject__elements__Object")?;
        self.memory.word(last.wrapping_add((number + 1) * WORD))
    }

    fn is_suspended(&self, object: u64) -> bool {
        let is_pending = || {
            let function = self.own_field(object, FUNCTION)?;
            self.field(function, "JSFunction__shared__SharedFunctionInfo")?;
            // One that runs, or is over, has a negative number.
            let continues = self.small(self.own_field(object, CONTINUES)?)?;
            let promise = self.own_field(object, PROMISE)?;
            let flags = self.small(self.own_field(promise, FLAGS)?)?;
            Some(continues < 1 << 20 && self.is(promise, PENDING) && flags & STATE == 0)
        };
        is_pending() == Some(true)
    }

    /// Which of these awaits this one.
    fn awaiting(&self, one: u64, all: &[u64]) -> Option<u64> {
        let mark = self.constant("HeapObjectTag")?;
        let mask = self.constant("HeapObjectTagMask")?;
        let promise = self.own_field(one, PROMISE)?;
        let mut near = vec![self.own_field(promise, REACTIONS)?];
        for _ in 0..STEPS {
            let found = near.iter().find(|at| **at != one && all.contains(at));
            if found.is_some() {
                return found.copied();
            }
            let objects = near.iter().filter(|at| **at & mask == mark);
            let words = objects.flat_map(|at| {
                let begin = at.wrapping_sub(mark);
                let word = move |number| self.memory.word(begin.wrapping_add(number * WORD));
                (1..NEAR).filter_map(word)
            });
            near = words.collect();
        }
        None
    }
}
