// SPDX-License-Identifier: MIT
//! Which candidate is the flag: structure first, then who writes it.

use flagfinder_analysis::{Analysis, Candidate};
use flagfinder_code::{DataHome, DataKind, Names};
use flagfinder_machine::Window;

use crate::evidence::Outside;
use crate::exit_bonus::exit_bonus;
use crate::exit_depths::{usable, ExitDepths, GUARDS};
use crate::report::Own;
use crate::rules::Rule;

/// A candidate with its score and the reasons for it.
#[derive(Clone, Debug)]
pub struct Ranked {
    /// Index into `Analysis::candidates`.
    pub candidate: usize,
    /// 0..=1.
    pub score: f64,
    /// The score before it was cut to that range: two words that both reach 1 still differ.
    weight: f64,
    /// The exit that it decides most clearly.
    pub exit: usize,
    pub evidence: Vec<String>,
    /// In a virtual machine's loop: why the word is one of the machine's own, if it is.
    pub own: Option<Own>,
}

/// A word with at least this score is called the flag.
pub const ENOUGH: f64 = 0.4;
/// The same without a good run to compare with: programs that compute have words of up to 0.42.
pub const ENOUGH_ALONE: f64 = 0.45;

/// Highest score if the loop makes progress towards the word's value.
pub const MERE_BOUND: f64 = 0.3;

/// Highest score of any word.
const CERTAIN: f64 = 0.99;

/// Highest score of a word that an interpreter reads: it may be any of the interpreter's own.
pub const INTERPRETER: f64 = 0.6;
/// The same without a good run to compare with.
pub const INTERPRETER_ALONE: f64 = 0.5;

/// Scores that differ by no more than this count as equal.
const ALIKE: f64 = 0.06;

/// Highest score if many words are as likely.
const DOUBTED: f64 = 0.39;

/// With fewer iterations, a loop that does work, or a task, may be seen in a part of a longer loop.
const FEW: u64 = 4;

struct Scale {
    score: f64,
    evidence: Vec<String>,
}

impl Scale {
    fn add(&mut self, by: f64, why: impl Into<String>) {
        self.score += by;
        self.evidence.push(why.into());
    }
}

/// Best first. `tid` is the spinning thread.
pub fn rank(
    window: &Window,
    analysis: &Analysis,
    names: &Names,
    tid: u32,
    outside: &Outside,
) -> Vec<Ranked> {
    let ranker = Ranker {
        window,
        analysis,
        names,
        tid,
        outside,
        depths: &ExitDepths::new(window, analysis, names, tid),
    };
    let mut ranked: Vec<Ranked> = (0..analysis.candidates.len())
        .filter_map(|index| ranker.one(index))
        .collect();
    ranked.sort_by(|a, b| {
        b.weight
            .total_cmp(&a.weight)
            .then(a.candidate.cmp(&b.candidate))
    });
    if outside.live && analysis.is_of_machine() && Rule::AlikeInMachine.is_on() {
        doubt_alike(&mut ranked);
    }
    ranked
}

/// A virtual machine tests much of its own beside what its program waits for: of many words with
/// equal scores none is called the flag.
fn doubt_alike(ranked: &mut [Ranked]) {
    let best = ranked.first().map_or(0.0, |best| best.score);
    let alike = ranked.iter().filter(|one| one.score + ALIKE >= best);
    let others = alike.count().saturating_sub(1);
    if others < GUARDS {
        return;
    }
    for one in ranked.iter_mut().filter(|one| one.score > DOUBTED) {
        one.score = DOUBTED;
        let why = format!("a virtual machine's loop, and {others} other words are as likely");
        one.evidence.push(why);
    }
}

/// All that a word is judged by.
#[derive(Clone, Copy)]
struct Ranker<'a> {
    window: &'a Window,
    analysis: &'a Analysis,
    names: &'a Names,
    tid: u32,
    outside: &'a Outside,
    depths: &'a ExitDepths,
}

impl Ranker<'_> {
    fn one(&self, index: usize) -> Option<Ranked> {
        let Ranker {
            analysis,
            names,
            tid,
            outside,
            ..
        } = *self;
        let candidate = &analysis.candidates[index];
        if !usable(candidate, names, tid) {
            return None;
        }
        let mut scale = Scale {
            score: 0.5,
            evidence: Vec::new(),
        };
        let part = self.rounds(candidate, &mut scale);
        let (exit, own) = self.exit(candidate, &mut scale)?;
        place(candidate, names, tid, &mut scale);
        let own = self.owner(candidate, own, &mut scale);
        self.site(candidate, &mut scale);
        if is_pointer(candidate, names) {
            self.pointer(candidate, exit, &mut scale);
        }
        outside.judge(candidate, &mut |by, why| scale.add(by, why));
        self.work(&mut scale);
        if self.is_limited(candidate, exit, part, &mut scale) {
            scale.score = scale.score.min(MERE_BOUND);
        }
        let most = match (analysis.interprets, outside.live) {
            (false, _) => CERTAIN,
            (true, false) => INTERPRETER,
            (true, true) => INTERPRETER_ALONE,
        };
        Some(Ranked {
            candidate: index,
            score: scale.score.clamp(0.0, most),
            weight: scale.score,
            exit,
            evidence: scale.evidence,
            own,
        })
    }

    /// In how many rounds the word is read, and whether it keeps its value. Returns their share.
    fn rounds(&self, candidate: &Candidate, scale: &mut Scale) -> f64 {
        let analysis = self.analysis;
        let rounds = analysis.spin.starts.len() as u32 - 1;
        let part = f64::from(candidate.rounds) / f64::from(rounds.max(1));
        if part >= 0.9 {
            scale.evidence.push(format!(
                "read at the same address in {} of {rounds} iterations",
                candidate.rounds
            ));
        } else {
            scale.add(
                -0.25 * (1.0 - part),
                format!("read in only {} of {rounds} iterations", candidate.rounds),
            );
        }
        if !candidate.steady {
            scale.add(-0.3, "its value changes while the loop goes on");
        }
        part
    }

    /// Of the exits that the word decides, the one that speaks most for it, and whether its test
    /// shows that a virtual machine has the word for itself.
    fn exit(&self, candidate: &Candidate, scale: &mut Scale) -> Option<(usize, Option<Own>)> {
        let analysis = self.analysis;
        let (exit, bonus, why, mut own) = candidate
            .exits
            .iter()
            .map(|&exit| {
                let (bonus, why, own) = exit_bonus(
                    self.window,
                    analysis,
                    self.depths,
                    self.outside,
                    candidate,
                    exit,
                );
                (exit, bonus, why, own)
            })
            .max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))?;
        scale.score += bonus;
        scale.evidence.extend(why);
        // It is read together with its type.
        if self.outside.live && analysis.is_compared(candidate) {
            own = None;
        }
        let bounds = |&other: &usize| analysis.exits[other].induction;
        let is_bound = candidate.is_bound || candidate.exits.iter().any(bounds);
        if !analysis.exits[exit].induction && is_bound {
            scale.add(-0.25, "it bounds a count elsewhere in the loop");
        }
        Some((exit, own))
    }

    /// Whether a virtual machine has the word for itself.
    fn owner(&self, candidate: &Candidate, mut own: Option<Own>, scale: &mut Scale) -> Option<Own> {
        let Ranker {
            analysis, outside, ..
        } = *self;
        if analysis.generated.is_context(candidate.address) {
            let why = "it lies in the thread's state, to which generated code has a pointer";
            scale.add(-0.2, why);
            own = Some(Own::State);
        }
        if analysis.interpreted.holds(candidate.address) {
            let why = "it lies with what tells the interpreter what to do next: the program's code";
            scale.add(-0.3, why);
            own = Some(Own::Code);
        } else if !analysis.generated.holds_loop && analysis.interpreted.is_near(candidate.address)
        {
            own = Some(Own::Code);
        }
        if outside.shared.contains(&candidate.address) {
            let why =
                "its object is a constant of the program, too: it is copied when it is written";
            scale.add(-0.1, why);
            own = own.or(Some(Own::Shared));
        }
        let is_module = analysis.interprets && !analysis.generated.holds_loop;
        if outside.live && is_module && is_compared_with_something_new(analysis, candidate) {
            let why = "the loop compares it with what it has just made: more likely a constant";
            scale.add(-0.2, why);
            own = Some(Own::Code);
        }
        own
    }

    /// The code that reads the word.
    fn site(&self, candidate: &Candidate, scale: &mut Scale) {
        let (analysis, depths) = (self.analysis, self.depths);
        if candidate.kind == DataKind::Code {
            let read = &self.window.code(candidate.step).instruction;
            if read.is_ip_rel_memory_operand() {
                let why = "it lies with the code that reads it: a constant of that code";
                scale.add(-0.3, why);
            } else {
                scale.add(-0.05, "it lies in executable memory");
            }
        }
        let asked_by = |&exit: &usize| depths.own[exit];
        if analysis.generated.holds_loop
            && candidate.kind == DataKind::Global
            && candidate.exits.iter().any(asked_by)
        {
            let why = "generated code asks a word of a module: more likely its machine's";
            scale.add(-0.08, why);
        }
        let is_idle = |&exit: &usize| depths.idle[exit];
        if self.outside.live && candidate.exits.iter().all(is_idle) {
            let why = "it is tested within a call whose result the loop does not use";
            scale.add(-0.12, why);
        }
        if candidate.of_page {
            let why =
                "found by clearing the low bits of an object's address: a memory manager's word";
            scale.add(-0.2, why);
        }
    }

    /// A word that holds an address: if it is itself compared with another one (the ends of a
    /// queue), it is tested; else it mostly leads to the tested word.
    fn pointer(&self, candidate: &Candidate, exit: usize, scale: &mut Scale) {
        let Ranker {
            analysis,
            names,
            outside,
            ..
        } = *self;
        let test = analysis.conditions[exit].as_ref();
        let compared = test.is_some_and(|test| {
            test.mentions(candidate.address, candidate.bytes) && !test.tests_for_zero()
        });
        // It is tested as well if only pointers decide: which object is asked, which function is
        // called. The type of that object (a table of functions in the program's constants) hardly
        // changes.
        let decides = |word: &&Candidate| word.exits.contains(&exit);
        let mut deciding = analysis.candidates.iter().filter(decides);
        let is_chosen = deciding.all(|word| is_pointer(word, names))
            && test.is_none_or(|test| !test.mentions(candidate.address, candidate.bytes))
            && !candidate.value.is_some_and(|value| names.is_fixed(value));
        if !is_chosen {
            let by = if compared { -0.04 } else { -0.1 };
            scale.add(by, "its value is a pointer");
        }
        if outside.live && analysis.is_of_machine() && compared {
            let why =
                "a virtual machine's loop compares it as a reference: what kind of object it is";
            scale.add(-0.1, why);
        }
        if analysis.interprets && leads_to_code(candidate, names) {
            let why = "it leads to the interpreter's own code: how an object of that type is used";
            scale.add(-0.2, why);
        }
    }

    /// What else the loop does.
    fn work(&self, scale: &mut Scale) {
        let Ranker {
            analysis,
            outside,
            depths,
            ..
        } = *self;
        if analysis.work {
            scale.add(-0.15, "the loop also writes new data: it does work");
        }
        let any_part = analysis.work || analysis.of_task || depths.schedules;
        if outside.live && any_part && analysis.spin.iterations < FEW {
            scale.add(-0.1, "only few iterations were seen");
        }
    }

    /// Whether the word scores no more than a bound, whatever else speaks for it.
    fn is_limited(&self, candidate: &Candidate, exit: usize, part: f64, scale: &mut Scale) -> bool {
        let Ranker {
            window,
            analysis,
            outside,
            depths,
            ..
        } = *self;
        // The bound towards which a loop counts, and the end of a loop that moves data, are no
        // flags, whatever else speaks for them, unless another thread sets them.
        let progress = &analysis.progress;
        // A scheduler in user space sleeps and changes from task to task; a task shows by itself
        // what it tests.
        let of_task = depths.schedules && !depths.runtime[exit];
        let otherwise = outside.live && !progress.repeats && !of_task;
        let is_woken = progress.is_woken && !of_task;
        let computes = outside.live && analysis.computes.is_some() && Rule::Computes.is_on();
        let progresses =
            analysis.exits[exit].induction || progress.consumes || is_woken || computes;
        // A word that others change between the reads is data if the loop also writes new data, or
        // reads elsewhere in most iterations, as in the slots of a queue.
        let is_data = !candidate.steady && (analysis.work || part < 0.5);
        let passed = candidate.passed && part < 0.5;
        if passed {
            let why = "the loop asks another word, with another value, in most iterations";
            scale.add(0.0, why);
        }
        let beside = is_beside(window, analysis, outside, candidate);
        if beside {
            let why = "the normal run left by a word that the thread itself moves on, not by this";
            scale.add(0.0, why);
        }
        let is_stop = outside.of_one_thread.contains(&candidate.address)
            && analysis.has_long_rounds()
            && !analysis.is_of_machine()
            && Rule::StopBySignal.is_on();
        if is_stop {
            let why =
                "only a signal's handler can write it, and each round is long: more likely a \
                       word to stop by";
            scale.add(0.0, why);
        }
        let unwritten = !outside.is_written_by_others(candidate);
        is_data || passed || beside || is_stop || (progresses || otherwise) && unwritten
    }
}

/// Is the word only compared with what the loop makes anew?
fn is_compared_with_something_new(analysis: &Analysis, candidate: &Candidate) -> bool {
    let is_new = |exit: &usize| {
        let test = analysis.conditions[*exit].as_ref();
        test.is_some_and(|test| {
            let is_own = |address: u64| analysis.own_words.contains(&address);
            test.compares_with_something_new(candidate.address, candidate.bytes, &is_own)
        })
    };
    candidate.exits.iter().any(is_new) && !analysis.is_compared(candidate)
}

/// Does the normal run leave by branches that the thread brings nearer itself (a count, the next
/// item of a queue), of which the word decides none? A word that is tested beside them ends
/// nothing.
fn is_beside(
    window: &Window,
    analysis: &Analysis,
    outside: &Outside,
    candidate: &Candidate,
) -> bool {
    let leaves = |&exit: &usize| outside.parts_at(window.pc(analysis.exits[exit].step));
    let mut leaving = (0..analysis.exits.len()).filter(leaves).peekable();
    let comes = |exit: usize| analysis.exits[exit].induction || analysis.passing[exit];
    leaving.peek().is_some() && leaving.all(|exit| comes(exit) && !candidate.exits.contains(&exit))
}

fn place(candidate: &Candidate, names: &Names, tid: u32, scale: &mut Scale) {
    let home = names.data(candidate.address).home;
    match (&home, candidate.kind) {
        (DataHome::Tls { tid: owner, .. } | DataHome::ThreadControl { tid: owner, .. }, _) => {
            if *owner == tid {
                scale.add(-0.2, "it is the thread's own thread-local memory");
            } else {
                scale.add(0.1, "it is another thread's thread-local memory");
            }
        }
        (DataHome::Frame { tid: owner, .. }, _) if *owner != tid => {
            scale.add(0.1, "it is on another thread's stack");
        }
        (_, DataKind::Stack) => scale.add(-0.15, "it is on a stack"),
        _ => {}
    }
}

fn is_pointer(candidate: &Candidate, names: &Names) -> bool {
    // Java's may have 4 bytes.
    candidate.bytes >= 4
        && candidate
            .value
            .is_some_and(|v| v > 0x1000 && names.data(v).kind != DataKind::Unknown)
}

fn leads_to_code(candidate: &Candidate, names: &Names) -> bool {
    candidate
        .value
        .is_some_and(|v| names.data(v).kind == DataKind::Code)
}

#[cfg(test)]
#[path = "rank_tests.rs"]
mod tests;
