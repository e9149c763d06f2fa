// SPDX-License-Identifier: MIT
//! Does the loop compute? Then it hands a value on from round to round that is new each time.
//!
//! In: a window and its loop. Out: a step that makes such a value from what it made the round
//! before. A thread that waits does the same in each round: it may count its rounds, wait longer
//! and longer, or go round a ring, and the values that it hands on then grow by as much as the
//! round before, or come again. One that hashes, sums up, or goes from state to state has another
//! value and another difference nearly every time. What comes from outside is no sign of it: a
//! clock, a call's answer, a word that others write. Nor are numbers by chance of the C library.
//! A loop that pauses, yields or sleeps says itself that it waits. Work that begins anew in each
//! round shows as a long chain of results, each made from the one before; a search, as one test
//! after the other of a number that was mixed. Blind spots: sums that begin anew; results of vector
//! code, of which only the kind of instruction tells.

use flagfinder_code::Names;
use flagfinder_linux::syscalls::{role, Role};
use flagfinder_machine::Window;
use iced_x86::Mnemonic;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::dependence::{Dependence, Input};
use crate::exit::Exit;
use crate::runtime::is_runtime_module;
use crate::spin_loop::SpinLoop;

/// Fewer rounds tell nothing, and no more are compared.
const LEAST: usize = 6;
const MOST: usize = 32;
/// Most steps that are followed back from one value, and most values that are followed.
const REACH: usize = 4_000;
const FOLLOWED: usize = 48;
/// Work is a chain of so many steps that mix values, each with what the one before made.
const DEEP: u32 = 48;
/// A number is mixed, and not only divided or shifted, by so many such steps.
const MIXED: usize = 5;
/// The number of the stack pointer.
const RSP: u8 = 4;

/// A step that makes a new value in each round, in part from the one of the round before. `asked`:
/// a step of an interpreter's loop that reads a word for a test, for each such word. The
/// interpreter goes round for each piece of its program, which goes round when it asks again.
pub(crate) fn computes(
    window: &Window,
    names: &Names,
    dependence: &Dependence,
    (spin, exits): (&SpinLoop, &[Exit]),
    asked: Option<&[u32]>,
) -> Option<u32> {
    if let Some(asked) = asked {
        return Carried::new(window, dependence, &seldomest(window, asked)?)?.computes(names);
    }
    let carried = Carried::new(window, dependence, &spin.starts);
    let computes = carried.as_ref().and_then(|carried| carried.computes(names));
    let searches = || {
        exits
            .iter()
            .find_map(|exit| carried.as_ref()?.searches(exit))
    };
    computes
        .or_else(|| works(window, dependence, spin))
        .or_else(searches)
}

/// Where the loop reads the word that it reads most seldom.
fn seldomest(window: &Window, asked: &[u32]) -> Option<Vec<u32>> {
    let read = |step: u32| {
        let mut reads = window.accesses(step).iter();
        let read = reads.find(|access| !access.write)?;
        Some((window.code_index(step), read.address?))
    };
    let mut steps: FxHashMap<(u32, u64), Vec<u32>> = FxHashMap::default();
    steps.extend(
        asked
            .iter()
            .filter_map(|&step| Some((read(step)?, Vec::new()))),
    );
    let codes: FxHashSet<u32> = steps.keys().map(|(code, _)| *code).collect();
    for step in (0..window.len()).filter(|&step| codes.contains(&window.code_index(step))) {
        if let Some(steps) = read(step).and_then(|place| steps.get_mut(&place)) {
            steps.push(step);
        }
    }
    let enough = steps.into_values().filter(|steps| steps.len() > LEAST);
    enough.min_by_key(|steps| (steps.len(), steps[0]))
}

/// A step of the last whole round at the end of so long a chain of mixing that this is work, though
/// it may begin anew in each round: a checksum, a series. A wait looks up and compares.
fn works(window: &Window, dependence: &Dependence, spin: &SpinLoop) -> Option<u32> {
    let &[.., begin, end] = spin.starts.as_slice() else {
        return None;
    };
    let mut depths = vec![0u32; (end - begin) as usize];
    for step in begin..end {
        let reads = window.accesses(step).iter().any(|access| !access.write);
        let inputs = dependence.inputs(step).iter();
        let inputs = inputs.filter(|edge| edge.from >= begin);
        let values = inputs.filter(|edge| edge.input != Input::Address || reads);
        let deepest = values
            .map(|edge| depths[(edge.from - begin) as usize])
            .max();
        let code = window.code(step);
        let depth = deepest.unwrap_or(0) + u32::from(mixes(code.mnemonic));
        if depth >= DEEP {
            return Some(step);
        }
        depths[(step - begin) as usize] = depth;
    }
    None
}

/// Does it pause, yield or sleep in every second round or more?
pub(crate) fn pauses(window: &Window, spin: &SpinLoop) -> bool {
    let steps = spin.first_step()..spin.end;
    let pauses = steps.filter(|&step| window.code(step).mnemonic == Mnemonic::Pause);
    let calls = window.syscalls.iter().filter(|call| {
        let role = role(call.number, &call.args);
        call.step >= spin.first_step() && matches!(role, Role::Yield | Role::Sleep)
    });
    let in_rounds: FxHashSet<usize> = pauses
        .chain(calls.map(|call| call.step))
        .map(|step| spin.round_of(step))
        .collect();
    in_rounds.len() * 2 >= spin.starts.len() - 1
}

/// By instruction and frame: where it was executed last in each round.
fn made(window: &Window, starts: &[u32]) -> FxHashMap<(u32, u64), Vec<u32>> {
    let mut made: FxHashMap<(u32, u64), Vec<u32>> = FxHashMap::default();
    for round in starts.windows(2) {
        for step in round[0]..round[1] {
            let steps = made
                .entry((window.code_index(step), window.rsp(step)))
                .or_default();
            match steps.last_mut().filter(|last| **last >= round[0]) {
                Some(last) => *last = step,
                None => steps.push(step),
            }
        }
    }
    made
}

/// What the step leaves in a register, or else in memory.
fn value(window: &Window, step: u32) -> Option<u64> {
    let mut results = window.results(step).iter();
    if let Some((_, value)) = results.find(|(register, _)| *register != RSP) {
        return value.get(64);
    }
    let mut writes = window.accesses(step).iter().filter(|access| access.write);
    let write = writes.next()?;
    write.value.get((write.bytes * 8).min(64))
}

/// Hardly any of the values comes twice, and hardly any of their differences.
fn are_new(values: &[u64]) -> bool {
    let differences = values.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]));
    let differences: FxHashSet<u64> = differences.collect();
    let distinct: FxHashSet<&u64> = values.iter().collect();
    values.len() >= LEAST
        && distinct.len() * 4 >= values.len() * 3
        && differences.len() * 2 >= values.len()
}

/// Vector code that does more than to count or to copy.
fn multiplies(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Mulss
            | M::Mulsd
            | M::Mulps
            | M::Mulpd
            | M::Divss
            | M::Divsd
            | M::Divps
            | M::Divpd
            | M::Sqrtss
            | M::Sqrtsd
            | M::Fmul
            | M::Fmulp
            | M::Fdiv
            | M::Fdivp
            | M::Fdivr
            | M::Fdivrp
            | M::Vmulss
            | M::Vmulsd
            | M::Vmulps
            | M::Vmulpd
            | M::Vdivss
            | M::Vdivsd
            | M::Vdivps
            | M::Vdivpd
            | M::Vfmadd132sd
            | M::Vfmadd213sd
            | M::Vfmadd231sd
            | M::Vfmadd132pd
            | M::Vfmadd213pd
            | M::Vfmadd231pd
            | M::Aesenc
            | M::Aesdec
            | M::Vaesenc
            | M::Vaesdec
            | M::Sha1rnds4
            | M::Sha256rnds2
            | M::Sha256msg2
    )
}

/// Does its result say little of one operand alone?
fn mixes(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    multiplies(mnemonic)
        || matches!(
            mnemonic,
            M::Xor
                | M::Imul
                | M::Mul
                | M::Mulx
                | M::Div
                | M::Idiv
                | M::Rol
                | M::Ror
                | M::Rorx
                | M::Shl
                | M::Shr
                | M::Sar
                | M::Shld
                | M::Shrd
                | M::Bswap
                | M::Crc32
                | M::Pclmulqdq
                | M::Pxor
                | M::Vpxor
                | M::Addss
                | M::Addsd
                | M::Subss
                | M::Subsd
                | M::Vaddsd
                | M::Vsubsd
                | M::Fadd
                | M::Faddp
                | M::Fsub
                | M::Fsubp
                | M::Fsubr
                | M::Psrld
                | M::Pslld
                | M::Vpsrld
                | M::Vpslld
                | M::Paddd
                | M::Vpaddd
        )
}

struct Carried<'a> {
    window: &'a Window,
    dependence: &'a Dependence,
    starts: &'a [u32],
    made: FxHashMap<(u32, u64), Vec<u32>>,
}

impl<'a> Carried<'a> {
    /// `None`: the rounds that begin there are too few.
    fn new(
        window: &'a Window,
        dependence: &'a Dependence,
        starts: &'a [u32],
    ) -> Option<Carried<'a>> {
        let rounds = starts
            .len()
            .checked_sub(1)
            .filter(|&rounds| rounds >= LEAST)?;
        let starts = &starts[rounds - rounds.min(MOST)..];
        Some(Carried {
            window,
            dependence,
            starts,
            made: made(window, starts),
        })
    }

    /// A step that makes a new value in each round, in part from the one of the round before.
    fn computes(&self, names: &Names) -> Option<u32> {
        let (window, starts) = (self.window, self.starts);
        let has_call = window.syscalls.iter().any(|call| call.step >= starts[0]);
        let is_vector = |rounds: &&Vec<u32>| {
            let mnemonic = rounds.first().map(|&step| window.code(step).mnemonic);
            !has_call && rounds.len() >= LEAST && mnemonic.is_some_and(multiplies)
        };
        let every_round = self.made.values();
        let every_round = every_round.filter(|rounds| rounds.len() * 8 >= (starts.len() - 1) * 7);
        let mut last: Vec<u32> = every_round
            .filter(|rounds| self.is_new(rounds) || is_vector(rounds))
            .filter_map(|rounds| rounds.last().copied())
            .collect();
        last.sort_unstable_by_key(|step| std::cmp::Reverse(*step));
        let is_chance = |step: u32| {
            let module = names.code(window.pc(step)).module;
            module.as_deref().is_some_and(is_runtime_module)
        };
        last.into_iter()
            .take(FOLLOWED)
            .find(|&step| self.is_handed_on(step) && !is_chance(step))
    }

    /// A step whose result an exit tests, made by mixing from what the thread itself counts: it
    /// tries one number after the other.
    fn searches(&self, exit: &Exit) -> Option<u32> {
        let inputs = |step: u32| self.dependence.inputs(step).iter().map(|edge| edge.from);
        let tested = inputs(exit.step).flat_map(inputs).find(|&step| {
            let place = (self.window.code_index(step), self.window.rsp(step));
            self.made
                .get(&place)
                .is_some_and(|rounds| self.is_new(rounds))
        });
        let back = self.back(tested.filter(|_| exit.induction)?)?;
        let mixing = back
            .iter()
            .filter(|&&step| mixes(self.window.code(step).mnemonic));
        (mixing.count() >= MIXED).then_some(tested?)
    }

    fn is_new(&self, rounds: &[u32]) -> bool {
        let values = rounds.iter().map(|&step| value(self.window, step));
        let values: Option<Vec<u64>> = values.collect();
        values.is_some_and(|values| are_new(&values))
    }

    /// Is the value made from what the same instruction made a round before, and from nothing that
    /// comes from outside?
    fn is_handed_on(&self, step: u32) -> bool {
        let place = |step: u32| (self.window.code_index(step), self.window.rsp(step));
        let begin = self.starts[self.round(step)];
        let is_own = |&at: &u32| at < begin && place(at) == place(step);
        self.back(step)
            .is_some_and(|steps| steps.iter().any(is_own))
    }

    fn round(&self, step: u32) -> usize {
        self.starts.partition_point(|&start| start <= step) - 1
    }

    /// The steps of its round and the one before that its value is made by; `None`: some of it
    /// comes from outside.
    fn back(&self, step: u32) -> Option<FxHashSet<u32>> {
        let before = self.starts[self.round(step).saturating_sub(1)];
        let mut seen = FxHashSet::default();
        let mut left = vec![step];
        while let Some(at) = left.pop() {
            if at < before || !seen.insert(at) {
                continue;
            }
            if seen.len() > REACH || self.is_from_outside(at) {
                return None;
            }
            let reads = self.window.accesses(at).iter().any(|access| !access.write);
            let inputs = self.dependence.inputs(at).iter();
            let counts = inputs.filter(|edge| edge.input != Input::Address || reads);
            left.extend(counts.map(|edge| edge.from));
        }
        Some(seen)
    }

    /// A call, a clock, chance, or a word that others write: at one address, with one value after
    /// another.
    fn is_from_outside(&self, step: u32) -> bool {
        let window = self.window;
        let is_outside = matches!(
            window.code(step).mnemonic,
            Mnemonic::Rdtsc | Mnemonic::Rdtscp | Mnemonic::Rdrand | Mnemonic::Rdseed
        );
        if is_outside || window.syscall_at(step).is_some() || window.comes_from_call(step) {
            return true;
        }
        let inputs = self.dependence.inputs(step).iter();
        let is_own = |at: usize| {
            let mut inputs = inputs.clone();
            inputs.any(|edge| edge.input == Input::Memory(at as u8))
        };
        let accesses = window.accesses(step).iter().enumerate();
        let mut foreign = accesses.filter(|(at, access)| !access.write && !is_own(*at));
        foreign.any(|(at, read)| {
            let place = (window.code_index(step), window.rsp(step));
            let others = self.made.get(&place).into_iter().flatten();
            others
                .filter_map(|&other| window.accesses(other).get(at))
                .any(|other| other.address == read.address && other.value != read.value)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_rings_and_longer_waits_are_not_new() {
        let values = |next: &dyn Fn(u64) -> u64| (0..20).map(next).collect::<Vec<u64>>();
        assert!(!are_new(&values(&|round| 7 + 8 * round)), "a count");
        assert!(!are_new(&values(&|round| round % 4 * round % 4)), "a ring");
        assert!(!are_new(&values(&|round| 1 << round.min(6))), "a back-off");
        assert!(!are_new(&values(&|round| round / 2 * 24)), "every second");
        let hash = |round: u64| {
            (round + 1)
                .wrapping_mul(round + 3)
                .wrapping_mul(0x9e37_79b9)
        };
        assert!(are_new(&values(&hash)));
        assert!(are_new(&values(&|round| round * round)), "a sum of counts");
        assert!(!are_new(&[1, 5, 19, 3]), "too few");
    }
}
