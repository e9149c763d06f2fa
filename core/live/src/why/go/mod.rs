// SPDX-License-Identifier: MIT
//! Goroutines of a Go program: which are blocked, in what, where, and which other one owes it.
//!
//! A thread for which Go's scheduler has no goroutine sleeps on a futex that names nobody, or waits
//! for the next timer and for any socket. What keeps such a program is the chain of goroutines that
//! begins with the first one, which executes `main.main`; or, where that waits for clients or time,
//! one that waits for a lock. Blind spots: who ends a goroutine's wait for a condition that only
//! code far away reaches; goroutines of a plugin.

mod at_hand;
mod awaited;
mod goroutine;
mod owes;
mod polled;
mod resumed;
mod runtime;
mod slots;
mod spans;

use flagfinder_code::{AddressSpace, ByPages, Code, Spot, Whose};
use flagfinder_flags::Flag;

use self::awaited::Awaited;
use self::goroutine::{Goroutine, IO};
use self::owes::{Chain, Debts, Ending};
use self::runtime::{Data, State as Does};
use super::files;
use super::obstacle::{Debtor, End, Obstacle, State, Who};
use super::process::{Process, Processes};
use super::report::{Kind, Known, Link, Node, OwedBy, RootKind, WaitsFor};

pub use self::resumed::resumed as resumed_goroutines;

/// Most open calls of a thread among which the scheduler is looked for.
const THREADS_CALLS: usize = 32;
/// Functions in which a thread looks for a goroutine to run.
const SCHEDULER: [&str; 3] = [
    "runtime.findRunnable+",
    "runtime.schedule+",
    "runtime.stopm+",
];
/// Bytes of all stacks together.
const STACKS: u64 = 64 << 20;
/// Most groups of goroutines that are told.
const TOLD: usize = 3;

/// A chain within the tasks of a scheduler, which run on no thread of their own.
#[derive(Clone, Debug)]
pub struct Tasks {
    pub links: Vec<Link>,
    pub last: Node,
}

/// What keeps the last of them, and where that stands.
pub struct Looked {
    pub state: State,
    pub stack: Vec<Code>,
    pub at: Option<Spot>,
    pub tasks: Tasks,
    /// The thread itself runs the last of them: what keeps that is what keeps the thread.
    pub is_own: bool,
}

/// What keeps the goroutines, where the thread sleeps since there is none to run, or where the
/// chain begins with it and one of them waits for another. `stack`: its open calls.
pub fn look(
    processes: &mut Processes,
    (pid, tid): (u32, u32),
    stack: &[Code],
    begins: bool,
) -> Option<Looked> {
    let is_idle = is_idle(stack);
    let process = processes.get(pid).filter(|_| is_idle || begins)?;
    let (all, chain, is_own) = {
        let inside = process.inside.as_ref()?;
        let data = data(process)?;
        let memory = ByPages::new(|at, buffer: &mut [u8]| inside.memory.read(at, buffer));
        let all = read(process, &memory, &data)?;
        let chain = choose(&Debts::new(&all, &memory, &inside.names, &data))?;
        if !is_idle && chain.all.len() < 2 {
            return None;
        }
        let last = &all[chain.all[chain.all.len() - 1]].kept;
        let runs = matches!(last.state, Does::Runs | Does::InCall);
        let thread = last.thread.and_then(|own| process.own_ids.get(&own));
        let is_own = runs && thread == Some(&tid);
        (all, chain, is_own)
    };
    let found = told(processes, (pid, tid), &all, &chain, None);
    Some(Looked { is_own, ..found })
}

/// A thread polls words that no thread is to write: the goroutine that is, and what keeps that one.
/// `flags`: words that are told, the likeliest first.
pub fn polled(
    processes: &mut Processes,
    (pid, tid): (u32, u32),
    flags: &[&Flag],
    (stack, at): (Vec<Code>, Option<Spot>),
) -> Option<Looked> {
    let name = processes.name(pid, tid);
    let process = processes.get(pid)?;
    let inside = process.inside.as_ref()?;
    let data = data(process)?;
    let memory = ByPages::new(|at, buffer: &mut [u8]| inside.memory.read(at, buffer));
    let all = read(process, &memory, &data)?;
    let place = |flag: &&Flag| (flag.address.spin.unwrap_or_default(), flag.size as usize);
    let words: Vec<(u64, usize)> = flags.iter().map(place).collect();
    let writers = polled::writers(&memory, &all, &words);
    let first = *writers.first()?;
    let chain = Debts::new(&all, &memory, &inside.names, &data).follow(first.goroutine);
    drop(memory);
    let (known, reason) = match writers.len() {
        1 => (Known::ByCode, "its code writes there further on".into()),
        several => (
            Known::Assumed,
            format!("it is one of {several} whose code writes there further on"),
        ),
    };
    let node = |task: Option<String>| Node {
        pid,
        tid,
        name: name.clone(),
        task,
    };
    let link = Link {
        waiter: node(None),
        waits_for: WaitsFor {
            kind: Kind::Flag,
            name: flags[first.word].name.clone(),
            address: Some(format!("{:#x}", words[first.word].0)),
            statement: None,
        },
        owed_by: Some(OwedBy {
            code: Some(inside.names.code(first.pc)),
            node: node(Some(all[first.goroutine].called())),
        }),
        known,
        reason,
        stack,
        at,
        supposed: Vec::new(),
    };
    Some(told(processes, (pid, tid), &all, &chain, Some(link)))
}

/// A chain of goroutines. `before`: the link that leads to its first one.
fn told(
    processes: &mut Processes,
    (pid, tid): (u32, u32),
    all: &[Goroutine],
    chain: &Chain,
    before: Option<Link>,
) -> Looked {
    let name = processes.name(pid, tid);
    let node = |index: usize| Node {
        pid,
        tid,
        name: name.clone(),
        task: Some(all[index].called()),
    };
    let codes = |index: usize| {
        let inside = processes
            .known(pid)
            .and_then(|process| process.inside.as_ref());
        let frames = all[index].frames.iter();
        inside.map_or_else(Vec::new, |inside| {
            frames.map(|pc| inside.names.caller(*pc)).collect()
        })
    };
    let back = match chain.ending {
        Ending::Circle(back) => Some(back),
        _ => None,
    };
    let link = |at: usize| {
        let from = chain.all[at];
        // What only begins later, as a function that a timer calls, may send or signal as well. A
        // lock or a group waits for those who are there.
        let may_end_otherwise = back.is_some_and(|back| at >= back) && !all[from].needs_all();
        let known = match may_end_otherwise {
            true => Known::Assumed,
            false => chain.known[at],
        };
        let next = chain
            .all
            .get(at + 1)
            .copied()
            .or(back.map(|back| chain.all[back]))?;
        let (waits_for, word, ends) = all[from].waits_for();
        let reason = match known {
            Known::ByReference => {
                format!("it can reach the {word}, and {ends} further on")
            }
            _ => format!("it is one of those that can reach the {word}, and {ends} further on"),
        };
        Some(Link {
            waiter: node(from),
            waits_for,
            owed_by: Some(OwedBy {
                code: codes(next)
                    .into_iter()
                    .find(|code| !code.is_standard_library()),
                node: node(next),
            }),
            known,
            reason,
            stack: codes(from),
            at: all[from].at.clone(),
            supposed: Vec::new(),
        })
    };
    let is_owed = chain.all.len() > 1 || before.is_some();
    let own = (0..chain.known.len()).filter_map(link);
    let links = before.into_iter().chain(own).collect();
    let last = chain.all[chain.all.len() - 1];
    let tasks = Tasks {
        links,
        last: node(last),
    };
    let (stack, at) = (codes(last), all[last].at.clone());
    let state = end(processes, (pid, tid), (all, chain), is_owed);
    Looked {
        state,
        stack,
        at,
        tasks,
        is_own: false,
    }
}

/// What keeps the last goroutine of a chain. `is_owed`: another one waits for it.
fn end(
    processes: &mut Processes,
    (pid, tid): (u32, u32),
    (all, chain): (&[Goroutine], &Chain),
    is_owed: bool,
) -> State {
    let last = &all[chain.all[chain.all.len() - 1]];
    let (waits_for, word, ends) = last.waits_for();
    let told = |end: End| {
        let reason = end.what.clone();
        State::Waits(vec![Obstacle {
            waits_for: waits_for.clone(),
            reason,
            ..Obstacle::ends(waits_for.kind, "", end)
        }])
    };
    match chain.ending {
        Ending::Circle(_) => State::End(End::fault(
            RootKind::Deadlock,
            "goroutines wait for each other",
        )),
        Ending::Nobody if last.is_for_ever() => told(End::fault(
            RootKind::Deadlock,
            format!("{} waits for what nobody can send or close", last.called()),
        )),
        Ending::Nobody => told(End::unknown(format!(
            "no other goroutine that can reach the {word} {ends} further on{}",
            blocked_beside(all, &chain.all)
        ))),
        Ending::Lost => told(End::unknown("the chain was not followed further")),
        Ending::Goes => runs(processes, pid, last),
        Ending::Elsewhere => {
            let file = last.waits.iter().find_map(|awaited| match awaited {
                Awaited::File(number) => Some(*number),
                _ => None,
            });
            match file {
                Some(number) => {
                    let mut obstacles = files::each(processes, pid, tid, &[number], IO);
                    // No thread is bound to a goroutine, so none of them is to use the other end.
                    for one in obstacles.iter_mut().filter(|one| is_own(one, pid)) {
                        one.debtors.clear();
                        one.by_elimination = false;
                        one.reason = format!(
                            "only process {pid} itself has the other end, and which goroutine is \
                             to use it is not known{}",
                            blocked_beside(all, &chain.all)
                        );
                        one.otherwise = End::unknown(&one.reason);
                    }
                    State::Waits(obstacles)
                }
                None if last.kept.reason == "sleep" && is_owed => {
                    told(End::idle(RootKind::Timer, "it sleeps"))
                }
                None => told(End::unknown(format!(
                    "nothing says who owes it{}",
                    blocked_beside(all, &chain.all)
                ))),
            }
        }
    }
}

/// Is it the process itself that has the other end?
fn is_own(obstacle: &Obstacle, pid: u32) -> bool {
    let is_it = |one: &Debtor| match one.who {
        Who::Process(of, _) | Who::AnyOf(of, _) | Who::Thread(of, _) => of == pid,
    };
    !obstacle.debtors.is_empty() && obstacle.debtors.iter().all(is_it)
}

/// Of one that a thread runs, or that is ready.
fn runs(processes: &mut Processes, pid: u32, one: &Goroutine) -> State {
    let ids = processes.known(pid).map(|process| &process.own_ids);
    let thread = one.kept.thread.and_then(|own| ids?.get(&own).copied());
    let (what, thread) = match (one.kept.state, thread) {
        (Does::InCall, Some(thread)) => ("the end of its system call", thread),
        (Does::Runs, Some(thread)) => ("its own work", thread),
        _ => return State::End(End::unknown(format!("{} is about to run", one.called()))),
    };
    let debtor = Debtor::seen(
        Who::Thread(pid, thread),
        format!("this thread runs {}", one.called()),
    );
    State::Waits(vec![Obstacle::owed(Kind::Call, what, vec![debtor])])
}

/// The chain from the first goroutine; where that waits for clients or time, the chain of one that
/// waits for a lock, rather a circle.
fn choose(debts: &Debts) -> Option<Chain> {
    let first = debts
        .all
        .iter()
        .position(|one| one.kept.id == 1)
        .unwrap_or(0);
    let chain = (first < debts.all.len()).then(|| debts.follow(first))?;
    if chain.ending != Ending::Elsewhere {
        return Some(chain);
    }
    let wants = (0..debts.all.len()).filter(|index| debts.all[*index].wants_lock());
    let chains = wants.map(|index| debts.follow(index));
    let hangs = chains.filter(|chain| !matches!(chain.ending, Ending::Goes | Ending::Lost));
    let found = hangs.min_by_key(|chain| (chain.ending, chain.all.len()));
    Some(found.unwrap_or(chain))
}

/// The open calls of each that waits or is in a system call.
pub fn calls(process: &Process) -> Vec<Vec<(Whose, Spot)>> {
    let all = || {
        let inside = process.inside.as_ref()?;
        read(process, &*inside.memory, &data(process)?)
    };
    all()
        .unwrap_or_default()
        .into_iter()
        .map(|one| one.calls)
        .collect()
}

/// The goroutines that wait, where another one runs.
pub fn also_blocked(process: &Process) -> Option<String> {
    let inside = process.inside.as_ref()?;
    let all = read(process, &*inside.memory, &data(process)?)?;
    others(
        &all.iter()
            .filter(|one| one.is_blocked())
            .collect::<Vec<_>>(),
    )
}

fn blocked_beside(all: &[Goroutine], chain: &[usize]) -> String {
    let beside = all
        .iter()
        .enumerate()
        .filter(|(index, one)| one.is_blocked() && !chain.contains(index));
    let beside: Vec<&Goroutine> = beside.map(|(_, one)| one).collect();
    others(&beside).map_or(String::new(), |others| {
        format!("; blocked as well: {others}")
    })
}

/// Does the thread look for a goroutine to run?
pub fn is_idle(stack: &[Code]) -> bool {
    let is_scheduler = |code: &Code| {
        let symbol = code.symbol.as_deref();
        symbol.is_some_and(|symbol| SCHEDULER.iter().any(|begins| symbol.starts_with(begins)))
    };
    stack.iter().take(THREADS_CALLS).any(is_scheduler)
}

/// `None`: it is no program of Go.
fn data(process: &Process) -> Option<Data> {
    let inside = process.inside.as_ref()?;
    Some(Data::read(&*inside.memory, &inside.names.go_data()?))
}

/// All that are not over, those that sleep last.
fn read(process: &Process, memory: &dyn AddressSpace, data: &Data) -> Option<Vec<Goroutine>> {
    let names = &process.inside.as_ref()?.names;
    let threads: Vec<u32> = process.own_ids.keys().copied().collect();
    let kept = runtime::goroutines(memory, data, &threads)?;
    let mut room = STACKS;
    let living = kept.into_iter().filter(|one| one.state != Does::Over);
    let mut all: Vec<Goroutine> = living
        .map(|one| Goroutine::read(memory, names, one, &mut room))
        .collect();
    all.sort_by_key(|one| (one.kept.reason == "sleep", one.kept.id));
    Some(all)
}

/// Goroutines that do the same at the same place are told together.
fn others(all: &[&Goroutine]) -> Option<String> {
    let mut groups: Vec<Vec<&Goroutine>> = Vec::new();
    for one in all {
        let is_like = |group: &&mut Vec<&Goroutine>| {
            (&group[0].kept.reason, &group[0].place) == (&one.kept.reason, &one.place)
        };
        match groups.iter_mut().find(is_like) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    let told = groups.iter().take(TOLD).map(|group| match &group[..] {
        [one] => one.told(),
        several => {
            let (count, first) = (several.len(), several[0]);
            let place = first.place.as_deref().unwrap_or("the runtime");
            format!("{} ({count} goroutines, {place})", first.kept.reason)
        }
    });
    let mut texts: Vec<String> = told.collect();
    let more: usize = groups.iter().skip(TOLD).map(Vec::len).sum();
    if more > 0 {
        texts.push(format!("and {more} more"));
    }
    (!texts.is_empty()).then(|| texts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::runtime::Kept;
    use super::*;

    pub fn goroutine(id: u64, reason: &str, place: &str) -> Goroutine {
        Goroutine {
            kept: Kept {
                address: 0x1000 * id,
                id,
                state: Does::Waits,
                reason: reason.into(),
                pc: 0,
                frame: 0,
                begin: 0,
                state_at: 0,
                stack: 0x8000..0x8100,
                thread: None,
            },
            frames: Vec::new(),
            bounds: vec![0x8010, 0x8080],
            calls: Vec::new(),
            at: None,
            place: Some(place.into()),
            deferred: Vec::new(),
            closures: Vec::new(),
            stack: Vec::new(),
            waits: Vec::new(),
        }
    }

    #[test]
    fn goroutines_at_one_place_are_told_together() {
        let all = [
            goroutine(7, "chan send", "main.work at a.go:3"),
            goroutine(8, "select", "main.serve at a.go:9"),
            goroutine(9, "chan send", "main.work at a.go:3"),
        ];
        let told = others(&all.iter().collect::<Vec<_>>()).unwrap();
        let expected = "chan send (2 goroutines, main.work at a.go:3); select (goroutine 8, \
                        main.serve at a.go:9)";
        assert_eq!(told, expected);
        assert_eq!(others(&[]), None);
        let many: Vec<Goroutine> = (2..9)
            .map(|id| goroutine(id, "sleep", &format!("main.f{id}")))
            .collect();
        let told = others(&many.iter().collect::<Vec<_>>()).unwrap();
        assert!(told.ends_with("; and 4 more"));
    }

    /// Memory by words; the others are not there.
    #[derive(Default)]
    pub struct Words(std::collections::BTreeMap<u64, u64>);

    impl FromIterator<(u64, u64)> for Words {
        fn from_iter<T: IntoIterator<Item = (u64, u64)>>(words: T) -> Words {
            Words(words.into_iter().collect())
        }
    }

    impl AddressSpace for Words {
        fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
            for (at, byte) in buffer.iter_mut().enumerate() {
                let place = address.wrapping_add(at as u64);
                let Some(word) = self.0.get(&(place & !7)) else {
                    return at;
                };
                *byte = word.to_le_bytes()[place as usize % 8];
            }
            buffer.len()
        }
    }
}
