// SPDX-License-Identifier: MIT
//! Copies of one thread from several moments.
//!
//! Where others change what a thread reads (a lock that threads hand to each other, what an
//! interpreter is asked to do in between), no copy is the thread for long. But each is what the
//! thread would do if the others let it. In: a thread whose copy does not stand for it. Out: what
//! its copies agree on, or why they tell nothing. A copy begins where another thread has just woken
//! its thread: whoever waits for its turn has it then. To one that waits for its turn again that is
//! given (`turns.rs`), which the report says. Blind spot: what others do while the thread runs.

use std::time::{Duration, Instant};

use flagfinder_analysis::tasks::switches;
use flagfinder_analysis::Seen;
use flagfinder_code::AddressSpace;
use flagfinder_failure::Failure;
use flagfinder_flags::{has_flag, Flag, Report, Verdict};
use flagfinder_machine::Window;
use flagfinder_replica::{Live, Moment, Pages, Unready, Word};
use flagfinder_step::{is_abandoned, is_hurried};

use crate::memory::{refused, Memory};
use crate::original::{takes_input, How, Original, TAKES};
use crate::stepping_job::MANY;
use crate::tried::halted;
use crate::turns::{given, waits_again};

/// So many copies have to agree; if the time is over, so many have to agree on a word.
const ENOUGH: usize = 3;
const LEAST: usize = 2;
/// Where the program's own code tells what its loop waits for, one shows where that lies.
const OF_KNOWN: usize = 1;
/// Time for all copies, for one of them, and until the thread is woken.
const TIME: Duration = Duration::from_millis(1000);
const EACH: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_millis(30);
/// A thread that waits for its turn does so for some time before it has it. A thread that runs has
/// it.
const MOMENTS: [Moment; 3] = [
    Moment::Woken {
        patience: PATIENCE,
        timed: true,
    },
    Moment::Now,
    Moment::Woken {
        patience: PATIENCE,
        timed: false,
    },
];
/// Most copies that are made. Only the later ones are given their turn.
const MOST: usize = 24;
const TRUE_TURNS: usize = 9;
/// How long the word is looked at after the last copy, and the time between two looks. A worker
/// that others give work to has the value again that it waits with most of the time.
const LATER: Duration = Duration::from_millis(150);
const BETWEEN: Duration = Duration::from_micros(100);

/// What copies agree on.
pub struct Agreed {
    pub report: Report,
    pub steps: u32,
    pub why: String,
}

/// Looks at copies from several moments. `report` tells what one shows.
///
/// # Errors
/// When the thread can't be copied.
pub fn look(
    pid: u32,
    original: &mut Original,
    report: &dyn Fn(&Window) -> Report,
) -> Result<Result<Agreed, String>, Failure> {
    let live = Live::open(pid)?;
    let memory = Memory::open(pid).map_err(|e| refused(pid, &e))?;
    let begin = Instant::now();
    original.has_pages = false;
    let turn: &dyn Fn(&Window) -> Option<Word> = &|window| given(&report(window));
    let mut seen: Vec<Agreed> = Vec::new();
    let mut windows = Vec::new();
    let mut missing = String::from("no copy was made");
    for number in 0..MOST {
        if seen.len() >= most(ENOUGH) || begin.elapsed() > TIME || is_abandoned() {
            break;
        }
        let pages = Pages::new(&live);
        let how = How {
            moment: MOMENTS[number % MOMENTS.len()],
            time: EACH,
            most: MANY,
            gives_back: true,
        };
        let turn = if number < TRUE_TURNS {
            &|_: &_| None
        } else {
            turn
        };
        let copied = original.copy(&live, &pages, how, &shows_rounds, turn)?;
        let window = copied.round.window;
        if waits_again(&window) {
            missing = "its copies wait for their turn".into();
            continue;
        }
        if let Some(halt) = &copied.round.halt {
            missing = format!("in a copy of another moment {}", halted(halt));
        }
        if copied.mixed || copied.round.halt.is_some() {
            original.learn(&pages);
            continue;
        }
        // Perhaps the thread had no turn at that moment, though its copy was given one.
        if copied.given_back > 0 {
            let of_one = std::slice::from_ref(&window);
            if let Some(why) = original.places.mostly_elsewhere(of_one, &live) {
                missing = why;
                continue;
            }
        }
        if switches(&window) {
            return Ok(Err("a copy of another moment changes stacks".into()));
        }
        let mut report = report(&window);
        if copied.given_back > 0 {
            report.notes.push(format!(
                "what it waits for was given to its copy {} times",
                copied.given_back
            ));
        }
        let agreed = Agreed {
            report,
            steps: window.len(),
            why: String::new(),
        };
        if takes_input(&window) && agreed.report.facts.gets_on && !has_flag(&agreed.report) {
            let why = TAKES.to_owned();
            return Ok(Ok(Agreed { why, ..agreed }));
        }
        windows.push(window);
        seen.push(agreed);
    }
    let polls = seen.iter().any(|agreed| has_flag(&agreed.report));
    if seen.is_empty() || (polls && seen.len() < most(LEAST)) {
        return Ok(Err(missing));
    }
    let elsewhere = original.places.mostly_elsewhere(&windows, &live);
    if let Some(why) = elsewhere.filter(|_| polls) {
        return Ok(Err(why));
    }
    let agreed = agree(seen);
    let polled = agreed
        .report
        .flags
        .first()
        .filter(|_| has_flag(&agreed.report));
    if polled.is_some_and(|flag| changes(flag, &memory, LATER)) {
        return Ok(Err("the word that its copies poll changes".into()));
    }
    if polled.is_some_and(|flag| flag.call.is_some()) {
        let unready = Unready::of(&windows, &live);
        if let Some(fd) = unready.ready_within(&live, LATER) {
            return Ok(Err(format!("fd {fd} is ready at some moments")));
        }
        if let Some(why) = original.places.transfers_elsewhere(&windows) {
            return Ok(Err(why));
        }
    }
    Ok(Ok(agreed))
}

/// What all copies say: the same word, or none that they have in common.
fn agree(mut seen: Vec<Agreed>) -> Agreed {
    let copies = seen.len();
    let named = |agreed: &Agreed| {
        let flag = agreed.report.flags.first();
        let flag = flag.filter(|_| has_flag(&agreed.report));
        flag.map(|flag| (flag.address.spin, flag.name.clone()))
    };
    let all: Vec<_> = seen.iter().map(named).collect();
    let what = match &all[0] {
        first if all.iter().any(|one| one != first) => None,
        Some(_) => Some("poll the same word"),
        None => Some("show no flag"),
    };
    seen.sort_by_key(|agreed| agreed.report.considered.len());
    let Agreed { report, steps, .. } = seen.swap_remove(copies - 1);
    let Some(what) = what else {
        let reason = format!("copies of {copies} moments poll different words: it makes progress");
        let mut report = Report::nothing(Verdict::NoFlag, reason);
        report.facts.gets_on = true;
        let why = format!("its copies of {copies} moments tell enough");
        return Agreed { report, steps, why };
    };
    Agreed {
        report,
        steps,
        why: format!("its copies of {copies} moments {what}; others change what it reads beside"),
    }
}

fn most(copies: usize) -> usize {
    match is_hurried() {
        true => copies.min(OF_KNOWN),
        false => copies,
    }
}

/// Where there are several copies, each may show less than a single one would have to.
pub fn shows_rounds(_: &Window, seen: Option<&Seen>) -> bool {
    const ROUNDS: u64 = 12;
    const OF_KNOWN: u64 = 4;
    let wanted = if is_hurried() { OF_KNOWN } else { ROUNDS };
    seen.is_some_and(|seen| seen.shows(wanted))
}

/// Has the word, at one of many looks within this time, another value than its copies saw?
fn changes(flag: &Flag, memory: &dyn AddressSpace, time: Duration) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < time {
        if changed(flag, memory) {
            return true;
        }
        std::thread::sleep(BETWEEN);
    }
    false
}

/// Has the word another value than its copies saw?
fn changed(flag: &Flag, memory: &dyn AddressSpace) -> bool {
    let bytes = flag.size as usize;
    let (Some(address), Some(value)) = (flag.address.spin, flag.value.spin) else {
        return false;
    };
    let mut now = [0; 8];
    (1..=8).contains(&bytes)
        && memory.read(address, &mut now[..bytes]) == bytes
        && u64::from_le_bytes(now) != value
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use flagfinder_flags::{Addresses, FlagKind};

    use super::*;

    fn copy(word: Option<u64>, considered: usize) -> Agreed {
        let mut report = Report::nothing(Verdict::NoFlag, "it computes");
        let flag = |address| Flag {
            rank: 1,
            confidence: 0.9,
            address: Addresses {
                spin: Some(address),
                ..Addresses::default()
            },
            size: 4,
            ..Flag::new(FlagKind::Heap, "")
        };
        report.considered = (0..considered).map(|_| flag(0)).collect();
        if let Some(address) = word {
            report.verdict = Verdict::DataFlag;
            report.flags.push(flag(address));
        }
        Agreed {
            report,
            steps: 1,
            why: String::new(),
        }
    }

    #[test]
    fn copies_that_poll_different_words_show_progress() {
        let agreed = agree(vec![copy(Some(8), 0), copy(None, 0), copy(Some(8), 0)]);
        assert!(agreed.report.facts.gets_on && !has_flag(&agreed.report));
        let agreed = agree(vec![copy(Some(8), 0), copy(Some(16), 0)]);
        assert!(agreed.report.facts.gets_on && !has_flag(&agreed.report));
        let agreed = agree(vec![copy(Some(8), 0), copy(Some(8), 0)]);
        assert_eq!(agreed.report.flags[0].address.spin, Some(8));
    }

    /// A word that is 9, but 0 at each fourth look if others take turns with its thread.
    struct Worker {
        looks: Cell<u64>,
        has_work: bool,
    }

    impl AddressSpace for Worker {
        fn read(&self, _: u64, buffer: &mut [u8]) -> usize {
            self.looks.set(self.looks.get() + 1);
            buffer.fill(0);
            buffer[0] = if self.has_work && self.looks.get() % 4 == 0 {
                0
            } else {
                9
            };
            buffer.len()
        }
    }

    #[test]
    fn a_word_that_has_its_value_again_at_most_looks_changes() {
        let mut polled = copy(Some(8), 0).report.flags.remove(0);
        polled.value.spin = Some(9);
        let changes = |has_work| {
            let looks = Cell::new(0);
            changes(
                &polled,
                &Worker { looks, has_work },
                Duration::from_millis(20),
            )
        };
        assert!(changes(true) && !changes(false));
    }

    #[test]
    fn the_copy_with_most_words_is_reported_if_none_has_a_flag() {
        let agreed = agree(vec![copy(None, 1), copy(None, 3), copy(None, 2)]);
        assert_eq!(agreed.report.considered.len(), 3);
        assert!(!agreed.report.facts.gets_on);
    }
}
