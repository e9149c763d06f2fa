// SPDX-License-Identifier: MIT
//! A thread as it would go on with a goroutine that gave its turn away.
//!
//! A goroutine that polls calls `runtime.Gosched` or `time.Sleep` in each round: another thread may
//! take it up each time, and most threads are in the scheduler at a given moment. In: a thread of a
//! Go program, and memory. Out: where the thread schedules, states of it, in each of which it comes
//! back from such a call of one goroutine. A copy that goes on from there finds that such calls
//! return at once, so that it shows the goroutine's rounds alone. Source: `execute` and `gogo` of
//! Go's runtime. Blind
//! spots: what such a loop asks of the scheduler; goroutines whose stack another thread grows.

use std::collections::BTreeMap;

use flagfinder_code::{AddressSpace, Names};
use flagfinder_replica::{Page, ThreadState, PAGE};

use super::goroutine::frames;
use super::runtime::{self, Data, Kept, State, GUARD, MACHINE};

/// Functions by which a goroutine gives its turn away, and is ready again by itself; the compiler
/// puts the first into its callers. Both call others, of which these two return at once.
const GIVES_WAY: [&str; 2] = ["runtime.Gosched", "time.Sleep"];
const CLOSED: [&str; 2] = ["runtime.mcall", "time.Sleep"];
/// It waits for others: its copy ends there.
const WAITS: &str = "runtime.gopark";
/// Most goroutines that are resumed, and most that are tried for that.
const MOST: usize = 4;
const MOST_TRIED: usize = 64;
/// Bytes of a stack that are read: loops that poll have few open calls.
const STACK: u64 = 16 << 10;
/// Bytes below a thread's own pointer in which Go keeps the goroutine that it runs.
const OWN: u64 = 256;
/// From the lower end of a stack to where it has to grow.
const ROOM: u64 = 928;
/// `ret`, and `ud2`.
const RETURNS: [u8; 1] = [0xc3];
const ENDS: [u8; 2] = [0x0f, 0x0b];

/// A goroutine that has its turn again.
pub struct Resumed {
    pub id: u64,
    pub state: ThreadState,
}

/// The goroutine that it runs; or else those that gave way, and are as they were once all is read.
pub fn resumed(memory: &dyn AddressSpace, names: &Names, thread: &ThreadState) -> Vec<Resumed> {
    let found = || {
        let data = Data::read(memory, &names.go_data()?);
        let ends = (names.go_function(WAITS)?, &ENDS[..]);
        let closed = CLOSED.iter().filter_map(|name| names.go_function(name));
        let closed = closed.map(|begin| (begin, &RETURNS[..]));
        let code: Vec<(u64, &[u8])> = closed.chain([ends]).collect();
        let own = goroutine_of(memory, thread.registers.fs_base)?;
        let all = runtime::goroutines(memory, &data, &[])?;
        // The scheduler's own goroutines are not listed.
        if let Some(one) = all.iter().find(|one| one.address == own.1) {
            let mut pages = BTreeMap::new();
            change(&mut pages, memory, &code)?;
            let state = with_pages(thread.clone(), pages);
            return Some(vec![Resumed { id: one.id, state }]);
        }
        let gave = all.iter().filter(|one| gave_way(memory, names, one));
        let resumed = gave.take(MOST_TRIED).filter_map(|one| {
            let state = with(memory, thread, own, one, &code)?;
            Some(Resumed { id: one.id, state })
        });
        Some(resumed.take(MOST).collect())
    };
    found().unwrap_or_default()
}

/// One that the runtime took its turn from stands in the runtime.
fn gave_way(memory: &dyn AddressSpace, names: &Names, one: &Kept) -> bool {
    let is_ready = match one.state {
        State::Ready => true,
        State::Waits => one.reason == "sleep",
        _ => false,
    };
    let function = |(pc, _): &(u64, u64)| names.code(pc.wrapping_sub(1)).symbol;
    let is_of = |symbol: &str, name: &str| symbol.split("+0x").next() == Some(name);
    let gives = |symbol: &String| GIVES_WAY.iter().any(|name| is_of(symbol, name));
    let calls = is_ready.then(|| frames(memory, one.pc, one.frame));
    let calls: Vec<Option<String>> = calls
        .unwrap_or_default()
        .iter()
        .take(4)
        .map(function)
        .collect();
    let innermost = calls.first().and_then(Option::as_deref);
    innermost.is_some_and(|symbol| !symbol.starts_with("runtime."))
        || calls.iter().flatten().any(gives)
}

/// The goroutine that the thread runs, and where the thread keeps that: its scheduler's at most
/// moments.
fn goroutine_of(memory: &dyn AddressSpace, base: u64) -> Option<(u64, u64)> {
    base.checked_sub(OWN)?;
    let places = (1..=OWN / 8).map(|word| base - word * 8);
    let mut own = places.filter_map(|at| Some((at, memory.word(at)?)));
    own.find(|(_, goroutine)| runtime::is_goroutine(memory, *goroutine))
}

fn with(
    memory: &dyn AddressSpace,
    thread: &ThreadState,
    (place, scheduler): (u64, u64),
    one: &Kept,
    code: &[(u64, &[u8])],
) -> Option<ThreadState> {
    let mut pages = BTreeMap::new();
    let machine = memory.word(scheduler + MACHINE)?;
    let guard = one.begin.checked_add(ROOM)?;
    let mut at = one.stack.start & !(PAGE - 1);
    while at < one.stack.end.min(one.stack.start.saturating_add(STACK)) {
        page(&mut pages, memory, at)?;
        at += PAGE;
    }
    change(&mut pages, memory, code)?;
    for (at, word) in [
        (place, one.address),
        (one.address + MACHINE, machine),
        (one.address + GUARD, guard),
    ] {
        put(&mut pages, memory, at, &word.to_le_bytes())?;
    }
    if !one.is_as_it_was(memory) {
        return None;
    }
    let mut state = thread.clone();
    let registers = &mut state.registers;
    registers.rip = one.pc;
    registers.rsp = one.stack.start;
    registers.rbp = one.frame;
    registers.r14 = one.address;
    registers.orig_rax = u64::MAX;
    Some(with_pages(state, pages))
}

fn with_pages(mut state: ThreadState, pages: BTreeMap<u64, Page>) -> ThreadState {
    state.stack.retain(|(at, _)| !pages.contains_key(at));
    state.stack.extend(pages);
    state
}

/// What is executed where these functions begin.
fn change(
    pages: &mut BTreeMap<u64, Page>,
    memory: &dyn AddressSpace,
    code: &[(u64, &[u8])],
) -> Option<()> {
    let mut code = code.iter();
    code.try_for_each(|(at, bytes)| put(pages, memory, *at, bytes))
}

fn page<'a>(
    pages: &'a mut BTreeMap<u64, Page>,
    memory: &dyn AddressSpace,
    at: u64,
) -> Option<&'a mut Page> {
    use std::collections::btree_map::Entry;
    match pages.entry(at & !(PAGE - 1)) {
        Entry::Occupied(there) => Some(there.into_mut()),
        Entry::Vacant(place) => {
            let mut content: Page = Box::new([0; PAGE as usize]);
            let read = memory.read(*place.key(), &mut content[..]);
            (read == content.len()).then(|| place.insert(content))
        }
    }
}

/// Within one page.
fn put(
    pages: &mut BTreeMap<u64, Page>,
    memory: &dyn AddressSpace,
    at: u64,
    bytes: &[u8],
) -> Option<()> {
    let offset = (at % PAGE) as usize;
    let place = page(pages, memory, at)?.get_mut(offset..offset + bytes.len())?;
    place.copy_from_slice(bytes);
    Some(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const THREAD: u64 = 0x7000_0800;
    const SCHEDULER: u64 = 0x4000;
    const TASK: u64 = 0x5000;
    const CODE: u64 = 0x1230;
    const STATE_AT: u64 = TASK + 152;
    /// Where a goroutine keeps its own address, the pointer to its stack, and where it goes on.
    const ITSELF: u64 = 72;
    const SP: u64 = 56;
    const PC: u64 = 64;

    /// All pages are there, and zeroes but for some words.
    struct Memory {
        words: BTreeMap<u64, u64>,
        /// Reads of its state until the goroutine is taken up.
        looks: Cell<u32>,
    }

    impl AddressSpace for Memory {
        fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
            buffer.fill(0);
            let all = address & !7..address + buffer.len() as u64;
            for (at, word) in self.words.range(all) {
                for (byte, value) in (*at..).zip(word.to_le_bytes()) {
                    let place = byte.checked_sub(address).map(|place| place as usize);
                    if let Some(place) = place.and_then(|place| buffer.get_mut(place)) {
                        *place = value;
                    }
                }
            }
            if address == STATE_AT {
                match self.looks.get() {
                    0 => buffer[0] = 2,
                    more => self.looks.set(more - 1),
                }
            }
            buffer.len()
        }
    }

    fn program(looks: u32) -> Memory {
        let words = [
            (THREAD - 8, SCHEDULER),
            (THREAD - 16, 0x4444),
            (SCHEDULER + ITSELF, SCHEDULER),
            (SCHEDULER + MACHINE, 0x6000),
            (TASK, 0x9000),
            (TASK + 8, 0xb000),
            (TASK + ITSELF, TASK),
            (TASK + SP, 0xa010),
            (TASK + PC, CODE + 9),
            (STATE_AT, 1),
            (0xa010, 77),
        ];
        Memory {
            words: words.into(),
            looks: Cell::new(looks),
        }
    }

    fn goroutine() -> Kept {
        Kept {
            address: TASK,
            id: 7,
            state: State::Ready,
            reason: String::new(),
            pc: CODE + 9,
            frame: 0xa100,
            begin: 0x9000,
            state_at: STATE_AT,
            stack: 0xa010..0xb000,
            thread: None,
        }
    }

    fn thread() -> ThreadState {
        // SAFETY: registers are numbers.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        registers.fs_base = THREAD;
        ThreadState {
            registers,
            extended: Vec::new(),
            stack: vec![(0xa000, Box::new([9; PAGE as usize]))],
            identity: Default::default(),
            recalled: Default::default(),
        }
    }

    #[test]
    fn a_thread_takes_the_goroutine_up_and_finds_that_its_call_returns() {
        let memory = program(9);
        let own = goroutine_of(&memory, THREAD).unwrap();
        assert_eq!(own, (THREAD - 8, SCHEDULER));
        let state = with(&memory, &thread(), own, &goroutine(), &[(CODE, &RETURNS)]).unwrap();
        let registers = state.registers;
        let all = [registers.rip, registers.rsp, registers.rbp, registers.r14];
        assert_eq!(all, [CODE + 9, 0xa010, 0xa100, TASK]);
        let pages: BTreeMap<u64, Page> = state.stack.into_iter().collect();
        let word = |at: u64| {
            let place = (at % PAGE) as usize;
            let bytes = pages[&(at & !(PAGE - 1))][place..place + 8].try_into();
            u64::from_le_bytes(bytes.unwrap())
        };
        assert_eq!(word(CODE) as u8, RETURNS[0]);
        assert_eq!([word(THREAD - 8), word(TASK + MACHINE)], [TASK, 0x6000]);
        assert_eq!(word(TASK + GUARD), 0x9000 + ROOM);
        assert_eq!(word(0xa010), 77, "its stack as it is now");
    }

    #[test]
    fn one_that_another_thread_takes_up_meanwhile_is_left_to_that() {
        let memory = program(0);
        let own = goroutine_of(&memory, THREAD).unwrap();
        assert!(with(&memory, &thread(), own, &goroutine(), &[(CODE, &RETURNS)]).is_none());
    }
}
