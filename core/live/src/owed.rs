// SPDX-License-Identifier: MIT
//! Who owes the write: the thread that would end the wait, and how that is known.
//!
//! In: a thread's report with flags, and the other threads of the process. Out: each flag's `owed`,
//! and `owed_by_nobody` where it is empty. Of each other thread a copy is made. First its code is
//! followed from its open calls: a store to the word on the way is an answer *by code*. Then the
//! copies run (`owed_proof.rs`), those with such a store first: one that gives the word a value
//! which ends the wait is a *proof*. Blind spots: threads that were never started or have ended;
//! tasks that wait on no thread's stack (goroutines, callbacks).

use std::time::Duration;

use flagfinder_code::{CodeReader, Store};
use flagfinder_replica::{Experiment, Source, MOST_WATCHED};
use rustc_hash::FxHashMap;

use crate::candidate::{Known, Owed};
use crate::ends_wait::{Ends, Judge};
use crate::others::{Other, Process};
use crate::owed_look::{look, order, target, Seen, Target, FOLLOWED_OF_ALL};
use crate::owed_nobody::nobody;
use crate::owed_proof::{is_join, run_copies, Strength};
use crate::report::ThreadReport;
use crate::sharers;
use crate::writer;

/// Most words that are asked about.
const WORDS: usize = MOST_WATCHED;
/// Most other threads that are looked at.
const THREADS: usize = 64;
/// Most threads that are reported for one word, if only code is known.
const TOLD: usize = 8;
/// Most other processes whose threads are looked at.
const SHARERS: usize = 4;
/// Time for copies of other threads: for the first thread that has a flag, and for each further
/// one.
pub(crate) const TIME: Duration = Duration::from_secs(2);
pub(crate) const TIME_OF_OTHERS: Duration = Duration::from_millis(700);

/// How sure it is that somebody owes a word; the least sure comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owing {
    /// The threads were asked, and none was found.
    Nobody,
    /// The threads were not asked; or a store may be to the word.
    #[default]
    Unknown,
    /// A store is ahead of a thread.
    ByCode,
    /// A copy of a thread wrote it, but something else has to end first.
    Late,
    /// A copy of a thread wrote it, once what the thread waits for came.
    Proved,
}

/// Asks about the flags of a thread. How sure each one's debt is, by its number.
pub(crate) fn tell(
    process: &Process,
    source: &dyn Source,
    experiment: Option<&Experiment>,
    thread: &mut ThreadReport,
) -> Vec<Owing> {
    let flags = &mut thread.flags;
    let mut owings = vec![Owing::default(); flags.len()];
    for flag in flags.iter_mut() {
        flag.owed_by_nobody(match flag.is_word() {
            true => "it was not asked about: it is not among the likeliest words",
            false => "it is what a system call answers, which no thread writes",
        });
    }
    let mut reader = CodeReader::new(process.memory);
    let targets: Vec<Target> = flags
        .iter()
        .enumerate()
        .filter_map(|(at, flag)| target(at, flag, process.names, &mut reader))
        .take(WORDS)
        .collect();
    if targets.is_empty() {
        return owings;
    }
    let others: Vec<&Other> = process
        .others
        .list
        .iter()
        .filter(|other| other.tid != thread.tid)
        .take(THREADS)
        .collect();
    let mut refused = process.others.left_out.clone();
    let mut seen = ahead(process, &others, &targets, &mut reader, &mut refused);
    order(&mut seen);
    let mut threads = process.names.input().threads.iter();
    let waiting = threads.find(|known| known.tid == thread.tid);
    let mut ends = Judge {
        waiting: waiting.map_or(thread.tid, |known| known.own_id),
        targets: &targets,
        experiment,
        known: FxHashMap::default(),
        call: None,
        went_on: false,
        was_fed: false,
    };
    let mut proofs = run_copies(process, source, &seen, &mut ends);
    for (number, target) in targets.iter().enumerate() {
        let (mut owed, mut owing) = match proofs.remove(&number) {
            Some((strength, owed)) => {
                let owing = match strength {
                    Strength::Circular => Owing::Unknown,
                    Strength::Failing | Strength::Met | Strength::Late => Owing::Late,
                    Strength::Next => Owing::Proved,
                };
                let tried = ends.tried(number, &owed, process.names);
                if let Some(tried) = tried.filter(|_| strength == Strength::Next) {
                    let flag = &mut flags[target.flag];
                    flag.set_proof(tried);
                    flag.flag.value.exit = owed.value;
                }
                (vec![owed], owing)
            }
            None => by_code(process, &seen, (number, number), target, &mut ends),
        };
        if owed.is_empty() && !process.is_dead {
            (owed, owing) = by_others(process, number, target, &mut ends);
        }
        let flag = &mut flags[target.flag];
        if owed.is_empty() {
            owing = Owing::Nobody;
            flag.owed_by_nobody(nobody(process, &seen, target, refused.as_deref()));
        } else {
            flag.owed_by(owed);
        }
        owings[target.flag] = owing;
    }
    owings
}

/// The stores ahead of each thread that can be copied. `refused` gets the reason why the last one
/// of the others can't be.
fn ahead<'a>(
    process: &Process,
    others: &[&'a Other],
    targets: &[Target],
    reader: &mut CodeReader,
    refused: &mut Option<String>,
) -> Vec<Seen<'a>> {
    let mut left = FOLLOWED_OF_ALL;
    let mut seen = Vec::new();
    for other in others {
        match (process.capture)(other.tid) {
            Ok(state) => seen.push(look(process, other, state, targets, reader, &mut left)),
            Err(why) => *refused = Some(format!("thread {} can't be copied: {why}", other.tid)),
        }
    }
    seen
}

/// Threads of other processes that map the word; only their code is looked at.
fn by_others(
    process: &Process,
    number: usize,
    target: &Target,
    ends: &mut Judge,
) -> (Vec<Owed>, Owing) {
    let (mut owed, mut owing) = (Vec::new(), Owing::Unknown);
    let sharers = sharers::sharers(process.pid, process.names, target.address);
    for (pid, address) in sharers.into_iter().take(SHARERS) {
        let target = Target {
            address,
            ..target.clone()
        };
        // A process that may not be looked at, or has ended, is left out.
        let found = sharers::within(pid, |process| {
            let others: Vec<&Other> = process.others.list.iter().take(THREADS).collect();
            let targets = std::slice::from_ref(&target);
            let mut reader = CodeReader::new(process.memory);
            let mut seen = ahead(process, &others, targets, &mut reader, &mut None);
            order(&mut seen);
            // The word is the only one there, so it has the number of ours.
            by_code(process, &seen, (0, number), &target, ends)
        });
        if let Some((found, how)) = found {
            owed.extend(found);
            owing = owing.max(how);
        }
    }
    owed.truncate(TOLD);
    (owed, owing)
}

/// The threads that have a store to the word ahead; if it is certain of some of them, only those.
/// The word has a number among the words that were looked for, and another among those of the loop.
fn by_code(
    process: &Process,
    seen: &[Seen],
    (looked, number): (usize, usize),
    target: &Target,
    ends: &mut Judge,
) -> (Vec<Owed>, Owing) {
    let ahead: Vec<(&Seen, Store, bool)> = seen
        .iter()
        .filter_map(|seen| seen.stores[looked].map(|(store, exact)| (seen, store, exact)))
        .filter(|(_, store, _)| {
            let value = target.value(store);
            value.is_none_or(|value| ends.ends(number, value) != Ends::No)
        })
        .collect();
    // A thread can't wait for what comes only after its own end.
    let is_free = |seen: &Seen| {
        let r = &seen.state.registers;
        let arguments = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
        !is_join(r.rax as u32, &arguments, ends.waiting)
    };
    let ahead: Vec<_> = ahead.into_iter().filter(|one| is_free(one.0)).collect();
    let certain = ahead.iter().any(|(_, _, exact)| *exact);
    let owing = match certain {
        true => Owing::ByCode,
        false => Owing::Unknown,
    };
    let chosen = ahead.into_iter().filter(|(_, _, exact)| *exact || !certain);
    let owed = chosen.map(|(seen, store, _)| Owed {
        pid: process.pid,
        tid: seen.other.tid,
        name: seen.other.name.clone(),
        code: Some(writer::ahead(process.names, seen, &store)),
        value: target.value(&store),
        known: Known::ByCode,
        after: seen.other.waits.clone(),
        supposed: Vec::new(),
    });
    (owed.take(TOLD).collect(), owing)
}
