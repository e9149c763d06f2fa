// SPDX-License-Identifier: MIT
//! One window taken apart: its loop, the exits, and every word that could be the flag.

use flagfinder_code::{DataKind, Names};
use flagfinder_linux::syscalls::{self, Role};
use flagfinder_machine::Window;
use iced_x86::Mnemonic;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::carried;
use crate::circle;
use crate::compound;
use crate::condition::Condition;
use crate::dependence::Dependence;
use crate::exit::Transfer;
use crate::exit::{Exit, Source};
use crate::generated_code::Generated;
use crate::interpreter::Interpreted;
use crate::jump_table;
use crate::loop_kind::{self, LoopKind};
use crate::loop_search;
use crate::passing::Passing;
use crate::progress::Progress;
use crate::repeated_reads;
use crate::slice::Slicer;
use crate::spin_loop::SpinLoop;
use crate::way::way;

/// A word that some exit depends on.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Run-time address of its first byte.
    pub address: u64,
    /// Its size: that of the widest read.
    pub bytes: u32,
    /// Its value at the last read.
    pub value: Option<u64>,
    /// Instructions that read it for an exit.
    pub readers: Vec<u64>,
    /// A step that reads it.
    pub step: u32,
    /// Indices of exits.
    pub exits: Vec<usize>,
    /// Iterations in which it was read.
    pub rounds: u32,
    /// All these reads found the same value.
    pub steady: bool,
    /// Read by an atomic read-modify-write.
    pub atomic: bool,
    /// It holds an address near which the loop reads.
    pub followed: bool,
    /// Its address is that of some object with the low bits cleared: the head of a collector's
    /// page.
    pub of_page: bool,
    /// A count within the iteration ends at it.
    pub is_bound: bool,
    /// The instruction that reads it reads another word in most rounds (see `passing.rs`).
    pub passed: bool,
    /// What memory it lies in.
    pub kind: DataKind,
}

/// Largest object that a word points to, as far as it is read.
const OBJECT: u64 = 4096;

/// What a window shows of the loop at its end.
pub struct Analysis {
    /// The loop at the window's end.
    pub spin: SpinLoop,
    /// The ways out; the index of one here is what `exits` elsewhere means.
    pub exits: Vec<Exit>,
    /// By exit: its test, if it is understood.
    pub conditions: Vec<Option<Condition>>,
    /// By exit: which condition of the source it is a test of.
    pub compounds: Vec<usize>,
    /// By exit: other words decide it in most rounds (see `passing.rs`).
    pub passing: Vec<bool>,
    /// Words that exits depend on and that the thread does not write itself, by address.
    pub candidates: Vec<Candidate>,
    /// Steps of system calls whose result decides an exit, with those exits.
    pub calls: Vec<(u32, Vec<usize>)>,
    /// How the loop spends its time.
    pub kind: LoopKind,
    /// Words that decide exits but which the thread itself writes in the loop.
    pub own_words: Vec<u64>,
    /// In each iteration the loop stores outside the stack to a new address, or a new value: it
    /// does work.
    pub work: bool,
    /// Signs that the loop makes progress.
    pub progress: Progress,
    /// Steps that read the same values as in the round before.
    pub same_again: FxHashSet<u32>,
    /// The loop runs a program of its own (see `interpreter.rs`).
    pub interprets: bool,
    /// The program that the interpreter runs.
    pub interpreted: Interpreted,
    /// The window is that of one task of several (see `tasks.rs`).
    pub of_task: bool,
    /// The code that the program wrote as it ran.
    pub generated: Generated,
    /// Addresses of links that form a circle, which the loop walks; empty if it walks none.
    pub circle: Vec<u64>,
    /// A step by which the loop hands on a value that is new in each round: it computes.
    pub computes: Option<u32>,
    /// It pauses, yields or sleeps, as a loop does that waits.
    pub pauses: bool,
}

/// The window's loop and candidates; `None` if nothing repeats. `scans`: the word at which a scan
/// ends may keep the loop going.
pub fn analyse(window: &Window, names: &Names, preferred: &[u64], scans: bool) -> Option<Analysis> {
    let spin = loop_search::find(window, preferred)?.without_first_marks(window);
    let dependence = Dependence::new(window);
    let slicer = Slicer::new(window, &dependence, &spin);
    let exits = slicer.exits(scans, &|_, address| names.is_fixed(address));
    let conditions: Vec<Option<Condition>> = exits
        .iter()
        .map(|exit| match exit.transfer {
            Transfer::Branch => Condition::of(window, exit.step, exit.taken),
            Transfer::Jump => jump_table::condition(window, names, exit.step),
            Transfer::Call => None,
        })
        .collect();
    let own = own_writes(window, &spin);
    let passing = Passing::of(window, &spin, &exits);
    let mut collector = Collector {
        window,
        names,
        spin: &spin,
        passing: &passing,
        own: &own.bytes,
        found: FxHashMap::default(),
        own_words: Vec::new(),
    };
    let mut calls: Vec<(u32, Vec<usize>)> = Vec::new();
    for (index, exit) in exits.iter().enumerate() {
        for source in &exit.sources {
            match *source {
                Source::Load {
                    step,
                    access,
                    address_only: false,
                } => collector.add(index, step, access),
                Source::Load { .. } => {}
                Source::Syscall { step } => match calls.iter_mut().find(|c| {
                    window.pc(c.0) == window.pc(step)
                        && window.syscall_at(c.0).map(|s| s.number)
                            == window.syscall_at(step).map(|s| s.number)
                }) {
                    Some((_, users)) => users.push(index),
                    None => calls.push((step, vec![index])),
                },
            }
        }
    }
    let own_words = collector.own_words.clone();
    let mut candidates = collector.finish();
    for (step, taken) in slicer.counted() {
        let Some(test) = Condition::of(window, step, taken) else {
            continue;
        };
        for candidate in &mut candidates {
            candidate.is_bound |= test.mentions(candidate.address, candidate.bytes);
        }
    }
    let kind = loop_kind::kind(window, &spin);
    let same_again = repeated_reads::same_again(window);
    let progress = Progress::of(window, &spin, &same_again);
    let generated = Generated::of(window, &spin, names);
    let is_data = |address: u64| {
        let kind = names.data(address).kind;
        matches!(
            kind,
            DataKind::Heap | DataKind::Anonymous | DataKind::Shared | DataKind::File
        )
    };
    let mut interpreted =
        Interpreted::of(window, &dependence, &spin, generated.holds_loop, &is_data);
    if let Some(program) = interpreted.as_mut().filter(|_| !generated.holds_loop) {
        program.ways = candidates
            .iter()
            .map(|word| {
                let way = way(window, &dependence, word.step, word.address);
                (word.address, way)
            })
            .collect();
    }
    let circle = circle::links(window, &dependence, &spin, &exits, &conditions);
    let circle = circle.unwrap_or_default();
    let asked: Vec<u32> = candidates.iter().map(|word| word.step).collect();
    let asked = (interpreted.is_some() && !generated.holds_loop).then_some(&asked[..]);
    let pauses = carried::pauses(window, &spin);
    let computes = match pauses {
        true => None,
        false => carried::computes(window, names, &dependence, (&spin, &exits), asked),
    };
    Some(Analysis {
        work: own.work,
        kind,
        compounds: compound::conditions(window, &exits),
        passing: exits
            .iter()
            .map(|exit| passing.decides(window, exit))
            .collect(),
        exits,
        conditions,
        candidates,
        calls,
        own_words,
        progress,
        same_again,
        interprets: interpreted.is_some(),
        interpreted: interpreted.unwrap_or_default(),
        of_task: false,
        circle,
        computes,
        pauses,
        generated,
        spin,
    })
}

impl Analysis {
    /// Is a round, which no pause interrupts, longer than it takes to ask for a word or two?
    pub fn has_long_rounds(&self) -> bool {
        const SHORT: u32 = 64;
        let rounds = self.spin.starts.len() as u32 - 1;
        let last = self.spin.starts.last().copied().unwrap_or(0);
        !self.pauses && last - self.spin.first_step() > SHORT * rounds
    }

    /// Would one of the branches that the word decides leave the loop if the word had this value?
    /// `None` if that can't be told of one of them: it tests more than the word and numbers.
    pub fn lets_go(&self, candidate: &Candidate, value: u64) -> Option<bool> {
        let mut any = false;
        for &exit in &candidate.exits {
            any |= self.conditions[exit].as_ref()?.lets_go(
                candidate.address,
                candidate.bytes,
                value,
            )?;
        }
        Some(any)
    }

    /// Does an interpreter's loop that is a module's code ask whether the word is the same as
    /// another one, as the program's comparison does?
    pub fn is_compared(&self, candidate: &Candidate) -> bool {
        let asks = |exit: &usize| {
            let test = self.conditions[*exit].as_ref();
            test.is_some_and(|test| {
                test.mentions(candidate.address, candidate.bytes) && test.asks_for_same_words()
            })
        };
        let is_module = self.interprets && !self.generated.holds_loop;
        is_module && candidate.exits.iter().any(asks)
    }

    /// Is the loop a virtual machine's, or does it run code that one made?
    pub fn is_of_machine(&self) -> bool {
        self.interprets || self.generated.any()
    }

    /// Does the loop go round because a system call says that nothing is there yet?
    pub fn finds_nothing(&self, window: &Window) -> bool {
        let mut calls = self
            .calls
            .iter()
            .filter_map(|(step, _)| window.syscall_at(*step));
        calls.any(|call| match syscalls::role(call.number, &call.args) {
            Role::Poll => call.result == Some(0),
            Role::Work => {
                syscalls::consumes(call.number) && call.result == Some(-i64::from(libc::EAGAIN))
            }
            _ => false,
        })
    }
}

struct OwnWrites {
    /// Of each aligned 8 bytes that the thread changes in the loop, which: a bit for each.
    bytes: FxHashMap<u64, u8>,
    work: bool,
}

/// The aligned 8 bytes that the bytes from `address` on lie in, each with a bit for every one of
/// these.
fn lines(address: u64, bytes: u32) -> impl Iterator<Item = (u64, u8)> {
    let end = address.saturating_add(u64::from(bytes));
    (address >> 3..end.div_ceil(8)).map(move |line| {
        let from = address.saturating_sub(line << 3);
        let behind = ((line << 3) | 7).saturating_sub(end - 1).min(7);
        (line, (0xff << from) & (0xff >> behind))
    })
}

fn own_writes(window: &Window, spin: &SpinLoop) -> OwnWrites {
    let mut bytes: FxHashMap<u64, u8> = FxHashMap::default();
    // Values stored outside the stack by place, and how many times they changed.
    let mut last: FxHashMap<u64, u64> = FxHashMap::default();
    let (mut changes, mut fresh) = (0u64, 0u64);
    let first_round_end = spin.starts.get(1).copied().unwrap_or(spin.end);
    for step in spin.first_step()..spin.end {
        let accesses = window.accesses(step);
        for access in accesses.iter().filter(|a| a.write) {
            let Some(address) = access.address else {
                continue;
            };
            let value = access.value.get((access.bytes * 8).min(64));
            if window.is_silent(step) {
                continue;
            }
            for (line, within) in lines(address, access.bytes.min(4096)) {
                *bytes.entry(line).or_default() |= within;
            }
            let near_stack = window.rsp(step).abs_diff(address) < 1 << 20;
            if !near_stack {
                match last.insert(address, value.unwrap_or(0)) {
                    Some(old) if Some(old) != value => changes += 1,
                    None if step > first_round_end => fresh += 1,
                    _ => {}
                }
            }
        }
    }
    let rounds = spin.starts.len() as u64;
    OwnWrites {
        bytes,
        // A lock that is taken and released changes its word twice a round; work changes more
        // words.
        work: fresh > rounds / 2 || changes > 24 * rounds,
    }
}

/// Does the step read by a register whose low bits were cleared just before, those of a whole page
/// or more?
fn is_of_page(window: &Window, step: u32) -> bool {
    const REACH: u32 = 16;
    const PAGE_BITS: u32 = 12;
    let mut bases = window.code(step).memory.iter();
    let Some(base) = bases.find_map(|memory| memory.base.filter(|_| memory.read)) else {
        return false;
    };
    let writes = |&step: &u32| window.results(step).iter().any(|(r, _)| *r == base);
    let before = (step.saturating_sub(REACH)..step).rev().find(writes);
    before.is_some_and(|step| {
        let code = &window.code(step).instruction;
        let mask = match code.op_count() {
            2 if code.mnemonic() == Mnemonic::And => code.try_immediate(1).unwrap_or(0),
            _ => 0,
        };
        (mask as i64) < 0 && mask.trailing_zeros() >= PAGE_BITS
    })
}

struct Collector<'a> {
    window: &'a Window,
    names: &'a Names,
    spin: &'a SpinLoop,
    passing: &'a Passing,
    own: &'a FxHashMap<u64, u8>,
    found: FxHashMap<u64, Candidate>,
    own_words: Vec<u64>,
}

impl Collector<'_> {
    fn add(&mut self, exit: usize, step: u32, access: u8) {
        let access = self.window.accesses(step)[access as usize];
        let Some(address) = access.address.filter(|_| access.bytes <= 64) else {
            return;
        };
        // The thread does not write other words of the same 8 bytes.
        let is_own = |(line, within)| self.own.get(&line).is_some_and(|own| own & within != 0);
        if lines(address, access.bytes).any(is_own) {
            if !self.own_words.contains(&address) {
                self.own_words.push(address);
            }
            return;
        }
        let pc = self.window.pc(step);
        let code = self.window.code(step);
        let atomic = code.is_atomic() || code.instruction.has_lock_prefix();
        let kind = self
            .found
            .get(&address)
            .map_or_else(|| self.names.data(address).kind, |known| known.kind);
        let candidate = self.found.entry(address).or_insert(Candidate {
            address,
            bytes: access.bytes,
            value: None,
            readers: Vec::new(),
            step,
            exits: Vec::new(),
            rounds: 0,
            steady: true,
            atomic: false,
            followed: false,
            of_page: false,
            is_bound: false,
            passed: true,
            kind,
        });
        candidate.passed &= self.passing.has(self.window, step);
        candidate.of_page |= is_of_page(self.window, step);
        candidate.atomic |= atomic;
        candidate.bytes = candidate.bytes.max(access.bytes);
        candidate.value = access
            .value
            .get((access.bytes * 8).min(64))
            .or(candidate.value);
        if !candidate.readers.contains(&pc) {
            candidate.readers.push(pc);
        }
        if !candidate.exits.contains(&exit) {
            candidate.exits.push(exit);
        }
    }

    /// Counts in how many iterations each candidate was read, and with which values.
    fn finish(mut self) -> Vec<Candidate> {
        let mut rounds: FxHashMap<u64, (usize, Option<u64>)> = FxHashMap::default();
        let whole = self.spin.starts.last().copied().unwrap_or(0);
        for step in self.spin.first_step()..whole {
            for access in self.window.accesses(step).iter().filter(|a| !a.write) {
                let Some(candidate) = access.address.and_then(|a| self.found.get_mut(&a)) else {
                    continue;
                };
                // Only reads of the same width can be compared.
                let value = access.value.get((access.bytes * 8).min(64));
                let value = value.filter(|_| access.bytes == candidate.bytes);
                let round = self.spin.round_of(step);
                match rounds.get_mut(&candidate.address) {
                    None => {
                        candidate.rounds = 1;
                        rounds.insert(candidate.address, (round, value));
                    }
                    Some((last, seen)) => {
                        candidate.rounds += u32::from(*last != round);
                        *last = round;
                        if seen.is_some() && value.is_some() && *seen != value {
                            candidate.steady = false;
                        }
                        *seen = value.or(*seen);
                    }
                }
            }
        }
        let last = self.spin.starts[self.spin.starts.len() - 2]..whole;
        let accesses = last.flat_map(|step| self.window.accesses(step));
        let mut read: Vec<u64> = accesses.filter_map(|access| access.address).collect();
        read.sort_unstable();
        let mut list: Vec<Candidate> = self.found.into_values().collect();
        // Java's pointers may have 4 bytes.
        for candidate in list.iter_mut().filter(|candidate| candidate.bytes >= 4) {
            let to = candidate.value.unwrap_or(0);
            let next = read.get(read.partition_point(|at| *at < to));
            candidate.followed = next.is_some_and(|at| *at - to < OBJECT);
        }
        list.sort_by_key(|c| c.address);
        list
    }
}

#[cfg(test)]
mod tests {
    use flagfinder_machine::value::Value;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    use super::*;

    /// Is `mov eax, [rbx+8]` behind this code, which writes rbx, a read of a page's head?
    fn reads_head(before: &[u8]) -> bool {
        const RBX: u8 = 3;
        let mut window = Window::default();
        let mut factory = InstructionInfoFactory::new();
        for (pc, code) in [(0x1000, before), (0x1010, &[0x8b, 0x43, 0x08])] {
            let mut decoder = Decoder::with_ip(64, code, pc, DecoderOptions::NONE);
            let index = window.intern(&decoder.decode(), 0, &mut factory);
            window.push(index, Value::of(0x7000));
            window.push_result(RBX, Value::of(0x40000));
        }
        is_of_page(&window, window.len() - 1)
    }

    #[test]
    fn lines_have_a_bit_for_each_byte_of_a_word() {
        let of = |address, bytes| lines(address, bytes).collect::<Vec<_>>();
        assert_eq!(of(0x1002, 4), [(0x200, 0b0011_1100)]);
        assert_eq!(of(0x1006, 4), [(0x200, 0b1100_0000), (0x201, 0b0000_0011)]);
        assert_eq!(of(0x1000, 16), [(0x200, 0xff), (0x201, 0xff)]);
        assert!(of(0x1004, 0).iter().all(|(_, within)| *within == 0));
        assert_eq!(of(u64::MAX, 8).len(), 1);
    }

    #[test]
    fn a_page_is_found_by_clearing_low_bits() {
        let and = [0x48, 0x81, 0xe3, 0x00, 0x00, 0xfc, 0xff];
        assert!(reads_head(&and), "and rbx, ~0x3ffff");
        assert!(!reads_head(&[0x48, 0x83, 0xe3, 0xf8]), "and rbx, ~7");
        assert!(
            !reads_head(&[0x48, 0x81, 0xe3, 0x00, 0x00, 0xfc, 0x0f]),
            "a mask"
        );
        assert!(!reads_head(&[0x48, 0x89, 0xc3]), "mov rbx, rax");
    }
}
