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
use flagfinder_flags::{find_in_live_window, has_flag, ThreadName};
use flagfinder_linux::{futex, syscalls};
use flagfinder_machine::{Syscall, Window};
use flagfinder_replica::{
    go_round, Halt, Live, Moment, Pages, Replica, Round, ThreadState, Word, PAGE,
};
use flagfinder_step::{is_abandoned, Pin, StepError};
use rustc_hash::FxHashSet;

use crate::look::{is_long_enough, Finding};
use crate::memory::{Memory, NamedMemory};
use crate::moments;
use crate::prove::halted;
use crate::spin::refused;
use crate::turns::waits_again;
use crate::unchanged::Words;
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
/// Sockets of which a server takes data.
const SEVERAL: usize = 2;
/// How often a copy is given what it waits its turn for.
const MOST_TURNS: u32 = 4;
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

/// A thread of which copies are made.
pub struct Original {
    tid: u32,
    /// Where it was meanwhile, and for how long it stood still.
    pub places: Whereabouts,
    /// Pages that are read while it stands still.
    known: BTreeSet<u64>,
    pub has_pages: bool,
}

/// What a copy did.
pub struct Copied {
    pub round: Round,
    /// Memory that the thread changes itself is of many moments in it.
    pub mixed: bool,
    /// Waits that ended in the copy since others are supposed to give back what they hold.
    pub given_back: u32,
}

/// How a copy is made.
#[derive(Clone, Copy)]
pub struct How {
    pub moment: Moment,
    /// For how long it goes on.
    pub time: Duration,
    /// Locks that others hold are given back.
    pub gives_back: bool,
}

impl Original {
    fn new(pid: u32, tid: u32) -> Original {
        Original {
            tid,
            places: Whereabouts::of(pid, tid, STOPS),
            known: BTreeSet::new(),
            has_pages: false,
        }
    }

    /// Makes a copy and lets it go round until `enough` is seen of it. Where it waits for its turn,
    /// `turn` tells from what it does which word says so.
    ///
    /// # Errors
    /// When the thread can't be copied.
    pub fn copy(
        &mut self,
        live: &Live,
        pages: &Pages,
        how: How,
        enough: &dyn Fn(&Window) -> bool,
        turn: &dyn Fn(&Window) -> Option<Word>,
    ) -> Result<Copied, StepError> {
        let captured = live.capture_with(self.tid, STOPS, how.moment, &mut self.known.iter())?;
        self.places.held += captured.pause;
        self.follow(pages, &captured.state, how, enough, turn)
            .map_err(|e| StepError::system(format!("Thread {} can't be copied.", self.tid), &e))
    }

    /// The next copy has the pages that this one used from one moment.
    pub fn learn(&mut self, pages: &Pages) {
        self.has_pages = true;
        let around = pages.writable(AROUND);
        let room = MOST_KNOWN.saturating_sub(self.known.len());
        let more: Vec<u64> = around.difference(&self.known).copied().take(room).collect();
        self.known.extend(more);
    }

    fn follow(
        &mut self,
        pages: &Pages,
        state: &ThreadState,
        how: How,
        enough: &dyn Fn(&Window) -> bool,
        turn: &dyn Fn(&Window) -> Option<Word>,
    ) -> std::io::Result<Copied> {
        let mut replica = Replica::start(pages, state)?;
        // Where the thread's own output fails, it is found elsewhere.
        replica.pretend_output();
        if how.gives_back {
            replica.let_others_give_back();
        }
        // Where the scheduler has put this process, the copy is stepped best.
        // SAFETY: cannot fail.
        let here = usize::try_from(unsafe { libc::sched_getcpu() }).ok();
        let _pin = here.and_then(|here| Pin::to(here, replica.process()));
        let mut turns = 0;
        loop {
            let (round, mixed) = self.go(&mut replica, state, how, enough)?;
            let given_back = replica.given_back() + turns;
            if how.gives_back && turns < MOST_TURNS && waits_again(&round.window) {
                turns += 1;
                if let Some(word) = turn(&round.window) {
                    let value = word.value.to_le_bytes();
                    if replica.write(word.address, &value[..word.bytes])? {
                        continue;
                    }
                }
            }
            return Ok(Copied {
                round,
                mixed,
                given_back,
            });
        }
    }

    /// What the copy does next, and whether that is of many moments.
    fn go(
        &mut self,
        replica: &mut Replica,
        state: &ThreadState,
        how: How,
        enough: &dyn Fn(&Window) -> bool,
    ) -> std::io::Result<(Round, bool)> {
        let begin = Instant::now();
        let of_one_moment: FxHashSet<u64> = state.stack.iter().map(|(page, _)| *page).collect();
        let mut steps = 0..0;
        let has_pages = self.has_pages;
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
        let round = go_round(replica, STEPS, how.time, |window| {
            self.places.look();
            let seen = is_long_enough(window, begin.elapsed(), how.time) || enough(window);
            let waits = how.gives_back && waits_again(window);
            mixed |= is_mixed(window);
            seen || waits || is_abandoned() || (mixed && window.len() >= EXPLORED)
        })?;
        mixed |= is_mixed(&round.window);
        Ok((round, mixed))
    }
}

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
    let mut original = Original::new(pid, thread.tid);
    let (begin, time) = (Instant::now(), TIME.max(budget * 2));
    let how = How {
        moment: Moment::Now,
        time,
        gives_back: false,
    };
    let mut left = AGAIN;
    // A server whose copy finds one client's request may find another's at the next moment.
    let mut peers = FxHashSet::default();
    let (round, unlike) = loop {
        let live = Live::open(pid)?;
        let pages = Pages::new(&live);
        let copied = original.copy(&live, &pages, how, &|_| false, &|_| None)?;
        peers.extend(served(pid, &copied.round.window));
        let halt = copied.round.halt.as_ref();
        let again = halt.is_some_and(|halt| !waits_its_turn(halt))
            && peers.len() < SEVERAL
            && left > 0
            && begin.elapsed() < time / 2;
        if (copied.mixed || again) && !is_abandoned() {
            left -= u32::from(original.has_pages);
            original.learn(&pages);
            continue;
        }
        let unlike = unlike(&copied.round, &live, &pages, &mut original.places);
        break (copied.round, unlike);
    };
    let memory = Memory::open(pid).map_err(|e| refused(pid, &e))?;
    let space = NamedMemory {
        pid: Some(pid),
        memory: &memory,
        names,
    };
    let report = |window: &Window| find_in_live_window(window, names, thread.clone(), &space);
    let mut steps = round.window.len();
    let seen = match unlike {
        Some(unlike) => {
            // What it took was there, whatever others do: it gets on.
            let seen = takes_input(&round.window).then(|| {
                let mut report = report(&round.window);
                if peers.len() >= SEVERAL && !has_flag(&report) {
                    report.gets_on = true;
                    report.reason = "it takes over data of several peers: it makes progress".into();
                }
                report
            });
            match seen.filter(|report| report.gets_on && !has_flag(report)) {
                Some(report) => Ok((report, TAKES.to_owned())),
                None if unlike.by_others => match moments::look(pid, &mut original, &report)? {
                    Ok(agreed) => {
                        steps = agreed.steps;
                        Ok((agreed.report, agreed.why))
                    }
                    Err(more) => Err(unlike.and(&more)),
                },
                None => Err(unlike),
            }
        }
        None => {
            let looks = original.places.complete();
            let fit = format!(
                "{looks} looks found it where its copy goes; what that reads did not change"
            );
            Ok((report(&round.window), fit))
        }
    };
    Ok(Finding::of_copy(seen, steps, original.places.held))
}

/// Sockets whose data it takes over. No wait for one of several does that, however little of its
/// loop is seen.
fn served(pid: u32, window: &Window) -> FxHashSet<u64> {
    let mut taken: FxHashSet<u64> = inputs(window).map(|call| call.args[0]).collect();
    taken.retain(|descriptor| {
        let link = std::fs::read_link(format!("/proc/{pid}/fd/{descriptor}"));
        link.is_ok_and(|link| link.as_os_str().as_encoded_bytes().starts_with(b"socket:"))
    });
    taken
}

/// Why a copy stands for its thread that takes data.
pub const TAKES: &str = "its copy takes what there is to read";

/// It would wait until another thread gives a lock back, or wakes it.
fn waits_its_turn(halt: &Halt) -> bool {
    matches!(halt, Halt::Blocks { number, .. } if futex::is_futex(*number))
}

pub fn takes_input(window: &Window) -> bool {
    inputs(window).next().is_some()
}

/// Its calls that brought data.
fn inputs(window: &Window) -> impl Iterator<Item = &Syscall> {
    window.syscalls.iter().filter(|call| {
        let takes = syscalls::consumes(call.number) && !syscalls::gives(call.number);
        takes && call.result > Some(0)
    })
}

/// Why a copy does not stand for its thread.
pub struct Unlike {
    pub why: String,
    /// Other threads go on with what this one does.
    pub moved: bool,
    /// What others do may be missing in this copy, and not in those of other moments.
    by_others: bool,
}

impl Unlike {
    fn new(why: impl Into<String>) -> Unlike {
        Unlike {
            why: why.into(),
            moved: false,
            by_others: false,
        }
    }

    fn by_others(why: impl Into<String>) -> Unlike {
        Unlike {
            by_others: true,
            ..Unlike::new(why)
        }
    }

    fn and(self, more: &str) -> Unlike {
        Unlike {
            why: format!("{}; {more}", self.why),
            ..self
        }
    }
}

/// `None`: it does what the thread does.
fn unlike(round: &Round, live: &Live, pages: &Pages, places: &mut Whereabouts) -> Option<Unlike> {
    if switches(&round.window) {
        return Some(Unlike {
            moved: true,
            ..Unlike::new("it changes stacks: a scheduler hands its tasks to other threads")
        });
    }
    if let Some(halt) = &round.halt {
        return Some(Unlike {
            by_others: waits_its_turn(halt),
            ..Unlike::new(format!("in a copy {}", halted(halt)))
        });
    }
    let words = Words::of(&round.window, live);
    for pause in PAUSES {
        std::thread::sleep(pause);
        places.look();
        if let Some(address) = words.changed(live) {
            let why =
                format!("what it reads at {address:#x} changes, and its copy does not do that");
            return Some(Unlike::by_others(why));
        }
        if is_abandoned() {
            break;
        }
    }
    places.complete();
    if let Some(why) = places.elsewhere(&round.window, live) {
        return Some(Unlike::by_others(why));
    }
    pages
        .changed_code()
        .then(|| Unlike::new("its code changed meanwhile"))
}
