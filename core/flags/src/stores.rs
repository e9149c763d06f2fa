// SPDX-License-Identifier: MIT
//! Who stores to watched addresses.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;

use flagfinder_machine::decoded::{Decoded, MemoryReference, Segment, RSP};
use flagfinder_machine::evaluator::{Access, Evaluator};
use flagfinder_machine::replayer::{Visitor, Wants};
use flagfinder_machine::value::Machine;
use flagfinder_trace::BlockId;
use rustc_hash::FxHashMap;

use crate::evidence::{Outside, Store};
use crate::frames::OpenCalls;
use crate::passes::Pass;

/// Most call sites that are reported of a writer.
const STACK: usize = 4;
/// Most writers that are reported of one candidate.
const WRITERS: usize = 12;

/// A candidate of one of the waiting threads: the thread's number among them, its address in the
/// spin run.
pub type CandidateKey = (usize, u64);

/// Candidate, thread and pc of the stores that are told as one.
type StoreKey = (CandidateKey, u32, u64);

/// An address that some thread reads.
struct Watched {
    address: u64,
    bytes: u32,
    candidate: CandidateKey,
    /// The thread that reads it; `None` when several do: each store is then another's for one of
    /// them.
    reader: Option<u32>,
}

/// Bits of [`Questions::coarse`].
const COARSE: u64 = 1 << 16;

#[derive(Default)]
pub struct Questions {
    /// By aligned 8 bytes that hold watched ones: which, in order.
    lines: FxHashMap<u64, Vec<usize>>,
    /// A bit for each cache line that holds watched bytes, and for others that share it: most
    /// stores hit none.
    coarse: Vec<u64>,
    watched: Vec<Watched>,
}

impl Questions {
    pub fn watch(
        &mut self,
        address: u64,
        bytes: u32,
        candidate: CandidateKey,
        reader: Option<u32>,
    ) {
        let end = end_of(address, bytes);
        for line in address >> 3..=end >> 3 {
            self.lines.entry(line).or_default().push(self.watched.len());
        }
        self.coarse.resize((COARSE / 64) as usize, 0);
        for line in address >> 6..=end >> 6 {
            self.coarse[(line % COARSE / 64) as usize] |= 1 << (line % 64);
        }
        self.watched.push(Watched {
            address,
            bytes,
            candidate,
            reader,
        });
    }

    pub fn is_empty(&self) -> bool {
        self.watched.is_empty()
    }

    /// May a store there hit something?
    #[inline]
    fn is_near(&self, address: u64, bytes: u32) -> bool {
        let end = end_of(address, bytes);
        let is_watched = |line: u64| {
            let word = self.coarse.get((line % COARSE / 64) as usize);
            word.is_some_and(|word| word >> (line % 64) & 1 == 1)
        };
        is_long(address, end)
            || (address >> 6..=end >> 6).any(is_watched)
                && (address >> 3..=end >> 3).any(|line| self.lines.contains_key(&line))
    }

    /// Those that a store there may hit, in order.
    fn near(&self, address: u64, bytes: u32) -> Cow<'_, [usize]> {
        let end = end_of(address, bytes);
        let at = |line| self.lines.get(&line).map_or(&[][..], Vec::as_slice);
        if is_long(address, end) {
            Cow::Owned((0..self.watched.len()).collect())
        } else if address >> 3 == end >> 3 {
            Cow::Borrowed(at(address >> 3))
        } else {
            let mut all: Vec<usize> = (address >> 3..=end >> 3).flat_map(at).copied().collect();
            all.sort_unstable();
            all.dedup();
            Cow::Owned(all)
        }
    }

    /// A write that can hit nothing, whatever the registers hold.
    fn misses(&self, memory: &MemoryReference) -> bool {
        let fixed = memory.base.is_none()
            && memory.index.is_none()
            && !memory.gather
            && memory.segment == Segment::Flat
            && memory.bytes > 0;
        fixed && !self.is_near(memory.displacement, u32::from(memory.bytes))
    }
}

/// The address of the last of so many bytes.
#[inline]
fn end_of(address: u64, bytes: u32) -> u64 {
    address.saturating_add(u64::from(bytes.max(1)) - 1)
}

/// Long stores (string instructions) are compared one by one.
#[inline]
fn is_long(address: u64, end: u64) -> bool {
    end >> 3 > (address >> 3) + 8
}

pub struct Stores {
    questions: Arc<Questions>,
    tid: u32,
    /// Flow position of the block that runs.
    pos: u64,
    found: FxHashMap<StoreKey, Store>,
    calls: OpenCalls,
}

impl Stores {
    pub fn new(questions: Questions) -> Self {
        Stores {
            questions: Arc::new(questions),
            tid: 0,
            pos: 0,
            found: FxHashMap::default(),
            calls: OpenCalls::default(),
        }
    }

    /// Puts what was found with the rest of the evidence, which stands by waiting thread.
    /// `normal`: the number of the normal run that was searched.
    pub fn tell(self, normal: Option<usize>, outside: &mut [Outside]) {
        let mut found: Vec<_> = self.sorted().collect();
        for (.., store) in &mut found {
            store.normal = normal.is_some();
            store.run = normal.unwrap_or(0);
        }
        // Code that many threads run (an interpreter, a lock) reads for each of them: only writers
        // that are foreign to the thread that counts come first.
        found.sort_by_key(|(waiting, candidate, store)| {
            (*waiting, *candidate, !outside[*waiting].is_foreign(store))
        });
        for (waiting, candidate, store) in found {
            let list = outside[waiting].stores.entry(candidate).or_default();
            if list.len() < WRITERS {
                list.push(store);
            }
        }
    }

    /// With waiting thread and candidate; of each candidate the most telling first.
    fn sorted(self) -> impl Iterator<Item = (usize, u64, Store)> {
        let mut found: Vec<_> = self.found.into_iter().collect();
        found.sort_by_key(|((candidate, tid, pc), store)| {
            (
                *candidate,
                !store.foreign,
                std::cmp::Reverse(store.count),
                *tid,
                *pc,
            )
        });
        let one =
            |(((waiting, candidate), ..), store): (StoreKey, Store)| (waiting, candidate, store);
        found.into_iter().map(one)
    }

    #[cfg(test)]
    pub fn told(self) -> Vec<Store> {
        self.sorted().map(|(.., store)| store).collect()
    }

    fn hit(&mut self, pc: u64, machine: &Machine, store: &Access, address: u64) {
        let rsp = machine.registers[usize::from(RSP)].get(64).unwrap_or(0);
        for &index in self.questions.near(address, store.bytes).iter() {
            let watched = &self.questions.watched[index];
            let at = watched.address;
            if address >= at + u64::from(watched.bytes) || at >= address + u64::from(store.bytes) {
                continue;
            }
            let value = if at >= address && store.bytes <= 8 {
                let shift = (at - address) as u32 * 8;
                let bits = (watched.bytes * 8).min(store.bytes * 8 - shift);
                store.value.shift_right(shift).get(bits)
            } else {
                None
            };
            let key = (watched.candidate, self.tid, pc);
            // The memory of the known store's stack is used again.
            let known = self.found.get_mut(&key);
            let mut stack = known.map_or(Vec::new(), |known| std::mem::take(&mut known.stack));
            stack.clear();
            stack.extend(self.calls.returns(rsp).take(STACK));
            let one = Store {
                normal: false,
                run: 0,
                tid: self.tid,
                pos: self.pos,
                address: at,
                pc,
                value,
                count: 1,
                varies: false,
                foreign: watched.reader != Some(self.tid),
                stack,
                in_vain: false,
            };
            put(&mut self.found, key, one);
        }
    }
}

/// Adds a later store by the same instruction.
fn put(found: &mut FxHashMap<StoreKey, Store>, key: StoreKey, later: Store) {
    match found.entry(key) {
        std::collections::hash_map::Entry::Vacant(entry) => {
            entry.insert(later);
        }
        std::collections::hash_map::Entry::Occupied(mut entry) => {
            let known = entry.get_mut();
            *known = Store {
                count: known.count + later.count,
                varies: known.varies | later.varies | (known.value != later.value),
                foreign: known.foreign | later.foreign,
                ..later
            };
        }
    }
}

impl Pass for Stores {
    fn begin(&self, tid: u32) -> Self {
        Stores {
            questions: Arc::clone(&self.questions),
            tid,
            pos: 0,
            found: FxHashMap::default(),
            calls: OpenCalls::default(),
        }
    }

    fn absorb(&mut self, later: Self) {
        for (key, store) in later.found {
            put(&mut self.found, key, store);
        }
    }

    fn is_idle(&self, code: &[Decoded]) -> bool {
        let mut memory = code.iter().flat_map(|code| &code.memory);
        memory.all(|memory| !memory.write || self.questions.misses(memory))
    }
}

impl Visitor for Stores {
    #[inline]
    fn enter(&mut self, _id: BlockId, pos: u64, _machine: &Machine) -> ControlFlow<()> {
        self.pos = pos;
        ControlFlow::Continue(())
    }

    fn before(&mut self, code: &Decoded, machine: &Machine) {
        self.calls.step(code, machine);
    }

    fn after(&mut self, code: &Decoded, evaluator: &Evaluator) {
        for access in evaluator.accesses().iter().filter(|access| access.write) {
            self.stored(code, &evaluator.machine, access);
        }
    }

    fn wants(&self) -> Wants {
        Wants::Stores
    }

    #[inline]
    fn stored(&mut self, code: &Decoded, machine: &Machine, store: &Access) {
        let near = |address: &u64| self.questions.is_near(*address, store.bytes);
        if let Some(address) = store.address.filter(near) {
            self.hit(code.pc(), machine, store, address);
        }
    }
}
