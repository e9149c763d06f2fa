// SPDX-License-Identifier: MIT
//! Which goroutine is to end another one's wait: the one that has the object at hand.
//!
//! In: goroutines with their stacks, and what each waits for. Out: from a goroutine along those
//! that owe, to one that waits for something else than a goroutine, or round a circle. A goroutine
//! has an object at hand if its open calls hold the object's address; if its functions name a
//! global variable that holds it; if what they point to holds it; or if they hold a place in front
//! of a lock that the waiter has as well, which is the structure with the lock in it. Where such a
//! structure ends the heap's spans tell. It owes the wait if its code ahead calls what ends such
//! waits; a lock, if it gives back one that it has not taken there. Blind spot: objects that are
//! reached by longer ways.

use std::cell::RefCell;
use std::rc::Rc;

use flagfinder_code::{AddressSpace, CallsAhead, GivesBack, LockBalance, Names, Reach, Whose};
use rustc_hash::{FxHashMap, FxHashSet};

use super::at_hand::{AtHand, Calls};
use super::awaited::Awaited;
use super::goroutine::Goroutine;
use super::runtime::{Data, State};
use crate::why::report::Known;

/// Where a lock begins, in front of its semaphores.
const IN_LOCK: [u64; 4] = [0, 4, 8, 12];
const IN_CONDITION: [u64; 2] = [0, 16];
/// Longest function, and most functions of a goroutine, that are searched for a global.
const LONGEST: u64 = 64 << 10;
const FUNCTIONS: usize = 12;
/// Longest chain, and most goroutines that may owe one wait.
const DEPTH: usize = 32;
const BROAD: usize = 8;

/// A goroutine, and which of its open calls, by index.
type Place = (usize, usize);

/// How a goroutine has an object at hand, the surest first.
#[derive(Clone, Copy)]
enum Held {
    OnStack,
    /// A global variable, which its functions name.
    Global,
    /// What the object is a part of.
    Around,
    /// In what its stack points to.
    Pointed,
    /// One or two steps further on.
    Reached(usize),
}

const HOLDS: [Held; 6] = [
    Held::OnStack,
    Held::Global,
    Held::Around,
    Held::Pointed,
    Held::Reached(2),
    Held::Reached(3),
];

/// Where a chain of goroutines ends: the less can be done about it, the smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// Back at this place of the chain.
    Circle(usize),
    /// It was not followed to its end.
    Lost,
    /// No goroutine has what the last one waits for at hand.
    Nobody,
    /// The last one waits for something else than a goroutine: a file, time.
    Elsewhere,
    /// It runs, is about to, or is in a system call.
    Goes,
}

/// Indices of goroutines, from the first to the last; how each but the first is known to owe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    pub all: Vec<usize>,
    pub known: Vec<Known>,
    pub ending: Ending,
}

/// All goroutines, and what they refer to.
pub struct Debts<'a> {
    pub all: &'a [Goroutine],
    memory: &'a dyn AddressSpace,
    names: &'a Names,
    data: &'a Data,
    at_hand: AtHand<'a>,
    reach: Reach<'a>,
    balance: LockBalance<'a>,
    calls: RefCell<FxHashMap<Place, Rc<CallsAhead>>>,
    gives_back: RefCell<FxHashMap<usize, GivesBack>>,
}

impl<'a> Debts<'a> {
    pub fn new(
        all: &'a [Goroutine],
        memory: &'a dyn AddressSpace,
        names: &'a Names,
        data: &'a Data,
    ) -> Debts<'a> {
        Debts {
            all,
            memory,
            names,
            data,
            at_hand: AtHand::new(all, memory, names, data),
            reach: Reach::new(names, memory),
            balance: LockBalance::new(names, memory),
            calls: RefCell::default(),
            gives_back: RefCell::default(),
        }
    }

    /// From this goroutine on.
    pub fn follow(&self, first: usize) -> Chain {
        self.explore(first, &mut vec![first], &mut FxHashMap::default())
    }

    /// `followed`: chains of those that others led to before.
    fn explore(
        &self,
        at: usize,
        path: &mut Vec<usize>,
        followed: &mut FxHashMap<usize, Chain>,
    ) -> Chain {
        let end = |ending| Chain {
            all: vec![at],
            known: Vec::new(),
            ending,
        };
        let one = &self.all[at];
        if one.kept.state != State::Waits {
            return end(Ending::Goes);
        }
        if one.waits_elsewhere() {
            return end(Ending::Elsewhere);
        }
        let owing = self.owing(at);
        if owing.is_empty() {
            return end(Ending::Nobody);
        }
        let mut best: Option<(Chain, Known)> = None;
        for (next, known) in owing.into_iter().take(BROAD) {
            let found = match path.iter().position(|seen| *seen == next) {
                Some(back) => Chain {
                    all: Vec::new(),
                    known: Vec::new(),
                    ending: Ending::Circle(back),
                },
                None => match followed.get(&next) {
                    // Where that circle begins is not on this path.
                    Some(known) if matches!(known.ending, Ending::Circle(_)) => continue,
                    Some(known) => known.clone(),
                    None if path.len() >= DEPTH => continue,
                    None => {
                        path.push(next);
                        let found = self.explore(next, path, followed);
                        path.pop();
                        followed.insert(next, found.clone());
                        found
                    }
                },
            };
            let is_better = |best: &Chain| match one.needs_all() {
                true => found.ending < best.ending,
                false => found.ending > best.ending,
            };
            if best.as_ref().is_none_or(|(best, _)| is_better(best)) {
                best = Some((found, known));
            }
        }
        let Some((mut chain, known)) = best else {
            return end(Ending::Lost);
        };
        chain.all.insert(0, at);
        chain.known.insert(0, known);
        chain
    }

    /// Those that may end this one's wait, and how that is known.
    fn owing(&self, at: usize) -> Vec<(usize, Known)> {
        let one = &self.all[at];
        let mut found: Vec<(usize, Known)> = Vec::new();
        for awaited in &one.waits {
            for (index, known) in self.of_object(at, *awaited) {
                // A `select` goes on by any of its channels, some of which timers may close.
                let known = if one.waits.len() > 1 {
                    Known::Assumed
                } else {
                    known
                };
                if !found.iter().any(|(other, _)| *other == index) {
                    found.push((index, known));
                }
            }
        }
        found
    }

    /// Of those that have the object at hand, the ones that end such waits further on. If it is
    /// known of all what they call, and none does, nobody owes it.
    fn of_object(&self, waiter: usize, awaited: Awaited) -> Vec<(usize, Known)> {
        let wants_lock = self.all[waiter].wants_lock();
        let ends = awaited.ended_by(wants_lock);
        let mut unsure = Vec::new();
        for how in HOLDS {
            let (mut owing, mut blind) = (Vec::new(), Vec::new());
            for place in self.at_hand(waiter, awaited, how) {
                let calls = self.calls(place);
                let does = |end: &&str| calls.names.iter().any(|name| name.ends_with(*end));
                let comes = match (ends.iter().any(does), calls.is_all) {
                    (true, _) if wants_lock && !self.is_before((waiter, awaited), place.0) => {
                        self.gives_back(place.0)
                    }
                    (true, _) => GivesBack::Yes,
                    (false, true) => GivesBack::No,
                    (false, false) => GivesBack::Unknown,
                };
                match comes {
                    GivesBack::Yes => owing.push(place.0),
                    GivesBack::Unknown if matches!(how, Held::OnStack | Held::Global) => {
                        blind.push(place.0);
                    }
                    _ => {}
                }
            }
            owing.dedup();
            unsure.extend(blind);
            if owing.is_empty() {
                continue;
            }
            let others = unsure.iter().filter(|index| !owing.contains(index));
            let others: Vec<usize> = others.copied().collect();
            // All who owe a lock or a group have to act; of a channel or condition one is enough,
            // so it is known only if nobody else may.
            let known = match self.all[waiter].needs_all() || owing.len() == 1 && others.is_empty()
            {
                true => Known::ByReference,
                false => Known::Assumed,
            };
            let may = match known {
                Known::ByReference => owing,
                _ => [owing, others].concat(),
            };
            return may.into_iter().map(|index| (index, known)).collect();
        }
        unsure.sort_unstable();
        unsure.dedup();
        let unsure = unsure.into_iter();
        unsure.map(|index| (index, Known::Assumed)).collect()
    }

    /// Does the other one wait at the same lock, as a writer that comes next? Then this one waits
    /// for it, though it has the lock only by then. A lock's semaphores are those of writers among
    /// each other, of the next writer, and of readers.
    fn is_before(&self, (waiter, awaited): (usize, Awaited), other: usize) -> bool {
        let Awaited::Semaphore(at) = awaited else {
            return false;
        };
        let of_next = match &*self.all[waiter].kept.reason {
            "sync.RWMutex.RLock" => at.wrapping_sub(4),
            "sync.RWMutex.Lock" | "sync.Mutex.Lock" => at.wrapping_add(4),
            _ => return false,
        };
        let other = &self.all[other];
        let is_writer = other.kept.reason == "sync.RWMutex.Lock";
        is_writer && other.waits.contains(&Awaited::Semaphore(of_next))
    }

    /// Does it have a lock that it gives back further on? One that it takes there it gives back as
    /// well.
    fn gives_back(&self, index: usize) -> GivesBack {
        let mut known = self.gives_back.borrow_mut();
        *known.entry(index).or_insert_with(|| {
            let one = &self.all[index];
            let taken = i8::from(one.takes_lock());
            self.balance.ahead(&one.frames, &one.deferred, taken)
        })
    }

    /// What the open call has ahead; the outermost of the program has the deferred ones as well.
    fn calls(&self, (index, call): Place) -> Rc<CallsAhead> {
        let mut known = self.calls.borrow_mut();
        let one = &self.all[index];
        let calls = known.entry((index, call)).or_insert_with(|| {
            let frame = one.frames.get(call..call + 1).unwrap_or_default();
            let is_runtimes = frame.iter().any(|pc| {
                let symbol = self.names.caller(*pc).symbol;
                symbol.is_none_or(|name| name.starts_with("runtime."))
            });
            let frame = if is_runtimes { &[] } else { frame };
            Rc::new(self.reach.calls(frame, &one.deferred))
        });
        calls.clone()
    }

    /// Others that have the object at hand in this way.
    fn at_hand(&self, waiter: usize, awaited: Awaited, how: Held) -> Vec<Place> {
        let Some(address) = awaited.address() else {
            return Vec::new();
        };
        let is_other = |index: &usize| {
            *index != waiter
                && self.all[*index].may_owe()
                && !self.all[*index].waits.contains(&awaited)
        };
        let others = (0..self.all.len()).filter(is_other);
        let own = beginnings(awaited);
        let around = || self.around(&self.all[waiter], awaited);
        let at_step = |step: usize, keys: Vec<u64>| {
            let places = others.clone().flat_map(move |index| {
                let steps = self.at_hand.steps(index, &self.all[index]);
                let calls = keys.iter().filter_map(|key| steps[step].get(key));
                let calls: Calls = calls.fold(0, |all, calls| all | calls);
                (0..64)
                    .filter(move |call| calls >> call & 1 == 1)
                    .map(move |call| (index, call))
            });
            places.collect()
        };
        match how {
            Held::OnStack => at_step(0, own),
            Held::Global => {
                let globals = [self.data.places_of(address), own].concat();
                let places = others.clone();
                places
                    .flat_map(|index| self.name_global(index, &globals))
                    .collect()
            }
            Held::Around => at_step(0, around()),
            Held::Pointed => at_step(1, [own, around()].concat()),
            Held::Reached(step) => at_step(step, [own, around()].concat()),
        }
    }

    /// Places in front of a lock, in the same object, that the waiter has as well.
    fn around(&self, waiter: &Goroutine, awaited: Awaited) -> Vec<u64> {
        let is_channel = matches!(awaited, Awaited::Value(_) | Awaited::Room(_));
        let address = awaited.address().filter(|_| !is_channel);
        let begin = address.and_then(|address| self.at_hand.begin(address));
        let Some((address, begin)) = address.zip(begin) else {
            return Vec::new();
        };
        let words = waiter.stack.iter().copied();
        let near: FxHashSet<u64> = words
            .filter(|word| (begin..address).contains(word))
            .collect();
        near.into_iter().collect()
    }

    /// Its open calls whose functions name one of these addresses, relative to their instructions.
    fn name_global(&self, index: usize, globals: &[u64]) -> Vec<Place> {
        let calls = self.all[index].frames.iter().enumerate();
        let is_own = |pc: u64| {
            self.names
                .spots(pc)
                .iter()
                .any(|(whose, _)| *whose < Whose::System)
        };
        let own = calls.filter(|(_, pc)| is_own(**pc)).take(FUNCTIONS);
        let names = |pc: u64| {
            let Some((start, end)) = self.names.function(pc.wrapping_sub(1)) else {
                return false;
            };
            let mut code = vec![0; end.saturating_sub(start).min(LONGEST) as usize];
            let got = self.memory.read(start, &mut code);
            code[..got].windows(4).enumerate().any(|(at, four)| {
                let distance = four.try_into().map_or(0, i32::from_le_bytes);
                let next = start.wrapping_add(at as u64 + 4);
                // One byte or four may follow in the instruction.
                let places = [0u64, 1, 4].map(|rest| next.wrapping_add(rest));
                let mut named = places
                    .iter()
                    .map(|at| at.wrapping_add_signed(distance.into()));
                named.any(|named| globals.contains(&named))
            })
        };
        own.filter(|(_, pc)| names(**pc))
            .map(|(call, _)| (index, call))
            .collect()
    }
}

/// Where the object may begin that is waited for.
fn beginnings(awaited: Awaited) -> Vec<u64> {
    let within: &[u64] = match awaited {
        Awaited::Condition(_) => &IN_CONDITION,
        Awaited::Semaphore(_) => &IN_LOCK,
        _ => &[0],
    };
    let address = awaited.address().into_iter();
    address
        .flat_map(|at| within.iter().map(move |offset| at.wrapping_sub(*offset)))
        .collect()
}
