// SPDX-License-Identifier: MIT
//! A live thread of which copies are made, and how far they go.

use std::time::{Duration, Instant};

use flagfinder_analysis::{seen, Seen};
use flagfinder_failure::Failure;
use flagfinder_linux::syscalls;
use flagfinder_machine::{Syscall, Window};
use flagfinder_replica::{
    go_round, Live, Moment, Pages, Replica, Round, ThreadState, Wanted, Word, PAGE,
};
use flagfinder_step::{is_abandoned, unable_by, Pin};
use rustc_hash::FxHashSet;

use crate::stepping_job::is_enough;
use crate::turns::waits_again;
use crate::whereabouts::Whereabouts;

/// How long the thread may take to stop.
const STOPS: Duration = Duration::from_millis(200);
/// Length of the first copy, which shows what pages the thread uses. Its memory is a mixture of
/// many moments, but for the stack; so for the next copy those pages are read at one moment.
const EXPLORED: u32 = 5_000;
/// How often a copy is given what it waits its turn for.
const MOST_TURNS: u32 = 4;
const MOST_KNOWN: usize = 512;
/// Pages this near to a page that the thread uses are likely to be used too.
const AROUND: u64 = 4;

/// A thread of which copies are made.
pub struct Original {
    tid: u32,
    /// Where it was meanwhile, and for how long it stood still.
    pub places: Whereabouts,
    /// Pages that are read when it stands still: while it does so, those that a copy wrote or that
    /// were seen to change, as they may be another moment's when they look alike.
    known: Wanted,
    pub has_pages: bool,
}

pub struct Copied {
    pub round: Round,
    /// Memory that the thread changes itself is of many moments in it.
    pub mixed: bool,
    /// How many waits of the copy ended because others are taken to give back what they hold.
    pub given_back: u32,
}

#[derive(Clone, Copy)]
pub struct How {
    pub moment: Moment,
    /// How long the copy goes on.
    pub time: Duration,
    /// Its instructions, at most.
    pub most: u32,
    /// Whether locks that others hold are taken to be given back.
    pub gives_back: bool,
}

impl Original {
    pub fn new(pid: u32, tid: u32) -> Original {
        Original {
            tid,
            places: Whereabouts::of(pid, tid, STOPS),
            known: Wanted::default(),
            has_pages: false,
        }
    }

    /// Makes a copy and lets it go round until `enough` is seen of it. If it waits for its turn,
    /// `turn` finds the word that would tell that the turn has come, from what the copy does.
    ///
    /// # Errors
    /// When the thread can't be copied.
    pub fn copy(
        &mut self,
        live: &Live,
        pages: &Pages,
        how: How,
        enough: &dyn Fn(&Window, Option<&Seen>) -> bool,
        turn: &dyn Fn(&Window) -> Option<Word>,
    ) -> Result<Copied, Failure> {
        let captured = live.capture_with(self.tid, STOPS, how.moment, &self.known)?;
        self.places.held += captured.pause;
        self.known.held.extend(captured.changed);
        self.follow(pages, &captured.state, how, enough, turn)
            .map_err(|e| unable_by(format!("Thread {} can't be copied", self.tid), &e))
    }

    /// Its state now.
    ///
    /// # Errors
    /// When the thread can't be copied.
    pub fn state(&mut self, live: &Live) -> Result<ThreadState, Failure> {
        let captured = live.capture_with(self.tid, STOPS, Moment::Now, &Wanted::default())?;
        self.places.held += captured.pause;
        Ok(captured.state)
    }

    /// Pages that are read while it stands still.
    pub fn held(&self) -> impl Iterator<Item = u64> + '_ {
        self.known.held.iter().copied()
    }

    /// For the next copy, the pages that this one used are read at one moment.
    pub fn learn(&mut self, pages: &Pages) {
        self.has_pages = true;
        let around = pages.writable(AROUND);
        let known = &mut self.known.around;
        let room = MOST_KNOWN.saturating_sub(known.len());
        let more: Vec<u64> = around.difference(known).copied().take(room).collect();
        known.extend(more);
    }

    /// The same, from a state that the thread may have a little later.
    ///
    /// # Errors
    /// When its process is gone.
    pub fn follow(
        &mut self,
        pages: &Pages,
        state: &ThreadState,
        how: How,
        enough: &dyn Fn(&Window, Option<&Seen>) -> bool,
        turn: &dyn Fn(&Window) -> Option<Word>,
    ) -> std::io::Result<Copied> {
        let mut replica = Replica::start(pages, state)?;
        // Output is taken to succeed. Whether the thread's own output fails is found out elsewhere.
        replica.pretend_output();
        if how.gives_back {
            replica.let_others_give_back();
        }
        // The copy is stepped best on the processor where the scheduler has put this process.
        // SAFETY: cannot fail.
        let here = usize::try_from(unsafe { libc::sched_getcpu() }).ok();
        let _pin = here.and_then(|here| Pin::to(here, replica.process()));
        let mut mixed = false;
        let go = |replica: &mut Replica| {
            let gone = self.go(replica, state, how, enough)?;
            mixed = gone.1;
            Ok(gone.0)
        };
        let (round, turns) = take_turns(&mut replica, how.gives_back, go, turn)?;
        Ok(Copied {
            round,
            mixed,
            given_back: replica.given_back() + turns,
        })
    }

    /// What the copy does next, and whether its memory is a mixture of moments.
    fn go(
        &mut self,
        replica: &mut Replica,
        state: &ThreadState,
        how: How,
        enough: &dyn Fn(&Window, Option<&Seen>) -> bool,
    ) -> std::io::Result<(Round, bool)> {
        let begin = Instant::now();
        let of_one_moment: FxHashSet<u64> = state.stack.iter().map(|(page, _)| *page).collect();
        let mut steps = 0..0;
        let has_pages = self.has_pages;
        let written = &mut self.known.held;
        let mut is_mixed = |window: &Window| {
            steps = steps.end..window.len();
            let accesses = steps.clone().flat_map(|step| window.accesses(step));
            let written_now = accesses.filter(|access| access.write);
            let mut beyond = false;
            for page in written_now.filter_map(|access| Some(access.address? & !(PAGE - 1))) {
                beyond |= !of_one_moment.contains(&page);
                if written.len() < MOST_KNOWN {
                    written.insert(page);
                }
            }
            beyond && !has_pages
        };
        let mut mixed = false;
        let round = go_round(replica, how.most, how.time, |window| {
            self.places.look();
            let shown = seen(window);
            let (shown, waited) = (shown.as_ref(), begin.elapsed());
            let seen = shown.is_some_and(|shown| is_enough(shown, window.len(), waited, how.time));
            let seen = seen || enough(window, shown);
            let waits = how.gives_back && waits_again(window);
            mixed |= is_mixed(window);
            seen || waits || is_abandoned() || (mixed && window.len() >= EXPLORED)
        })?;
        mixed |= is_mixed(&round.window);
        Ok((round, mixed))
    }
}

/// Lets a copy go on, and gives it its turn where it waits for that; how often it was given.
///
/// # Errors
/// When the copy's process is gone.
pub fn take_turns(
    replica: &mut Replica,
    gives_back: bool,
    mut go: impl FnMut(&mut Replica) -> std::io::Result<Round>,
    turn: &dyn Fn(&Window) -> Option<Word>,
) -> std::io::Result<(Round, u32)> {
    let mut turns = 0;
    loop {
        let round = go(replica)?;
        let given = turns;
        if gives_back && turns < MOST_TURNS && waits_again(&round.window) {
            turns += 1;
            if let Some(word) = turn(&round.window) {
                let value = word.value.to_le_bytes();
                if replica.write(word.address, &value[..word.bytes])? {
                    continue;
                }
            }
        }
        return Ok((round, given));
    }
}

/// Why a copy stands for its thread that takes data.
pub const TAKES: &str = "its copy takes what there is to read";

pub fn takes_input(window: &Window) -> bool {
    inputs(window).next().is_some()
}

/// Its calls that brought data.
pub fn inputs(window: &Window) -> impl Iterator<Item = &Syscall> {
    window.syscalls.iter().filter(|call| {
        let takes = syscalls::consumes(call.number) && !syscalls::gives(call.number);
        takes && call.result > Some(0)
    })
}
