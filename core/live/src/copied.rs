// SPDX-License-Identifier: MIT
//! A look at a copy of a live thread, and whether the copy does what the thread does.
//!
//! In: a thread. Out: what its copy shows, and why that is not to be believed, if it is not. The
//! thread stands still while its registers are read, and once more where its copy writes memory
//! beside its stack. A copy stands for its thread where all of this holds: it went on for as long
//! as was wanted; the thread was in code that the copy executed whenever it was looked at; what the
//! copy read, and did not write itself, is still the same in the process, the code as well; it did
//! not change stacks. So what other threads change all the time is never judged by a copy. Blind
//! spot: what changes more seldom than the copy was looked at.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use flagfinder_analysis::tasks::switches;
use flagfinder_code::Names;
use flagfinder_flags::{find_in_live_window, has_flag, Report, ThreadName};
use flagfinder_linux::syscalls;
use flagfinder_machine::Window;
use flagfinder_replica::{go_round, Live, Pages, Replica, Round, Source, ThreadState, PAGE};
use flagfinder_step::{is_abandoned, Pin, StepError};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::look::{is_long_enough, Finding};
use crate::memory::{Memory, NamedMemory};
use crate::prove::halted;
use crate::spin::refused;
use crate::whereabouts::Whereabouts;

/// For how long a copy goes on, at least, where nothing was seen sooner.
const TIME: Duration = Duration::from_millis(1000);
/// Instructions of a copy, at most.
const STEPS: u32 = 200_000;
/// How long the thread may take to stop.
const STOPS: Duration = Duration::from_millis(200);
/// So far a first copy goes, to learn which pages are used. What the thread changes itself is of
/// many moments in it, unless that lies on its stack; such pages are read while the thread stands
/// still for the next copy.
const EXPLORED: u32 = 5_000;
/// A copy that can't go on is made so many times again: the thread may have been at a place where
/// others had to move, or more pages have to be known, so many at most.
const AGAIN: u32 = 4;
const MOST_KNOWN: usize = 512;
/// What lies around a page that it uses is likely to be used too.
const AROUND: u64 = 4;
/// How often it is asked whether the words are the same, and the time in between. No two are equal,
/// so that what happens at regular times is not always met at the same point.
const PAUSES: [Duration; 6] = [
    Duration::from_millis(4),
    Duration::from_millis(9),
    Duration::from_millis(17),
    Duration::from_millis(13),
    Duration::from_millis(31),
    Duration::from_millis(25),
];

/// Looks at a copy. Runs in the helper.
///
/// # Errors
/// When the thread can't be copied.
pub fn look_at_copy_of(
    pid: u32,
    thread: ThreadName,
    budget: Duration,
    names: &Names,
) -> Result<Finding, StepError> {
    let mut places = Whereabouts::of(pid, thread.tid, STOPS);
    let mut known: BTreeSet<u64> = BTreeSet::new();
    let (begin, time) = (Instant::now(), TIME.max(budget * 2));
    let (mut left, mut has_pages) = (AGAIN, false);
    let (round, unlike) = loop {
        let live = Live::open(pid)?;
        let (state, pause) = live.capture_with(thread.tid, STOPS, &mut known.iter())?;
        places.held += pause;
        let pages = Pages::new(&live);
        let (round, mixed) = follow(&pages, &state, &mut places, has_pages, time).map_err(|e| {
            StepError::system(format!("Thread {} can't be copied.", thread.tid), &e)
        })?;
        let again = round.halt.is_some() && left > 0 && begin.elapsed() < time / 2;
        if (mixed || again) && !is_abandoned() {
            left -= u32::from(has_pages);
            has_pages = true;
            let around = pages.writable(AROUND);
            let room = MOST_KNOWN.saturating_sub(known.len());
            let more: Vec<u64> = around.difference(&known).copied().take(room).collect();
            known.extend(more);
            continue;
        }
        let unlike = unlike(&round, &live, &pages, &mut places);
        break (round, unlike);
    };
    let memory = Memory::open(pid).map_err(|e| refused(pid, &e))?;
    let space = NamedMemory {
        pid: Some(pid),
        memory: &memory,
        names,
    };
    let report = || find_in_live_window(&round.window, names, thread, &space);
    let seen = match unlike {
        Some(unlike) => {
            // What it took was there, whatever others do: it gets on.
            let seen = takes_input(&round.window).then(report);
            let gets_on = |report: &Report| report.gets_on && !has_flag(report);
            let why = "its copy takes what there is to read";
            seen.filter(gets_on)
                .map(|report| (report, why.to_owned()))
                .ok_or(unlike)
        }
        None => {
            let report = report();
            // Whoever gets on is no hang, and an interpreter's words may be told apart by the code
            // that it runs. Of anything else the thread itself may show more.
            if has_flag(&report) || report.gets_on || !report.considered.is_empty() {
                let looks = places.complete();
                let fit = format!(
                    "{looks} looks found it where its copy goes; what that reads did not change"
                );
                Ok((report, fit))
            } else {
                Err(Unlike::new(format!(
                    "a copy shows no flag: {}",
                    report.reason
                )))
            }
        }
    };
    Ok(Finding::of_copy(seen, round.window.len(), places.held))
}

fn takes_input(window: &Window) -> bool {
    let mut calls = window.syscalls.iter();
    calls.any(|call| {
        let takes = syscalls::consumes(call.number) && !syscalls::gives(call.number);
        takes && call.result > Some(0)
    })
}

/// Makes a copy and lets it go round. `true` beside it: memory that the thread changes is of many
/// moments in it. It never is where the copy `has_pages`: those that it uses.
fn follow(
    pages: &Pages,
    state: &ThreadState,
    places: &mut Whereabouts,
    has_pages: bool,
    time: Duration,
) -> std::io::Result<(Round, bool)> {
    let mut replica = Replica::start(pages, state)?;
    // Where the thread's own output fails, it is found elsewhere.
    replica.pretend_output();
    // Where the scheduler has put this process, the copy is stepped best.
    // SAFETY: cannot fail.
    let here = usize::try_from(unsafe { libc::sched_getcpu() }).ok();
    let _pin = here.and_then(|here| Pin::to(here, replica.process()));
    let begin = Instant::now();
    let of_one_moment: FxHashSet<u64> = state.stack.iter().map(|(page, _)| *page).collect();
    let mut steps = 0..0;
    let mut is_mixed = |window: &Window| {
        steps = steps.end..window.len();
        let mut written = steps.clone().flat_map(|step| window.accesses(step));
        !has_pages
            && written.any(|access| {
                let page = access.address.map(|address| address & !(PAGE - 1));
                access.write && page.is_some_and(|page| !of_one_moment.contains(&page))
            })
    };
    let mut mixed = false;
    let round = go_round(&mut replica, STEPS, time, |window| {
        places.look();
        let enough = is_long_enough(window, begin.elapsed(), time) || is_abandoned();
        mixed |= is_mixed(window);
        enough || (mixed && window.len() >= EXPLORED)
    })?;
    mixed |= is_mixed(&round.window);
    Ok((round, mixed))
}

/// Why a copy does not stand for its thread.
pub struct Unlike {
    pub why: String,
    /// Other threads move this one.
    pub moved: bool,
}

impl Unlike {
    fn new(why: impl Into<String>) -> Unlike {
        Unlike {
            why: why.into(),
            moved: false,
        }
    }
}

/// `None`: it does what the thread does.
fn unlike(round: &Round, live: &Live, pages: &Pages, places: &mut Whereabouts) -> Option<Unlike> {
    if switches(&round.window) {
        return Some(Unlike {
            why: "it changes stacks: a scheduler hands its tasks to other threads".into(),
            moved: true,
        });
    }
    if let Some(halt) = &round.halt {
        return Some(Unlike::new(format!("in a copy {}", halted(halt))));
    }
    let words = Words::of(&round.window, live);
    for pause in PAUSES {
        std::thread::sleep(pause);
        places.look();
        if let Some(address) = words.changed(live) {
            return Some(Unlike {
                why: format!(
                    "what it reads at {address:#x} changes, and its copy does not do that"
                ),
                moved: true,
            });
        }
        if is_abandoned() {
            break;
        }
    }
    places.complete();
    if let Some(why) = places.elsewhere(&round.window, live) {
        return Some(Unlike::new(why));
    }
    pages
        .changed_code()
        .then(|| Unlike::new("its code changed meanwhile"))
}

/// What the copy read and did not write itself, by page.
struct Words {
    pages: FxHashMap<u64, Vec<Word>>,
}

#[derive(Clone, Copy)]
struct Word {
    offset: usize,
    bytes: usize,
    value: u64,
}

/// Words are told apart by blocks of so many bytes.
const BLOCK: u64 = 8;

impl Words {
    fn of(window: &Window, live: &Live) -> Words {
        let blocks = |address: u64, bytes: u64| {
            let last = address.saturating_add(bytes.saturating_sub(1));
            (address / BLOCK)..=(last / BLOCK)
        };
        let mut written: FxHashSet<u64> = FxHashSet::default();
        let calls = window.syscalls.iter().flat_map(|call| &call.written);
        for (address, bytes) in calls {
            written.extend(blocks(*address, (*bytes).min(PAGE)));
        }
        let accesses = || (0..window.len()).flat_map(|step| window.accesses(step));
        for access in accesses().filter(|access| access.write) {
            let Some(address) = access.address else {
                continue;
            };
            written.extend(blocks(address, access.bytes.into()));
        }
        let mut seen: FxHashSet<(u64, u32)> = FxHashSet::default();
        let mut pages: FxHashMap<u64, Vec<Word>> = FxHashMap::default();
        for access in accesses().filter(|access| !access.write) {
            let bytes = access.bytes.min(BLOCK as u32);
            let (Some(address), Some(value)) = (access.address, access.value.get(bytes * 8)) else {
                continue;
            };
            let offset = address % PAGE;
            let is_own = blocks(address, bytes.into()).any(|block| written.contains(&block));
            let is_whole = offset + u64::from(bytes) <= PAGE;
            if is_own || !is_whole || live.is_vdso(address) || !seen.insert((address, bytes)) {
                continue;
            }
            pages.entry(address - offset).or_default().push(Word {
                offset: offset as usize,
                bytes: bytes as usize,
                value,
            });
        }
        Words { pages }
    }

    /// One in which the process has something else by now.
    fn changed(&self, live: &Live) -> Option<u64> {
        let mut page = [0; PAGE as usize];
        let differs = |word: &Word, page: &[u8; PAGE as usize]| {
            let mut now = [0; BLOCK as usize];
            now[..word.bytes].copy_from_slice(&page[word.offset..word.offset + word.bytes]);
            u64::from_le_bytes(now) != word.value
        };
        self.pages.iter().find_map(|(address, words)| {
            // What can't be read by others (the clock's page) is no word of the program.
            let is_read = live.read_page(*address, &mut page);
            let word = words.iter().find(|word| is_read && differs(word, &page))?;
            Some(address + word.offset as u64)
        })
    }
}
