// SPDX-License-Identifier: MIT
//! Trying out one word and one value in a copy of a thread, as the user asks.
//!
//! In: a thread, a word and a value. Out: what a copy does with it. The process itself is not
//! changed. A first copy shows which pages the thread uses, and how often it looks at the word. Its
//! memory is a mixture of moments; so for the next copy those pages are read at one moment.

use std::thread::Builder;
use std::time::{Duration, Instant};

use flagfinder_code::{Names, NamesInput};
use flagfinder_failure::Failure;
use flagfinder_replica::{Experiment, Live, Moment, Pages, Replica, Rounds, Unfit, Wanted, Word};
use flagfinder_step::{unable, unable_by};

use crate::prove::{learn, unfit, AGAIN};
use crate::tried::Tried;

/// How long the thread may take to stop, a copy to show its loop, and the try itself.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the first copy goes on, and its most instructions.
const EXPLORES: Duration = Duration::from_secs(3);
const MOST: u64 = 8_000_000;

/// Writes a value into a copy of the thread and tells what it does then.
///
/// # Errors
/// Four parts: the thread can't be copied, or its copy repeats nothing.
pub fn try_word(
    pid: u32,
    tid: u32,
    address: u64,
    bytes: usize,
    value: u64,
) -> Result<Tried, Failure> {
    let word = Word {
        address,
        bytes,
        value,
    };
    // ptrace belongs to the thread that started the copy.
    std::thread::scope(|scope| {
        let what = "The experiment failed.";
        let trying = Builder::new().spawn_scoped(scope, || try_out(pid, tid, word));
        let trying = trying.map_err(|error| unable_by(what, &error))?;
        trying
            .join()
            .unwrap_or_else(|_| Err(unable(what, "Its thread panicked", "Please report it")))
    })
}

fn try_out(pid: u32, tid: u32, word: Word) -> Result<Tried, Failure> {
    let live = Live::open(pid)?;
    let begin = Instant::now();
    let failed = |e| unable_by(format!("Thread {tid} can't be copied"), &e);
    let (mut known, mut rounds) = (Wanted::default(), Rounds::default());
    let mut attempts = Vec::new();
    attempts.resize_with(AGAIN + 2, || Pages::new(&live));
    let mut made = Err(Unfit::NoLoop { instructions: 0 });
    for (attempt, pages) in attempts.iter().enumerate() {
        let state = live.capture_with(tid, PATIENCE, Moment::Now, &known)?.state;
        if attempt == 0 {
            let mut explorer = Replica::start(pages, &state).map_err(failed)?;
            rounds = Rounds::between_looks(&mut explorer, word, MOST, begin + EXPLORES)
                .map_err(failed)?;
        } else {
            let found = Experiment::prepare(pages, &state, &[], rounds, PATIENCE);
            made = found.map_err(failed)?;
            let is_of_one_moment = pages.writable(0).is_subset(&known.held);
            if made.is_ok() && is_of_one_moment || begin.elapsed() >= PATIENCE {
                break;
            }
        }
        learn(&mut known, pages);
    }
    let experiment = made.map_err(|e| {
        let what = format!("Nothing can be tried out on thread {tid}.");
        let fix = "Name a thread that spins: `flagfinder spin PID` lists them.";
        unable(what, unfit(&e), fix)
    })?;
    let proof = experiment.try_words(&[word], &[], PATIENCE);
    let input = NamesInput::from_live(pid);
    let input = input.map_err(|e| unable_by(format!("Process {pid}"), &e))?;
    Ok(Tried::of(
        &proof.map_err(failed)?,
        &[word],
        &Names::new(input),
    ))
}
