// SPDX-License-Identifier: MIT
//! Whether a thread has a lock that the code ahead of it gives back.
//!
//! In: where its open calls go on. Out: whether on some way through that code more locks are given
//! back than are taken. A loop that takes a lock and gives it back in each round says nothing of
//! what the thread has now. Functions of the program are followed, those of the system are known by
//! their names. Blind spots: which lock it is; locks whose code a compiler made part of a function,
//! but for those of Go; handlers of exceptions.

use std::cell::{Cell, RefCell};

use iced_x86::{FlowControl, Instruction, Mnemonic};
use rustc_hash::FxHashMap;

use crate::address_space::AddressSpace;
use crate::ahead::CodeReader;
use crate::names::Names;
use crate::own::{is_of_go, whose_module, Whose};

/// Most instructions that are followed for one thread, and functions within functions.
const INSTRUCTIONS: usize = 60_000;
const DEPTH: usize = 12;
/// Fewest and most locks that a way is seen to have taken.
const LEAST: i8 = -4;
const MOST: i8 = 4;
/// An atomic instruction belongs to a lock's function that is called within so many instructions.
const NEAR: usize = 24;

const TAKES: [&str; 15] = [
    "sync.(*Mutex).Lock",
    "sync.(*RWMutex).Lock",
    "sync.(*RWMutex).RLock",
    "internal/sync.(*Mutex).Lock",
    "pthread_mutex_lock",
    "pthread_mutex_timedlock",
    "pthread_mutex_clocklock",
    "pthread_rwlock_rdlock",
    "pthread_rwlock_wrlock",
    "pthread_rwlock_timedrdlock",
    "pthread_rwlock_timedwrlock",
    "pthread_rwlock_clockrdlock",
    "pthread_rwlock_clockwrlock",
    "pthread_spin_lock",
    "mtx_lock",
];
const GIVES: [&str; 8] = [
    "sync.(*Mutex).Unlock",
    "sync.(*RWMutex).Unlock",
    "sync.(*RWMutex).RUnlock",
    "internal/sync.(*Mutex).Unlock",
    "pthread_mutex_unlock",
    "pthread_rwlock_unlock",
    "pthread_spin_unlock",
    "mtx_unlock",
];
/// They give a lock back, and take it again.
const LENDS: [&str; 7] = [
    "sync.(*Cond).Wait",
    "pthread_cond_wait",
    "pthread_cond_timedwait",
    "pthread_cond_clockwait",
    "cnd_wait",
    "cnd_timedwait",
    "std::condition_variable::wait",
];
/// What is left of a lock's function that was made part of another one: it is called where the
/// atomic instruction in front of it did not do.
const TAKES_SLOWLY: [&str; 2] = [".lockSlow", "SemacquireRWMutexR"];
const GIVES_SLOWLY: [&str; 2] = [".unlockSlow", ".rUnlockSlow"];
/// What begins a goroutine, and what is called while a closure is made.
const BEGINS: &str = "runtime.newproc";
const MAKES: [&str; 3] = [
    "runtime.newobject",
    "runtime.gcWriteBarrier",
    "runtime.mallocgc",
];
const NEVER_RETURN: [&str; 11] = [
    "exit",
    "abort",
    "assert_fail",
    "stack_chk_fail",
    "cxa_throw",
    "cxa_rethrow",
    "Unwind_Resume",
    "pthread_exit",
    "std::terminate",
    "runtime.gopanic",
    "runtime.panic",
];

/// What the code ahead of a thread does to a lock that it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivesBack {
    /// On some way it does.
    Yes,
    /// All its ways are known, and none does.
    No,
    /// It calls what is not known.
    Unknown,
}

/// What a piece of code does to the number of locks that a thread has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change {
    /// The least that it comes to on any way, and at the end of one.
    least: i8,
    end: Option<i8>,
    is_all: bool,
}

const NOTHING: Change = Change {
    least: 0,
    end: Some(0),
    is_all: true,
};

const UNKNOWN: Change = Change {
    is_all: false,
    ..NOTHING
};

/// Looks at each function once.
pub struct LockBalance<'a> {
    names: &'a Names,
    memory: &'a dyn AddressSpace,
    code: RefCell<CodeReader<'a>>,
    is_go: bool,
    /// By where it begins; a function that is being looked at does nothing.
    known: RefCell<FxHashMap<u64, Change>>,
    followed: Cell<usize>,
}

impl<'a> LockBalance<'a> {
    /// Of this process.
    pub fn new(names: &'a Names, memory: &'a dyn AddressSpace) -> LockBalance<'a> {
        LockBalance {
            names,
            memory,
            code: RefCell::new(CodeReader::new(memory)),
            is_go: names.go_data().is_some(),
            known: RefCell::default(),
            followed: Cell::default(),
        }
    }

    /// From these return addresses on, innermost first, and in deferred functions, which begin
    /// there. `taken`: locks that the thread has once its innermost call is over, and not now.
    pub fn ahead(&self, frames: &[u64], deferred: &[u64], taken: i8) -> GivesBack {
        self.followed.set(0);
        let mut is_all = true;
        let mut balance = taken;
        let mut of = |change: Change, balance: i8| {
            is_all &= change.is_all;
            balance + change.least < 0
        };
        for from in deferred {
            if of(self.function(*from, DEPTH), 0) {
                return GivesBack::Yes;
            }
        }
        for from in frames
            .iter()
            .filter(|from| self.is_followed(from.wrapping_sub(1)))
        {
            let change = self.function(*from, DEPTH);
            if of(change, balance) {
                return GivesBack::Yes;
            }
            match change.end {
                Some(end) => balance = balance.saturating_add(end),
                None => break,
            }
        }
        match is_all {
            true => GivesBack::No,
            false => GivesBack::Unknown,
        }
    }

    /// Code of the program, or of a package.
    fn is_followed(&self, address: u64) -> bool {
        let Some((index, _)) = self.names.locate(address) else {
            return false;
        };
        let module = &self.names.input().modules[index];
        whose_module(&module.path, &module.identity.name) != Whose::System
            && !is_of_go(&self.name(address))
    }

    /// Of the function that holds the address.
    fn name(&self, address: u64) -> String {
        let symbol = self.names.code(address).symbol.unwrap_or_default();
        symbol.split('+').next().unwrap_or_default().to_owned()
    }

    fn function(&self, from: u64, depth: usize) -> Change {
        if let Some(known) = self.known.borrow().get(&from) {
            return *known;
        }
        self.known.borrow_mut().insert(from, NOTHING);
        let read = self.read(from, depth);
        self.known.borrow_mut().insert(from, read);
        read
    }

    fn read(&self, from: u64, depth: usize) -> Change {
        // A call that never returns may stand at the end of its function.
        let extent = self.names.function(from);
        match extent.or_else(|| self.names.function(from - 1)) {
            Some(extent) => self.walk(from, extent, depth).0,
            None => UNKNOWN,
        }
    }

    /// The least locks that the functions have taken which are open at these return addresses.
    /// `None`: how one of them came there is not known.
    pub fn kept(&self, frames: &[u64]) -> Option<i8> {
        self.followed.set(0);
        let mut sum = 0i8;
        for from in frames
            .iter()
            .filter(|from| self.is_followed(from.wrapping_sub(1)))
        {
            let extent = self.names.function(from.wrapping_sub(1))?;
            let (_, balance) = self.walk(extent.0, extent, DEPTH);
            sum = sum.saturating_add(*balance.get(from)?);
        }
        Some(sum)
    }

    /// From an address within a function on: what is done, and the least balance where the code
    /// comes to each instruction.
    fn walk(
        &self,
        from: u64,
        (start, end): (u64, u64),
        depth: usize,
    ) -> (Change, FxHashMap<u64, i8>) {
        let mut change = Change {
            end: None,
            ..NOTHING
        };
        let deferred = match self.is_go && depth > 0 {
            true => self.deferred((start, end), depth - 1),
            false => None,
        };
        let mut best: FxHashMap<u64, i8> = FxHashMap::default();
        let mut todo = vec![(from, 0)];
        while let Some((at, balance)) = todo.pop() {
            let is_inside = (start..end).contains(&at);
            if !is_inside || best.get(&at).is_some_and(|known| *known <= balance) {
                continue;
            }
            best.insert(at, balance);
            self.followed.set(self.followed.get() + 1);
            if self.followed.get() > INSTRUCTIONS {
                change.is_all = false;
                break;
            }
            let Some(one) = self.decode(at) else {
                change.is_all = false;
                continue;
            };
            let mut go_on = |to: u64, by: Change| {
                change.is_all &= by.is_all;
                change.least = change.least.min((balance + by.least).max(LEAST));
                if let Some(end) = by.end {
                    todo.push((to, (balance + end).clamp(LEAST, MOST)));
                }
            };
            let next = one.next_ip();
            match one.flow_control() {
                FlowControl::Next if one.has_lock_prefix() => go_on(next, self.atomic(next)),
                FlowControl::Next | FlowControl::XbeginXabortXend => go_on(next, NOTHING),
                FlowControl::Call => go_on(next, self.called(one.near_branch_target(), depth)),
                FlowControl::IndirectCall => {
                    go_on(next, deferred.unwrap_or_else(|| self.pointed(&one, depth)));
                }
                FlowControl::ConditionalBranch => {
                    go_on(next, NOTHING);
                    go_on(one.near_branch_target(), NOTHING);
                }
                FlowControl::UnconditionalBranch => {
                    let target = one.near_branch_target();
                    if (start..end).contains(&target) {
                        go_on(target, NOTHING);
                    } else {
                        change = over(change, balance, self.called(target, depth));
                    }
                }
                // A table of a `switch`, or another function's end of this one.
                FlowControl::IndirectBranch => go_on(next, UNKNOWN),
                FlowControl::Return => change = over(change, balance, NOTHING),
                FlowControl::Interrupt | FlowControl::Exception => {}
            }
        }
        (change, best)
    }

    /// What the closures of Go may do that a function makes, and calls itself: what it deferred.
    /// Which one a call is of is not known.
    fn deferred(&self, (start, end): (u64, u64), depth: usize) -> Option<Change> {
        let (mut at, mut pending, mut made) = (start, Vec::new(), Vec::new());
        while let Some(one) = self.decode(at).filter(|_| at < end) {
            at = one.next_ip();
            if one.mnemonic() == Mnemonic::Lea && one.is_ip_rel_memory_operand() {
                let place = one.ip_rel_memory_address();
                let begins = |at: &u64| {
                    self.names
                        .function(*at)
                        .is_some_and(|(begin, _)| begin == *at)
                };
                let pointed = || self.memory.word(place).filter(begins);
                pending.extend(Some(place).filter(begins).or_else(pointed));
            }
            if one.flow_control() == FlowControl::Call && !pending.is_empty() {
                let name = self.name(one.near_branch_target());
                match &*name {
                    BEGINS => pending.clear(),
                    name if MAKES.iter().any(|makes| name.starts_with(makes)) => {}
                    _ => made.append(&mut pending),
                }
            }
        }
        made.append(&mut pending);
        made.retain(|closure| *closure != start && self.is_followed(*closure));
        let changes = made.iter().map(|closure| self.function(*closure, depth));
        changes.reduce(|one, other| Change {
            least: one.least.min(other.least),
            end: one.end.min(other.end),
            is_all: false,
        })
    }

    fn decode(&self, at: u64) -> Option<Instruction> {
        self.code.borrow_mut().decode(at)
    }

    /// A call by a word of the linker's is known.
    fn pointed(&self, call: &Instruction, depth: usize) -> Change {
        let is_fixed = call.is_ip_rel_memory_operand();
        let target = is_fixed.then(|| self.memory.word(call.ip_rel_memory_address()));
        match target.flatten() {
            Some(target) => self.called(target, depth),
            None => UNKNOWN,
        }
    }

    fn called(&self, target: u64, depth: usize) -> Change {
        let target = self.behind_stub(target);
        let name = self.name(target);
        let plain = name
            .trim_start_matches('_')
            .split('@')
            .next()
            .unwrap_or_default();
        let begins = |list: &[&str]| list.iter().any(|one| plain.starts_with(one));
        let by = |least: i8, end: i8| Change {
            least,
            end: Some(end),
            is_all: true,
        };
        if TAKES.contains(&plain) {
            by(0, 1)
        } else if GIVES.contains(&plain) {
            by(-1, -1)
        } else if begins(&LENDS) {
            by(-1, 0)
        } else if begins(&NEVER_RETURN) {
            Change {
                end: None,
                ..NOTHING
            }
        } else if self.is_followed(target) {
            match depth {
                0 => UNKNOWN,
                _ => self.function(target, depth - 1),
            }
        } else {
            Change {
                is_all: !plain.is_empty(),
                ..NOTHING
            }
        }
    }

    /// Where a linkage stub goes on.
    fn behind_stub(&self, target: u64) -> u64 {
        let mut at = target;
        for _ in 0..2 {
            let Some(one) = self.decode(at) else {
                break;
            };
            if one.flow_control() == FlowControl::IndirectBranch && one.is_ip_rel_memory_operand() {
                return self
                    .memory
                    .word(one.ip_rel_memory_address())
                    .unwrap_or(target);
            }
            at = one.next_ip();
        }
        target
    }

    /// An atomic instruction, behind which the code goes on at `from`: a lock's, if the function
    /// that is called where it did not do is one of a lock's.
    fn atomic(&self, from: u64) -> Change {
        let mut todo = vec![from];
        let mut seen = 0;
        while let Some(mut at) = todo.pop() {
            while seen < NEAR {
                seen += 1;
                let Some(one) = self.decode(at).filter(|one| !one.has_lock_prefix()) else {
                    break;
                };
                at = one.next_ip();
                match one.flow_control() {
                    FlowControl::Call => {
                        let name = self.name(one.near_branch_target());
                        let ends = |list: &[&str]| list.iter().any(|end| name.ends_with(end));
                        if ends(&TAKES_SLOWLY) {
                            return Change {
                                end: Some(1),
                                ..NOTHING
                            };
                        }
                        if ends(&GIVES_SLOWLY) {
                            return Change {
                                least: -1,
                                end: Some(-1),
                                ..NOTHING
                            };
                        }
                        break;
                    }
                    FlowControl::Next => {}
                    FlowControl::ConditionalBranch => todo.push(one.near_branch_target()),
                    FlowControl::UnconditionalBranch => at = one.near_branch_target(),
                    _ => break,
                }
            }
        }
        NOTHING
    }
}

/// The same, where one of its ways ends with this.
fn over(change: Change, balance: i8, by: Change) -> Change {
    let end = by.end.map(|end| (balance + end).clamp(LEAST, MOST));
    Change {
        least: change.least.min((balance + by.least).max(LEAST)),
        end: match (change.end, end) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        },
        is_all: change.is_all && by.is_all,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_way_counts_and_one_that_never_ends_does_not() {
        let ends = |end| Change { end, ..NOTHING };
        let both = over(ends(Some(1)), 0, NOTHING);
        assert_eq!(both.end, Some(0));
        assert_eq!(over(ends(Some(0)), 2, ends(None)).end, Some(0));
        let gives = Change {
            least: -1,
            end: Some(-1),
            is_all: true,
        };
        assert_eq!(over(ends(None), 1, gives), ends(Some(0)));
        assert_eq!(over(ends(None), 0, gives).least, -1);
        assert_eq!(over(ends(None), -1, gives).least, -2);
    }
}
