// SPDX-License-Identifier: MIT
//! The master of a pool may sleep while its workers spin for more work.
//!
//! A worker that finds no work polls a word that its master writes. When the master sleeps until
//! one of the workers answers, and that one never does, the others look as if they hung. They idle:
//! the wait that matters is the master's. Told by three facts. The polled word is the master's to
//! write, as the normal run shows; the master sleeps in a futex call; and in the normal run the
//! word of that call was written by the very thread that now spins: it too answers the master.
//!
//! A thread that writes that word within its loop takes it as a lock, and is no idle worker.
//! Blind spots: words on a stack, and pools of one worker, in which nobody is left to spin.

use flagfinder_diff::{BlockedThread, Divergence};
use flagfinder_linux::futex;
use flagfinder_machine::Window;
use flagfinder_trace::{Event, Flow, Result, Thread};

use crate::block_set::BlockSet;
use crate::choose_thread::{foreign_writers, has_flag, is_owed_by};
use crate::counterpart::by_home;
use crate::evidence::Outside;
use crate::naming::Naming;
use crate::owed::Compared;
use crate::report::{Addresses, Flag, Report, ThreadName, Threads, Values, Verdict};
use crate::run::Run;
use crate::run_evidence::search;
use crate::standing::Standing;
use crate::stores::Questions;
use crate::word_flag::{futex_flag, writers, FUTEX_BYTES};

/// Bytes of flow in which the call is looked for that a thread sleeps in.
const TAIL: u64 = 64 << 10;
/// How much it is worth that another thread wrote the word in the normal run, and that there was no
/// other word.
const CONFIDENCE: f64 = 0.8;

/// A thread that spins, and what was found of it.
pub struct Worker<'a> {
    pub window: &'a Window,
    /// The step of the window from which on it goes round.
    pub loops_from: u32,
    pub report: &'a Report,
}

/// The masters that sleep while these threads spin for their work.
///
/// # Errors
/// When a trace cannot be read.
pub fn find<'a>(
    run: &Run,
    compared: &Compared,
    divergence: &Divergence,
    spinning: impl Iterator<Item = Worker<'a>> + Clone,
) -> Result<Vec<Report>> {
    let mut found = Vec::new();
    let Some(normal) = compared.normals.first() else {
        return Ok(found);
    };
    let image = (run.process.pid, run.process.image);
    let of_image = |blocked: &&BlockedThread| (blocked.thread.pid, blocked.thread.image) == image;
    for blocked in divergence.blocked.iter().filter(of_image) {
        let Some(threads) = paired(divergence, blocked) else {
            continue;
        };
        let mut master = Report::nothing(Verdict::NoFlag, "");
        master.threads.normal.clone_from(&threads.normal);
        let owes = |worker: &Worker| has_flag(worker.report) && is_owed_by(worker.report, &master);
        let workers: Vec<Worker> = spinning.clone().filter(owes).collect();
        let thread = run
            .process
            .threads()
            .iter()
            .rfind(|one| one.tid == blocked.thread.tid);
        let (Some(thread), false) = (thread, workers.is_empty()) else {
            continue;
        };
        let Some((word, expected)) = sleeps_on(thread)? else {
            continue;
        };
        let Some(there) = by_home(&run.names, word, &normal.names) else {
            continue;
        };
        let takes = |worker: &Worker| {
            (worker.loops_from..worker.window.len()).any(|step| {
                let mut accesses = worker.window.accesses(step).iter();
                accesses.any(|access| access.write && access.address == Some(word))
            })
        };
        if workers.iter().any(takes) {
            continue;
        }
        let (flag, outside) = tell(run, normal, &threads, (word, there), expected)?;
        let answers = |worker: &Worker| {
            let normal = worker.report.threads.normal.as_ref();
            let mut writers = foreign_writers(&flag, threads.normal.as_ref());
            writers.any(|tid| Some(tid) == normal.map(|thread| thread.tid))
        };
        if workers.iter().any(answers) {
            let mut report = Report {
                reason: format!("the thread sleeps until {} changes", flag.name),
                threads,
                flags: vec![flag],
                ..Report::nothing(Verdict::DataFlag, "")
            };
            compared.tell(&mut report, &outside)?;
            found.push(report);
        }
    }
    Ok(found)
}

fn paired(divergence: &Divergence, blocked: &BlockedThread) -> Option<Threads> {
    let name = |thread: &flagfinder_diff::ThreadRef| ThreadName {
        tid: thread.tid,
        name: thread.name.clone(),
    };
    let of_blocked = |pair: &&flagfinder_diff::ThreadPair| {
        pair.spin
            .as_ref()
            .is_some_and(|spin| *spin == blocked.thread)
    };
    let pair = divergence.threads.iter().find(of_blocked)?;
    Some(Threads {
        normal: Some(name(pair.normal.as_ref()?)),
        spin: Some(name(&blocked.thread)),
    })
}

/// Address of the word that it sleeps on, and the value at which it went to sleep.
fn sleeps_on(thread: &Thread) -> Result<Option<(u64, u64)>> {
    let mut call = None;
    for item in thread.flow_tail(TAIL) {
        match item? {
            Flow::Event {
                event: Event::SyscallEnter(entered),
                ..
            } => call = Some((entered.number, entered.args)),
            Flow::Event {
                event: Event::SyscallExit { .. },
                ..
            }
            | Flow::Block { .. } => call = None,
            _ => {}
        }
    }
    let word = call.filter(|(number, args)| {
        futex::is_futex(*number) && futex::waits_for_word(futex::command(args))
    });
    Ok(word.map(|(_, args)| (args[0], futex::expected(&args))))
}

fn tell(
    run: &Run,
    normal: &Run,
    threads: &Threads,
    (word, there): (u64, u64),
    expected: u64,
) -> Result<(Flag, Outside)> {
    let reader = |name: &Option<ThreadName>| name.as_ref().map(|thread| thread.tid);
    let mut outside = [Outside {
        reader: reader(&threads.normal),
        normal_searched: true,
        ..Outside::default()
    }];
    for (run, address, reader, number) in [
        // Only the first ones are kept of many: the good run tells who owes the write.
        (normal, there, reader(&threads.normal), Some(0)),
        (run, word, reader(&threads.spin), None),
    ] {
        let mut questions = Questions::default();
        questions.watch(address, FUTEX_BYTES, (0, word), reader);
        search(run, &BlockSet::default(), questions, number, &mut outside)?;
    }
    let [outside] = outside;
    let naming = Naming {
        spin: &run.names,
        normal: Some(&normal.names),
    };
    let data = run.names.data(word);
    let address = Addresses {
        normal: Some(there),
        spin: Some(word),
    };
    let value = Values {
        spin: Some(expected),
        ..Values::default()
    };
    let stores = outside.stores.get(&word).map_or(&[][..], Vec::as_slice);
    let flag = Flag {
        rank: 1,
        confidence: CONFIDENCE,
        standing: Standing::SeenInGoodRun,
        writers: writers(&naming, stores, Some(there)),
        evidence: vec![
            "the thread sleeps in a futex call on it".into(),
            "it gives work to the threads that spin: they idle".into(),
            "in the normal run those threads wrote it, as their answer".into(),
        ],
        ..futex_flag(data, address, value, format!("value != {expected:#x}"))
    };
    Ok((flag, outside))
}
