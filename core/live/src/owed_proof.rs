// SPDX-License-Identifier: MIT
//! Running copies of other threads under watchpoints, to see which of them gives a word a value
//! that ends the wait.
//!
//! In: the other threads, the likeliest first. Each copy's blocking call is answered as if what it
//! waits for came, then as if it came to its end, then as if it failed. Out: of each word the first
//! proof, or the first of the strongest.

use std::time::{Duration, Instant};

use flagfinder_code::{AddressSpace, CodeReader};
use flagfinder_linux::futex;
use flagfinder_linux::syscalls::{self, Role};
use flagfinder_linux::timeout::limit;
use flagfinder_replica::{
    keep, Halt, MadeCall, Pages, Ran, Recheck, Replica, Source, Supposed, Supposition, ThreadState,
    Watched,
};
use rustc_hash::FxHashMap;

use crate::candidate::{Known, Owed};
use crate::ends_wait::{Ends, Judge};
use crate::others::{Other, Process};
use crate::owed_look::Seen;
use crate::owed_text::{after, each, Before};
use crate::writer;

/// Time for all copies of one thread.
const OF_THREAD: Duration = Duration::from_secs(1);
/// Time for one copy, which computes at the processor's own speed.
const OF_COPY: Duration = Duration::from_millis(200);
/// How many moments of the memory are tried if a copy does not come to an end.
const MOMENTS: usize = 3;
/// Time that is left once the likeliest word is proved.
const AFTER_PROOF: Duration = Duration::from_millis(300);
/// A copy that writes more values is given up.
const VALUES: usize = 16;

/// How much a proof says about what the thread waits for; the least comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Strength {
    /// The waiting thread has to end first: it can't wait for that.
    Circular,
    /// It follows on a failure.
    Failing,
    /// What the owing thread asks for when it is woken is there. A copy was made to find that.
    Met,
    /// Nothing has to come first, so waiting longer would have shown the write; or it follows on
    /// the end of data; or another thread has to end first, which then owes that.
    Late,
    /// What the owing thread waits for comes, and then it writes.
    Next,
}

/// By number of the word: the first of the strongest proofs.
pub(crate) type Proofs = FxHashMap<usize, (Strength, Owed)>;

/// Is there no better proof to look for?
fn is_settled(proofs: &Proofs, word: usize) -> bool {
    proofs
        .get(&word)
        .is_some_and(|known| known.0 == Strength::Next)
}

fn are_settled(proofs: &Proofs, judge: &Judge) -> bool {
    let count = judge.targets.len() + usize::from(judge.call.is_some());
    (0..count).all(|word| is_settled(proofs, word))
}

pub(crate) fn run_copies(
    process: &Process,
    source: &dyn Source,
    seen: &[Seen],
    judge: &mut Judge,
) -> Proofs {
    let _keeping = keep();
    let mut deadline = Instant::now() + process.time;
    let mut proofs = Proofs::default();
    for seen in seen.iter().filter(|seen| !seen.other.polls) {
        let end = deadline.min(Instant::now() + OF_THREAD);
        // A thread that can't be copied proves nothing.
        let _ = run_thread(
            process,
            source,
            (seen.other, &seen.state),
            end,
            judge,
            &mut proofs,
        );
        if is_settled(&proofs, 0) {
            deadline = deadline.min(Instant::now() + AFTER_PROOF);
        }
        if Instant::now() >= deadline || are_settled(&proofs, judge) {
            break;
        }
    }
    proofs
}

/// Copies of one thread, one for each thing that may happen to it next.
///
/// # Errors
/// When the system gives no process.
pub(crate) fn run_thread(
    process: &Process,
    source: &dyn Source,
    (other, state): (&Other, &ThreadState),
    deadline: Instant,
    judge: &mut Judge,
    proofs: &mut Proofs,
) -> std::io::Result<()> {
    let pages = Pages::new(source);
    let first = Replica::start(&pages, state)?;
    // The memory of a thread that sleeps does not change by it.
    let moments = match process.is_dead || judge.targets.iter().all(|t| t.asleep_on.is_some()) {
        true => 1,
        false => MOMENTS,
    };
    for how in suppositions(first)? {
        let mut ended = Ended::Halted;
        // The waiting thread holds a lock again and again. If it did when the memory was read, the
        // copy never gets the lock. In the memory of another moment the lock may be free.
        for _ in 0..moments {
            if are_settled(proofs, judge) || Instant::now() >= deadline {
                return Ok(());
            }
            let pages = Pages::new(source);
            let end = deadline.min(Instant::now() + OF_COPY);
            let copy = Replica::start(&pages, state)?;
            ended = run_copy(process, (copy, other), (how, None), end, judge, proofs)?;
            if ended == Ended::Halted {
                break;
            }
        }
        if ended == Ended::ByItself {
            break;
        }
    }
    Ok(())
}

/// Copies of a thread that sleeps at a futex's word, which find what they look for when they are
/// woken.
///
/// # Errors
/// When the system gives no process.
pub(crate) fn run_met(
    process: &Process,
    source: &dyn Source,
    (other, state): (&Other, &ThreadState),
    deadline: Instant,
    judge: &mut Judge,
    proofs: &mut Proofs,
) -> std::io::Result<()> {
    let pages = Pages::new(source);
    for how in [Supposition::Number, Supposition::Line] {
        let supposing = || {
            let mut copy = Replica::start(&pages, state)?;
            copy.suppose(how)?;
            std::io::Result::Ok(copy)
        };
        let found = supposing()?.rechecks(deadline)?;
        for recheck in found.all {
            let end = deadline.min(Instant::now() + OF_COPY);
            if Instant::now() >= end || !supposing()?.goes_on_by(&recheck, &found.round, end)? {
                continue;
            }
            let copy = Replica::start(&pages, state)?;
            let how = (how, Some(recheck));
            run_copy(process, (copy, other), how, end, judge, proofs)?;
            if !proofs.is_empty() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// How a copy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// It can't go on, or nothing more is asked of it.
    Halted,
    /// Its time was over.
    TimeOver,
    /// The same, and nothing was supposed: it does the same whatever happens in the world.
    ByItself,
}

impl Ended {
    fn of(ran: &Ran, copy: &Replica) -> Ended {
        match ran {
            Ran::TimeOver if copy.supposed().is_empty() => Ended::ByItself,
            Ran::TimeOver => Ended::TimeOver,
            _ => Ended::Halted,
        }
    }
}

fn run_copy(
    process: &Process,
    (mut copy, other): (Replica, &Other),
    (how, recheck): (Supposition, Option<Recheck>),
    deadline: Instant,
    judge: &mut Judge,
    proofs: &mut Proofs,
) -> std::io::Result<Ended> {
    let (mut words, mut numbers) = (Vec::new(), Vec::new());
    for (number, target) in judge.targets.iter().enumerate() {
        if is_settled(proofs, number) {
            continue;
        }
        if let Some(word) = Watched::in_copy(&mut copy, target.address, target.bytes)? {
            words.push(word);
            numbers.push(number);
        }
    }
    let before = Before::of(&mut copy)?;
    copy.suppose(how)?;
    if let Some(recheck) = recheck {
        copy.take_other_way_of(recheck);
    }
    let of = |process: &Process, waiting, supposed: &[Supposed]| {
        let strength = strength(process, waiting, supposed, how);
        recheck.map_or(strength, |_| strength.min(Strength::Met))
    };
    let told = |supposed: &[Supposed]| {
        let text = after(&before, supposed, how, process.names);
        match recheck {
            Some(_) => format!("{text}, and what it then asks for is there"),
            None => text,
        }
    };
    for _ in 0..VALUES {
        let ran = copy.run(&mut words, deadline)?;
        let Ran::Wrote {
            word,
            value,
            behind,
        } = ran
        else {
            judge.went_on |= match &ran {
                Ran::Halt(halt) => matches!(halt, Halt::Blocks { .. } | Halt::Exits),
                _ => true,
            };
            let is_fed = |one: &Supposed| !ends_by_time(one.number, &one.arguments);
            judge.was_fed |= copy.supposed().iter().any(is_fed);
            let is_it = |made: &&MadeCall| judge.call.is_some_and(|is_it| is_it(made));
            if let Some(made) = copy.made().iter().find(is_it) {
                let supposed = &copy.supposed()[..made.supposed];
                let owed = Owed {
                    pid: process.pid,
                    tid: other.tid,
                    name: other.name.clone(),
                    code: None,
                    value: None,
                    known: Known::Proved,
                    after: Some(told(supposed)),
                    supposed: each(supposed, how, process.names),
                };
                let strength = of(process, judge.waiting, supposed);
                let number = judge.targets.len();
                if proofs.get(&number).is_none_or(|known| known.0 < strength) {
                    proofs.insert(number, (strength, owed));
                }
            }
            return Ok(Ended::of(&ran, &copy));
        };
        let number = numbers[word];
        let strength = of(process, judge.waiting, copy.supposed());
        let is_known = proofs.get(&number).is_some_and(|known| known.0 >= strength);
        if is_known || judge.ends(number, value) != Ends::Yes {
            continue;
        }
        let pc = storing(process, behind);
        let mut after = told(copy.supposed());
        if process.is_dead {
            after += ", if it does: a core does not tell what descriptors hold";
        }
        let owed = Owed {
            pid: process.pid,
            tid: other.tid,
            name: other.name.clone(),
            code: Some(writer::in_copy(process, &mut copy, pc)),
            value: Some(value),
            known: Known::Proved,
            after: Some(after),
            supposed: each(copy.supposed(), how, process.names),
        };
        proofs.insert(number, (strength, owed));
        if are_settled(proofs, judge) {
            break;
        }
    }
    Ok(Ended::Halted)
}

/// Does the call wait for time, or for a wake-up until then, which brings no data?
pub(crate) fn ends_by_time(number: u32, arguments: &[u64; 6]) -> bool {
    let waits = futex::is_futex(number) && futex::waits_for_word(futex::command(arguments));
    waits && arguments[3] != 0 || syscalls::role(number, arguments) == Role::Sleep
}

/// `waiting`: the own id of the thread that waits; `supposed`: what was answered before the other
/// wrote.
fn strength(process: &Process, waiting: u32, supposed: &[Supposed], how: Supposition) -> Strength {
    let waits_for_end = |id: u32| {
        let mut calls = supposed.iter();
        calls.any(|call| is_join(call.number, &call.arguments, id))
    };
    let mut threads = process.names.input().threads.iter();
    let is_normal = matches!(how, Supposition::Line | Supposition::Number);
    if waits_for_end(waiting) {
        Strength::Circular
    } else if how == Supposition::Failure && !supposed.is_empty() {
        Strength::Failing
    } else if supposed.is_empty()
        || !is_normal
        || threads.any(|thread| waits_for_end(thread.own_id))
    {
        Strength::Late
    } else {
        Strength::Next
    }
}

/// Does the call wait for the thread of that id to end, as pthread_join does? None has the id 0.
pub(crate) fn is_join(number: u32, arguments: &[u64; 6], id: u32) -> bool {
    let waits =
        id != 0 && futex::is_futex(number) && futex::waits_for_word(futex::command(arguments));
    waits && futex::expected(arguments) == u64::from(id)
}

/// What may happen to the thread next; the likeliest comes first.
///
/// # Errors
/// When the copy's process is gone.
fn suppositions(mut copy: Replica) -> std::io::Result<Vec<Supposition>> {
    use Supposition::{End, Failure, Line, Nothing, Number};
    if !copy.is_before_call()? {
        // It computes: calls that follow may still have to be answered.
        return Ok(vec![Line, Number, End]);
    }
    let r = copy.registers();
    let arguments = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
    let mut list = vec![Line, Number, End, Failure];
    if limit(r.rax as u32, &arguments).is_some() {
        list.push(Nothing);
    }
    Ok(list)
}

/// The instruction that stored, by where it ended.
fn storing(process: &Process, behind: u64) -> u64 {
    let memory: &dyn AddressSpace = process.memory;
    let function = process.names.function(behind.wrapping_sub(1));
    let store = function.and_then(|(start, _)| CodeReader::new(memory).before(start, behind));
    // Without known functions it is named by its last byte.
    store.map_or(behind.wrapping_sub(1), |code| code.ip())
}
