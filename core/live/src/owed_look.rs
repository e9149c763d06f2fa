// SPDX-License-Identifier: MIT
//! Where each other thread stands, and which stores to a word are ahead of it.
//!
//! In: the registers and the memory of a thread. Out: the nearest store to each word, and whether
//! it is certain that it is one. Of a store whose address is not known yet, a pointer to the object
//! that the thread holds, or the field that the loop reads, has to agree.

use flagfinder_analysis::runtime::is_runtime_symbol;
use flagfinder_code::{CodeLimits, CodeReader, Frame, Names, Store};
use flagfinder_flags::FlagKind;
use flagfinder_replica::ThreadState;
use rustc_hash::FxHashSet;

use crate::candidate::Candidate;
use crate::others::{Other, Process};
use crate::stack;

const FRAMES: usize = 64;
/// Most instructions that are followed: of one thread, and of all.
const FOLLOWED: usize = 40_000;
pub(crate) const FOLLOWED_OF_ALL: usize = 600_000;
const DEPTH: u32 = 4;

/// A word that a flag names.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub flag: usize,
    pub address: u64,
    pub bytes: usize,
    /// The value that it holds, and the value that the loop asks for.
    pub now: Option<u64>,
    pub exit: Option<u64>,
    /// A thread sleeps on this value (futex(2)): any other ends that.
    pub asleep_on: Option<u64>,
    /// How the loop reads it: the displacement from a base register, and the module.
    pub field: Option<(u64, usize)>,
    pub module: Option<String>,
    pub is_global: bool,
    /// The code that reads it is of a standard library.
    pub of_library: bool,
}

/// Another thread at one moment.
pub(crate) struct Seen<'a> {
    pub other: &'a Other,
    pub state: ThreadState,
    pub frames: Vec<Frame>,
    /// By number of the word: the nearest store to it that is ahead, and whether its address is
    /// known to be the word's.
    pub stores: Vec<Option<(Store, bool)>>,
}

/// The word of a flag, if it has one.
pub(crate) fn target(
    at: usize,
    flag: &Candidate,
    names: &Names,
    reader: &mut CodeReader,
) -> Option<Target> {
    let pc = flag.reader(names);
    let field = pc.and_then(|pc| reader.field(pc));
    Some(Target {
        flag: at,
        address: flag.address()?,
        bytes: flag.bytes()?,
        now: flag.flag.value.spin,
        exit: flag.flag.value.exit,
        asleep_on: None,
        field,
        module: flag
            .flag
            .readers
            .first()
            .and_then(|read| read.module.clone()),
        is_global: flag.flag.kind == FlagKind::Global,
        of_library: pc.is_some_and(|pc| names.code(pc).is_standard_library()),
    })
}

impl Target {
    fn is_at(&self, address: u64, bytes: usize) -> bool {
        address < self.address + self.bytes as u64 && self.address < address + bytes.max(1) as u64
    }

    /// Is it a store in the loop's module through a pointer to an object that begins so far before
    /// the word?
    fn is_reached(&self, names: &Names, store: &Store, held: &FxHashSet<u64>) -> bool {
        let fits = store.address.is_none() && store.bytes == self.bytes && self.changes(store);
        let reached = store
            .displacement
            .is_some_and(|distance| held.contains(&distance));
        fits && reached && self.is_of_module(names, store)
    }

    fn changes(&self, store: &Store) -> bool {
        self.value(store)
            .is_none_or(|value| Some(value) != self.now)
    }

    fn is_of_module(&self, names: &Names, store: &Store) -> bool {
        let module = names
            .module_place(store.pc)
            .map(|(module, _)| &*module.name);
        module == self.module.as_deref()
    }

    /// A store whose address is not known: a program has its own copies of a standard library's
    /// code, and its objects have fields at the same distances. So have those of Go's scheduler.
    fn may_be_its(&self, names: &Names, store: &Store) -> bool {
        let code = names.code(store.pc);
        let of_scheduler = code.symbol.as_deref().is_some_and(is_runtime_symbol);
        self.of_library || !(code.is_standard_library() || of_scheduler)
    }

    /// The value that a store leaves in the word; `None`: not known.
    pub fn value(&self, store: &Store) -> Option<u64> {
        (store.bytes == self.bytes).then_some(store.value?)
    }
}

/// Largest object: a pointer to its beginning counts as one to the word.
const LARGEST_OBJECT: u64 = 4096;

/// How far before the word the pointers lead that the thread holds in registers and on its stack.
fn held(state: &ThreadState, target: &Target) -> FxHashSet<u64> {
    let r = &state.registers;
    let registers = [r.rbx, r.rbp, r.r12, r.r13, r.r14, r.r15];
    let live = |at: u64| at >= r.rsp;
    let stack = state.stack.iter().flat_map(|(page, content)| {
        let words = content.chunks_exact(8).zip((*page..).step_by(8));
        let words = words.filter(|(_, at)| live(*at));
        words.map(|(word, _)| u64::from_le_bytes(word.try_into().unwrap_or_default()))
    });
    let pointers = registers.into_iter().chain(stack);
    let distances = pointers.filter_map(|pointer| target.address.checked_sub(pointer));
    distances
        .filter(|distance| *distance < LARGEST_OBJECT)
        .collect()
}

/// Where the thread stands, and which stores are ahead of it.
pub(crate) fn look<'a>(
    process: &Process,
    other: &'a Other,
    state: ThreadState,
    targets: &[Target],
    reader: &mut CodeReader,
    left: &mut usize,
) -> Seen<'a> {
    let r = &state.registers;
    // In x86 numbering.
    let registers = [
        r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11, r.r12,
        r.r13, r.r14, r.r15,
    ];
    let mut frames = process
        .names
        .frames(r.rip, registers.map(Some), process.memory, FRAMES);
    let described = frames.len() > 1;
    if !described {
        // Nothing describes this code's frames.
        let found = stack::return_addresses(r.rsp, r.rip, process.memory, process.names);
        let frame = |pc| Frame {
            pc,
            registers: [None; 16],
        };
        frames.extend(found.into_iter().map(frame));
    }
    let limits = CodeLimits {
        instructions: FOLLOWED.min(*left),
        depth: DEPTH,
    };
    let before = reader.followed();
    let stores = reader.stores_ahead(&frames, Some(r.fs_base), limits);
    *left = left.saturating_sub(reader.followed() - before);
    let nearest = targets.iter().map(|target| {
        let held = held(&state, target);
        let fits = |store: &Store| match fits(process.names, target, store) {
            // If frames were guessed, the thread may have left that code long ago.
            None | Some(false) if !described => None,
            // The thread holds a pointer that leads there.
            None | Some(false) if target.is_reached(process.names, store, &held) => target
                .may_be_its(process.names, store)
                .then_some((*store, true)),
            // A library has objects of all kinds, at any distance from a pointer.
            Some(false) => target
                .may_be_its(process.names, store)
                .then_some((*store, false)),
            other => other.map(|exact| (*store, exact)),
        };
        let found = stores.iter().filter_map(fits);
        found.min_by_key(|(store, exact)| (!exact, store.depth))
    });
    let stores = nearest.collect();
    Seen {
        other,
        state,
        frames,
        stores,
    }
}

/// Is it a store to the word, and is that certain? If its address is not known yet, its field
/// decides: the same distance from its object, the same size, in the same module.
fn fits(names: &Names, target: &Target, store: &Store) -> Option<bool> {
    if !target.changes(store) {
        return None;
    }
    match store.address {
        Some(address) => target.is_at(address, store.bytes).then_some(true),
        None => {
            let same_field = target.field == store.displacement.map(|d| (d, store.bytes));
            let plausible = !target.is_global && target.field.is_some() && same_field;
            (plausible && target.is_of_module(names, store)).then_some(false)
        }
    }
}

/// Threads with a store ahead come first, the certain ones before the others, and those that spin
/// themselves last.
pub(crate) fn order(seen: &mut [Seen]) {
    seen.sort_by_key(|seen| {
        let nearest = seen.stores.iter().flatten();
        let best = nearest.map(|(store, exact)| (!exact, store.depth)).min();
        (seen.other.polls, best.is_none(), best)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(depth: u32) -> Store {
        Store {
            pc: 0x1000,
            address: Some(0x5000),
            displacement: None,
            bytes: 4,
            value: None,
            depth,
            calls: [None; 4],
        }
    }

    #[test]
    fn threads_with_a_certain_store_ahead_come_first_and_those_that_spin_last() {
        let other = |tid, polls| Other {
            tid,
            name: String::new(),
            waits: None,
            polls,
        };
        let others = [
            (other(1, true), Some((store(0), true))),
            (other(2, false), None),
            (other(3, false), Some((store(0), false))),
            (other(4, false), Some((store(2), true))),
            (other(5, false), Some((store(1), true))),
        ];
        // SAFETY: plain numbers.
        let registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        let state = ThreadState {
            registers,
            extended: Vec::new(),
            stack: Vec::new(),
            identity: Default::default(),
            recalled: Default::default(),
        };
        let mut seen: Vec<Seen> = others
            .iter()
            .map(|(other, nearest)| Seen {
                other,
                state: state.clone(),
                frames: Vec::new(),
                stores: vec![*nearest],
            })
            .collect();
        order(&mut seen);
        let tids: Vec<u32> = seen.iter().map(|seen| seen.other.tid).collect();
        assert_eq!(tids, [5, 4, 3, 2, 1]);
    }

    #[test]
    fn a_pointer_on_the_stack_leads_to_the_word() {
        // SAFETY: plain numbers.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        registers.rsp = 0x7010;
        let mut page = Box::new([0; 4096]);
        page[0x10..0x18].copy_from_slice(&0x5000u64.to_le_bytes());
        // What lies below the stack pointer is no longer in use.
        page[0x08..0x10].copy_from_slice(&0x4ff0u64.to_le_bytes());
        let state = ThreadState {
            registers,
            extended: Vec::new(),
            stack: vec![(0x7000, page)],
            identity: Default::default(),
            recalled: Default::default(),
        };
        let (target, names) = (target(), names());
        let held = held(&state, &target);
        assert_eq!(held.iter().collect::<Vec<_>>(), [&2]);
        let through = |displacement, bytes| Store {
            address: None,
            displacement: Some(displacement),
            bytes,
            ..store(0)
        };
        assert!(target.is_reached(&names, &through(2, 4), &held));
        assert!(!target.is_reached(&names, &through(3, 4), &held));
        assert!(!target.is_reached(&names, &through(2, 8), &held));
    }

    fn names() -> Names {
        Names::new(flagfinder_code::NamesInput::default())
    }

    fn target() -> Target {
        Target {
            flag: 0,
            address: 0x5002,
            bytes: 4,
            now: Some(7),
            exit: None,
            asleep_on: None,
            field: Some((0x18, 4)),
            module: None,
            is_global: false,
            of_library: false,
        }
    }

    #[test]
    fn a_store_of_what_the_word_holds_is_none_and_a_field_needs_its_module() {
        let names = names();
        let target = target();
        let with = |value| Store { value, ..store(0) };
        assert_eq!(fits(&names, &target, &with(Some(8))), Some(true));
        assert_eq!(fits(&names, &target, &with(Some(7))), None);
        let far = Store {
            address: Some(0x5006),
            ..store(0)
        };
        assert_eq!(fits(&names, &target, &far), None);
        let field = Store {
            address: None,
            displacement: Some(0x18),
            ..store(0)
        };
        assert_eq!(fits(&names, &target, &field), Some(false));
        let other_field = Store {
            displacement: Some(0x10),
            ..field
        };
        assert_eq!(fits(&names, &target, &other_field), None);
        let elsewhere = Target {
            module: Some("program".into()),
            ..target
        };
        assert_eq!(fits(&names, &elsewhere, &field), None);
    }
}
