//! Gathering evidence from traces: one pass over the normal run for what the same
//! instructions read and where they went, one pass over each run for who stored there.

use flagfinder_code::{CodeMap, Names};
use flagfinder_trace::{Result, Thread};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::analysis::Analysis;
use crate::counterpart::same_home;
use crate::decoded::Decoded;
use crate::evaluator::Evaluator;
use crate::evidence::{Outside, Store};
use crate::frames::OpenCalls;
use crate::replayer::{replay, DecodedBlocks, Visitor};
use crate::value::Machine;
use crate::window::Window;

/// Addresses remembered for one candidate of the normal run.
const ADDRESSES: usize = 64;
/// Call sites told of a writer.
const STACK: usize = 4;

/// Bytes of values walked at a long thread's beginning and end.
const HEAD_BYTES: u64 = 32 << 20;
const TAIL_BYTES: u64 = 64 << 20;

/// A process of one run, ready for passes.
pub struct Run<'r> {
    pub code: &'r CodeMap<'r>,
    pub blocks: &'r DecodedBlocks<'r>,
}

impl Run<'_> {
    fn threads(&self) -> &[Thread] {
        self.code.process().threads()
    }

    /// A thread that waited for long has far more values than tell something: of such a
    /// one only the beginning and the end are walked. Whether all of it was.
    fn walk<V: Visitor>(&self, thread: &Thread, visitor: &mut V) -> Result<bool> {
        let mut spans = thread.value_spans();
        let whole = spans.iter().map(|span| span.bytes).sum::<u64>() <= HEAD_BYTES + TAIL_BYTES;
        if !whole {
            let tail = thread.value_tail(TAIL_BYTES);
            let before = tail.map_or(u64::MAX, |tail| tail.start_pos);
            spans.retain(|span| span.start_pos < before);
            let mut left = HEAD_BYTES;
            for span in &mut spans {
                let section = (span.bytes / span.sections.max(1) as u64).max(1);
                span.sections = span.sections.min((left / section) as usize);
                left -= left.min(span.bytes);
            }
            spans.retain(|span| span.sections > 0);
            spans.extend(tail);
        }
        for span in spans {
            replay(self.blocks, thread, &span, visitor)?;
        }
        Ok(whole)
    }
}

/// Adds what a normal run says. `names` are the spin run's and the normal run's.
///
/// # Errors
/// When a trace cannot be read.
pub fn from_normal(
    window: &Window,
    analysis: &Analysis,
    spin: &Run,
    normal: &Run,
    names: (&Names, &Names),
    outside: &mut Outside,
) -> Result<()> {
    let translate = |pc: u64| {
        let place = spin.code.place(pc);
        place.module.as_ref()?;
        normal.code.address(&place)
    };
    let mut reads = Reads::default();
    for (index, candidate) in analysis.candidates.iter().enumerate() {
        for pc in candidate.readers.iter().filter_map(|&pc| translate(pc)) {
            reads.loads.entry(pc).or_default().push(index);
        }
    }
    for exit in &analysis.exits {
        let pc = window.pc(exit.step);
        if let (Some(at), Some(other)) = (translate(pc), translate(exit.other)) {
            reads.exits.insert(at, (pc, other));
        }
    }
    reads
        .read
        .resize_with(analysis.candidates.len(), Read::default);
    let mut any = false;
    for thread in normal.threads() {
        reads.tid = thread.tid;
        any |= !thread.value_spans().is_empty();
        normal.walk(thread, &mut reads)?;
    }
    outside.normal_searched |= any;
    for (pc, count) in &reads.other_way {
        *outside.other_way.entry(*pc).or_default() += count;
    }
    let mut stores = Stores::default();
    for (index, candidate) in analysis.candidates.iter().enumerate() {
        let read = &reads.read[index];
        let counterpart = outside.counterparts.entry(candidate.address).or_default();
        counterpart.seen |= !read.addresses.is_empty();
        let mut addresses = read.addresses.iter().map(|(address, _)| *address);
        let same = addresses.find(|&at| same_home(names.0, candidate.address, names.1, at));
        counterpart.address = counterpart
            .address
            .or(same)
            .or(read.leaving.map(|(address, _)| address))
            .or(read.addresses.last().map(|(address, _)| *address));
        let left_with = same.and_then(|at| read.left_with.get(&at).copied());
        counterpart.exit_value = counterpart
            .exit_value
            .or(left_with)
            .or(read.leaving.map(|(_, value)| value));
        for (address, tid) in &read.addresses {
            stores.watch(*address, candidate.bytes, candidate.address, *tid);
        }
    }
    stores.search(normal, true, outside)
}

/// Adds who stored to the candidates in the spin run; `tid` is their reader.
///
/// # Errors
/// When a trace cannot be read.
pub fn from_spin(analysis: &Analysis, spin: &Run, tid: u32, outside: &mut Outside) -> Result<()> {
    let mut stores = Stores::default();
    for candidate in &analysis.candidates {
        stores.watch(candidate.address, candidate.bytes, candidate.address, tid);
    }
    outside.spin_searched = true;
    stores.search(spin, false, outside)
}

#[derive(Default)]
struct Read {
    /// (address, reading thread), oldest first.
    addresses: Vec<(u64, u32)>,
    /// Address and value when an exit was last left by the other way.
    leaving: Option<(u64, u64)>,
    /// By address: its value when an exit was last left with it as the last one read.
    left_with: FxHashMap<u64, u64>,
    last: Option<(u64, u64)>,
}

#[derive(Default)]
struct Reads {
    /// By pc in this run: candidates it reads.
    loads: FxHashMap<u64, Vec<usize>>,
    /// By pc in this run: (pc in the spin run, the way the spin run never goes).
    exits: FxHashMap<u64, (u64, u64)>,
    read: Vec<Read>,
    other_way: FxHashMap<u64, u64>,
    tid: u32,
}

impl Visitor for Reads {
    fn after(&mut self, code: &Decoded, evaluator: &Evaluator) {
        let Some(candidates) = self.loads.get(&code.pc()) else {
            return;
        };
        let Some(access) = evaluator.accesses().iter().find(|a| !a.write) else {
            return;
        };
        let Some(address) = access.address else {
            return;
        };
        for &index in candidates {
            let read = &mut self.read[index];
            if !read.addresses.iter().any(|(known, _)| *known == address) {
                if read.addresses.len() >= ADDRESSES {
                    read.addresses.remove(0);
                }
                read.addresses.push((address, self.tid));
            }
            if let Some(value) = access.value.get((access.bytes * 8).min(64)) {
                read.last = Some((address, value));
            }
        }
    }

    fn branch(&mut self, code: &Decoded, next: u64) {
        let Some((spin_pc, other)) = self.exits.get(&code.pc()) else {
            return;
        };
        if *other == next {
            *self.other_way.entry(*spin_pc).or_default() += 1;
            for read in &mut self.read {
                read.leaving = read.last.or(read.leaving);
                if let Some((address, value)) = read.last {
                    read.left_with.insert(address, value);
                }
            }
        }
    }
}

/// Who stores to watched addresses.
#[derive(Default)]
struct Stores {
    /// Aligned 8 bytes that hold watched ones.
    lines: FxHashSet<u64>,
    /// (address, bytes, candidate's address in the spin run, reading thread).
    watched: Vec<(u64, u32, u64, u32)>,
    tid: u32,
    /// By (candidate, thread, pc).
    found: FxHashMap<(u64, u32, u64), Store>,
    calls: OpenCalls,
}

impl Stores {
    fn watch(&mut self, address: u64, bytes: u32, candidate: u64, reader: u32) {
        let end = address.saturating_add(u64::from(bytes.max(1)) - 1);
        self.lines.extend(address >> 3..=end >> 3);
        self.watched.push((address, bytes, candidate, reader));
    }

    fn search(mut self, run: &Run, normal: bool, outside: &mut Outside) -> Result<()> {
        if self.watched.is_empty() {
            return Ok(());
        }
        for thread in run.threads() {
            self.tid = thread.tid;
            self.calls = OpenCalls::default();
            let whole = run.walk(thread, &mut self)?;
            let reads = self
                .watched
                .iter()
                .any(|(.., reader)| *reader == thread.tid);
            if normal && !whole && !reads {
                // It may have been the writer, in the part that was left out.
                outside.normal_searched = false;
            }
        }
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
        for ((candidate, ..), mut store) in found {
            store.normal = normal;
            let list = outside.stores.entry(candidate).or_default();
            if list.len() < 12 {
                list.push(store);
            }
        }
        Ok(())
    }
}

impl Visitor for Stores {
    fn before(&mut self, code: &Decoded, machine: &Machine) {
        self.calls.step(code, machine);
    }

    fn after(&mut self, code: &Decoded, evaluator: &Evaluator) {
        for access in evaluator.accesses() {
            let Some(address) = access.address.filter(|_| access.write) else {
                continue;
            };
            let end = address.saturating_add(u64::from(access.bytes.max(1)) - 1);
            let near = if end >> 3 <= (address >> 3) + 8 {
                (address >> 3..=end >> 3).any(|line| self.lines.contains(&line))
            } else {
                true
            };
            if near {
                self.hit(code, evaluator, address, access.bytes, access.value);
            }
        }
    }
}

impl Stores {
    fn hit(
        &mut self,
        code: &Decoded,
        evaluator: &Evaluator,
        address: u64,
        bytes: u32,
        stored: crate::value::Value,
    ) {
        let rsp = evaluator.machine.registers[4].get(64).unwrap_or(0);
        for &(at, size, candidate, reader) in &self.watched {
            if address >= at + u64::from(size) || at >= address + u64::from(bytes) {
                continue;
            }
            let value = if at >= address && bytes <= 8 {
                let shift = (at - address) as u32 * 8;
                stored
                    .shift_right(shift)
                    .get((size * 8).min(bytes * 8 - shift))
            } else {
                None
            };
            let foreign = reader != self.tid;
            let stack = self.calls.returns(rsp).take(STACK).collect();
            let store = self
                .found
                .entry((candidate, self.tid, code.pc()))
                .or_insert(Store {
                    normal: false,
                    tid: self.tid,
                    pc: code.pc(),
                    value,
                    count: 0,
                    foreign,
                    stack: Vec::new(),
                });
            store.count += 1;
            store.value = value;
            store.stack = stack;
            store.foreign |= foreign;
        }
    }
}
