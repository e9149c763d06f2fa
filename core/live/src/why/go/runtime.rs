// SPDX-License-Identifier: MIT
//! Where Go's runtime keeps its goroutines, found by their shape: no symbol is needed.
//!
//! In: the writable data of a Go program. Out: the list of all goroutines (`runtime.allgs`), the
//! texts of their reasons to wait, and the distances of the fields that differ between versions of
//! Go. Source: Go's `runtime/runtime2.go`, versions 1.18 to 1.26. A `runtime.g` begins with the
//! bounds of its stack and holds its own address among the registers with which it goes on.

use std::ops::Range;

use flagfinder_code::AddressSpace;

/// Most goroutines that are read.
const MOST: usize = 4096;
/// Bytes of data that are kept, and that are looked at: Go's linker makes no more than 2 GB, most
/// of which a program may never have written.
const KEPT: u64 = 64 << 20;
const LOOKED_AT: u64 = 4 << 30;
const AT_ONCE: u64 = 64 << 10;
const FRONT: u64 = 16;
/// Where a `runtime.g` of any version keeps these.
const STACK_END: u64 = 8;
const DEFERRED: u64 = 40;
/// Where its stack has to grow.
pub const GUARD: u64 = 16;
pub const MACHINE: u64 = 48;
const SP: u64 = 56;
const PC: u64 = 64;
const ITSELF: u64 = 72;
/// Where it may keep its frame pointer, and its number.
const FRAMES: [u64; 2] = [96, 104];
const NUMBERS: Range<u64> = 120..240;
/// What lies beside the number: the state in front of it, the reason behind it.
const STATE: u64 = 8;
const REASON: u64 = 24;
/// Where a deferred call keeps its function, and the next one (from Go 1.22 on).
const CLOSURE: u64 = 24;
const NEXT_DEFERRED: u64 = 32;
const MOST_DEFERRED: usize = 16;
/// Where a `runtime.m` may keep the id of its thread.
const THREADS: [u64; 2] = [64, 72];
/// States, and a bit that the collector may add.
const SCANNED: u64 = 0x1000;
const LAST_STATE: u64 = 15;
/// Texts with which the list of reasons begins, behind an empty one.
const REASONS: [&str; 2] = ["GC assist marking", "IO wait"];
const LONGEST_REASON: u64 = 64;

/// What a goroutine does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Ready,
    Runs,
    InCall,
    Waits,
    /// Or never begun.
    Over,
}

/// A goroutine as the runtime keeps it.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Of its `runtime.g`.
    pub address: u64,
    pub id: u64,
    pub state: State,
    /// As the runtime calls it: `chan send`. Empty where it does not wait.
    pub reason: String,
    pub pc: u64,
    pub frame: u64,
    /// The lower end of its stack.
    pub begin: u64,
    /// Where its state is kept.
    pub state_at: u64,
    /// Its stack, from the innermost call on.
    pub stack: Range<u64>,
    /// The thread that runs it, as the process itself counts.
    pub thread: Option<u32>,
}

impl Kept {
    /// Is it in that state still, and would go on there?
    pub fn is_as_it_was(&self, memory: &dyn AddressSpace) -> bool {
        let word = |offset: u64| memory.word(self.address + offset);
        let now = memory.number(self.state_at, 4).map(state);
        now == Some(self.state) && word(PC) == Some(self.pc) && word(SP) == Some(self.stack.start)
    }
}

/// `threads`: ids, as the process itself counts.
pub fn goroutines(memory: &dyn AddressSpace, data: &Data, threads: &[u32]) -> Option<Vec<Kept>> {
    let list = data.list(memory)?;
    let number = list.number(memory)?;
    let frame = list.frame(memory, number)?;
    let reasons = data.reasons(memory);
    let thread = list.thread(memory, number, threads);
    let kept = |address: &u64| {
        let field = |offset: u64, bytes: usize| memory.number(address.checked_add(offset)?, bytes);
        let state = state(field(number - STATE, 4)?);
        let reason = || {
            text(
                memory,
                reasons?.checked_add(field(number + REASON, 1)? * 16)?,
            )
        };
        let machine = field(MACHINE, 8).filter(|machine| *machine != 0);
        let id = machine
            .zip(thread)
            .and_then(|(machine, at)| memory.number(machine.checked_add(at)?, 4));
        Some(Kept {
            address: *address,
            id: field(number, 8)?,
            state,
            reason: match state {
                State::Waits => reason().unwrap_or_default(),
                _ => String::new(),
            },
            pc: field(PC, 8)?,
            frame: field(frame, 8)?,
            begin: field(0, 8)?,
            state_at: *address + (number - STATE),
            stack: field(SP, 8)?..field(STACK_END, 8)?,
            thread: id.and_then(|id| u32::try_from(id).ok()),
        })
    };
    Some(list.all.iter().filter_map(kept).collect())
}

/// A function that is called at the end of the one that deferred it.
#[derive(Clone, Copy, Debug)]
pub struct Deferred {
    /// What it refers to lies there.
    pub closure: u64,
    pub begins: u64,
}

/// The deferred functions that are still to be called. Calls that the compiler placed
/// in the function itself are not among them.
pub fn deferred(memory: &dyn AddressSpace, one: &Kept) -> Vec<Deferred> {
    let mut found = Vec::new();
    let mut at = memory.word(one.address + DEFERRED);
    while let Some(entry) = at.filter(|entry| *entry != 0 && found.len() < MOST_DEFERRED) {
        let closure = memory.word(entry.wrapping_add(CLOSURE));
        found.extend(closure.and_then(|closure| {
            let begins = memory.word(closure)?;
            Some(Deferred { closure, begins })
        }));
        at = memory.word(entry.wrapping_add(NEXT_DEFERRED));
    }
    found
}

fn state(number: u64) -> State {
    match number & !SCANNED {
        1 => State::Ready,
        2 => State::Runs,
        3 => State::InCall,
        4 | 10 => State::Waits,
        8 | 9 => State::Ready,
        _ => State::Over,
    }
}

/// Words of the program's data, with their addresses: stretches in which something was written.
pub struct Data {
    parts: Vec<(u64, Vec<u64>)>,
}

impl Data {
    /// `extents`: of the program's writable data.
    pub fn read(memory: &dyn AddressSpace, extents: &[Range<u64>]) -> Data {
        let (mut parts, mut kept, mut looked_at) = (Vec::<(u64, Vec<u64>)>::new(), 0, 0);
        let (mut bytes, zeroes) = (vec![0; AT_ONCE as usize], vec![0; AT_ONCE as usize]);
        for extent in extents {
            let mut at = extent.start.next_multiple_of(8);
            let mut is_next = false;
            while at < extent.end && kept < KEPT && looked_at < LOOKED_AT {
                let bytes = &mut bytes[..(extent.end - at).min(AT_ONCE) as usize];
                let got = memory.read(at, bytes);
                if bytes[..got] != zeroes[..got] {
                    if !is_next {
                        // What begins with zeroes may begin in front of it.
                        let front = (at - extent.start).min(FRONT) & !7;
                        parts.push((at - front, vec![0; front as usize / 8]));
                    }
                    let words = bytes[..got].chunks_exact(8);
                    let words = words.map(|eight| eight.try_into().map_or(0, u64::from_le_bytes));
                    parts
                        .last_mut()
                        .into_iter()
                        .for_each(|(_, part)| part.extend(words.clone()));
                    kept += got as u64;
                    is_next = true;
                } else {
                    is_next = false;
                }
                looked_at += got as u64;
                if got < bytes.len() {
                    break;
                }
                at += got as u64;
            }
        }
        Data { parts }
    }

    /// Addresses that hold this word, which is not 0.
    pub fn places_of(&self, value: u64) -> Vec<u64> {
        let places = self.parts.iter().flat_map(|(begin, words)| {
            let held = words.iter().zip((*begin..).step_by(8));
            held.filter(|(word, _)| **word == value)
        });
        places.map(|(_, at)| at).collect()
    }

    /// All words that were kept, with their addresses.
    pub fn all(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let parts = self.parts.iter();
        parts.flat_map(|(begin, words)| (*begin..).step_by(8).zip(words.iter().copied()))
    }

    /// The longest slice of goroutines: the first may be a copy of a moment ago.
    fn list(&self, memory: &dyn AddressSpace) -> Option<List> {
        let slices = self.parts.iter().flat_map(|(_, words)| words.windows(3));
        let is_slice = |slice: &&[u64]| {
            let [first, length, room] = slice[..] else {
                return false;
            };
            first != 0 && first % 8 == 0 && (1..=room).contains(&length) && room < 1 << 32
        };
        let all = slices.filter(is_slice).filter(|slice| {
            let samples = [0, slice[1] / 2, slice[1] - 1];
            samples.iter().all(|at| {
                let address = slice[0].checked_add(at * 8).and_then(|at| memory.word(at));
                address.is_some_and(|address| is_goroutine(memory, address))
            })
        });
        let longest = all.max_by_key(|slice| slice[1])?;
        let count = longest[1].min(MOST as u64);
        let address = |index: u64| memory.word(longest[0].checked_add(index * 8)?);
        let all = (0..count)
            .filter_map(address)
            .filter(|one| is_goroutine(memory, *one));
        Some(List { all: all.collect() })
    }

    /// Where the texts of reasons begin.
    fn reasons(&self, memory: &dyn AddressSpace) -> Option<u64> {
        let [second, third] = REASONS;
        let lengths = [second.len() as u64, third.len() as u64];
        self.parts.iter().find_map(|(begin, words)| {
            let at = words.windows(6).enumerate().find(|(index, six)| {
                let place = begin + *index as u64 * 8;
                let is_text = |at: u64, wanted| text(memory, at).as_deref() == Some(wanted);
                six[1] == 0
                    && [six[3], six[5]] == lengths
                    && is_text(place + 16, second)
                    && is_text(place + 32, third)
            });
            at.map(|(index, _)| begin + index as u64 * 8)
        })
    }
}

/// A `runtime.g` knows its own address.
pub fn is_goroutine(memory: &dyn AddressSpace, address: u64) -> bool {
    let word = |offset: u64| memory.word(address.checked_add(offset)?);
    let is_itself = address % 8 == 0 && address != 0 && word(ITSELF) == Some(address);
    is_itself
        && word(0)
            .zip(word(STACK_END))
            .is_some_and(|(begin, end)| begin <= end)
}

/// Addresses of all goroutines, the first of the program first.
struct List {
    all: Vec<u64>,
}

impl List {
    /// The distance of a goroutine's number: the first has 1, and no two have the same.
    fn number(&self, memory: &dyn AddressSpace) -> Option<u64> {
        let at = |offset: u64, bytes: usize| {
            let all = self.all.iter();
            all.map(move |address| memory.number(address.checked_add(offset)?, bytes))
                .collect::<Option<Vec<u64>>>()
        };
        NUMBERS.step_by(8).find(|offset| {
            let is_state = |state: &u64| state & !SCANNED <= LAST_STATE;
            let states = at(offset - STATE, 4).is_some_and(|all| all.iter().all(is_state));
            states
                && at(*offset, 8).is_some_and(|mut numbers| {
                    let first = numbers.first() == Some(&1);
                    numbers.sort_unstable();
                    first && numbers.windows(2).all(|pair| pair[0] < pair[1])
                })
        })
    }

    /// The distance of the frame pointer: of those that wait it lies in their stacks.
    fn frame(&self, memory: &dyn AddressSpace, number: u64) -> Option<u64> {
        let word = |address: &u64, offset: u64| memory.word(address.checked_add(offset)?);
        let waits = |address: &&u64| {
            let state = memory.number(**address + number - STATE, 4);
            state.is_some_and(state_waits)
        };
        let waiting: Vec<&u64> = self.all.iter().filter(waits).collect();
        let fits = |offset: u64| {
            let within = |address: &&&u64| {
                let bounds = word(address, 0).zip(word(address, STACK_END));
                word(address, offset)
                    .zip(bounds)
                    .is_some_and(|(frame, (begin, end))| (begin..end).contains(&frame))
            };
            waiting.iter().filter(within).count()
        };
        FRAMES.into_iter().max_by_key(|offset| fits(*offset))
    }

    /// The distance of a thread's id in the `runtime.m` that a goroutine has.
    fn thread(&self, memory: &dyn AddressSpace, number: u64, threads: &[u32]) -> Option<u64> {
        let machine = |address: &u64| {
            // Of those that are over, one may belong to no thread.
            let known = memory.number(address.checked_add(number - STATE)?, 4)?;
            let runs = matches!(state(known), State::Runs | State::InCall);
            let machine = runs.then(|| memory.word(address.checked_add(MACHINE)?))?;
            machine.filter(|machine| *machine != 0)
        };
        let machines: Vec<u64> = self.all.iter().filter_map(machine).collect();
        let is_thread = |at: Option<u64>| {
            let id = at
                .and_then(|at| memory.word(at))
                .and_then(|id| u32::try_from(id).ok());
            id.is_some_and(|id| threads.contains(&id))
        };
        let fits = |offset: &u64| {
            machines
                .iter()
                .all(|machine| is_thread(machine.checked_add(*offset)))
        };
        THREADS
            .into_iter()
            .find(|offset| !machines.is_empty() && fits(offset))
    }
}

fn state_waits(number: u64) -> bool {
    state(number) == State::Waits
}

/// A Go string.
fn text(memory: &dyn AddressSpace, at: u64) -> Option<String> {
    let (first, length) = (memory.word(at)?, memory.word(at.checked_add(8)?)?);
    let mut bytes = [0; LONGEST_REASON as usize];
    let bytes = bytes.get_mut(..usize::try_from(length).ok()?)?;
    (memory.read(first, bytes) == bytes.len()).then(|| String::from_utf8_lossy(bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::super::tests::Words;
    use super::*;

    const DATA: Range<u64> = 0x2000..0x2080;

    /// Two goroutines as a version keeps them: where their frame pointers and numbers lie.
    fn program(frame: u64, number: u64) -> Words {
        let one = |address: u64, id: u64| {
            let empty = (0..64).map(move |at| (address + at * 8, 0));
            let fields = [
                (0, 0x7000),
                (STACK_END, 0x8000),
                (SP, 0x7100),
                (PC, 0x400),
                (ITSELF, address),
                (frame, 0x7200),
                (number - STATE, 4 | SCANNED),
                (number, id),
                (number + REASON, 2),
            ];
            empty.chain(fields.map(move |(at, word)| (address + at, word)))
        };
        let list = [
            (0x2000, 0x3000),
            (0x2008, 2),
            (0x2010, 4),
            (0x3000, 0x4000),
            (0x3008, 0x5000),
        ];
        let old = [(0x2020, 0x3000), (0x2028, 1), (0x2030, 1)];
        let texts = [
            (0x6000, *b"GC assis"),
            (0x6008, *b"t markin"),
            (0x6010, *b"gIO wait"),
        ];
        let texts = texts.map(|(at, eight)| (at, u64::from_le_bytes(eight)));
        let reasons = [
            (0x2040, 0),
            (0x2048, 0),
            (0x2050, 0x6000),
            (0x2058, 17),
            (0x2060, 0x6011),
            (0x2068, 7),
        ];
        let data = (0..16).map(|at| (0x2000 + at * 8, 0));
        let data = data.chain(list).chain(old).chain(reasons).chain(texts);
        Words::from_iter(data.chain(one(0x4000, 1)).chain(one(0x5000, 18)))
    }

    #[test]
    fn goroutines_are_found_by_their_shape_in_each_version() {
        for (frame, number) in [(104, 152), (104, 160), (96, 152), (96, 160)] {
            let memory = program(frame, number);
            let found = goroutines(&memory, &Data::read(&memory, &[DATA]), &[]).unwrap();
            let told = found
                .iter()
                .map(|one| (one.id, one.state, &*one.reason, one.frame));
            let expected = |id| (id, State::Waits, "IO wait", 0x7200);
            assert!(told.eq([expected(1), expected(18)]), "{found:?}");
            assert_eq!(found[0].stack, 0x7100..0x8000);
        }
    }

    #[test]
    fn a_program_without_goroutines_has_none() {
        let empty = Words::from_iter((0..16).map(|at| (0x2000 + at * 8, 0x2000)));
        for extents in [&[DATA][..], &[]] {
            assert!(goroutines(&empty, &Data::read(&empty, extents), &[]).is_none());
        }
    }

    #[test]
    fn of_data_that_nobody_wrote_nothing_is_kept() {
        /// Zeroes without an end, but for one word.
        struct Zeroes;
        const AT: u64 = 1 << 26;
        impl AddressSpace for Zeroes {
            fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
                buffer.fill(0);
                let word = AT.checked_sub(address).and_then(|at| {
                    let at = usize::try_from(at).ok()?;
                    buffer.get_mut(at..at + 8)
                });
                if let Some(word) = word {
                    word.copy_from_slice(&7u64.to_le_bytes());
                }
                buffer.len()
            }
        }
        let data = Data::read(&Zeroes, std::slice::from_ref(&(0x1000..2 * AT)));
        assert_eq!(data.places_of(7), [AT]);
        let kept = data.parts.iter().map(|(_, words)| words.len());
        assert!(kept.sum::<usize>() < 1 << 16);
    }

    #[test]
    fn so_much_data_is_kept_and_no_more() {
        struct Ones;
        impl AddressSpace for Ones {
            fn read(&self, _: u64, buffer: &mut [u8]) -> usize {
                buffer.fill(1);
                buffer.len()
            }
        }
        let extents: Vec<Range<u64>> = (1..9).map(|n| n << 32..(n << 32) + KEPT).collect();
        let data = Data::read(&Ones, &extents);
        let kept: usize = data.parts.iter().map(|(_, words)| words.len()).sum();
        assert!(kept as u64 * 8 <= KEPT + AT_ONCE);
    }
}
