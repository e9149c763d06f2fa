// SPDX-License-Identifier: MIT
//! Which candidate is the flag: structure first, then who writes it.

use flagfinder_analysis::condition::Condition;
use flagfinder_analysis::{Analysis, Candidate};
use flagfinder_code::{DataHome, DataKind, Names};
use flagfinder_machine::Window;

use crate::evidence::Outside;
use crate::exit_depths::{usable, ExitDepths, GUARDS};
use crate::exit_signs::exit_signs;
use crate::report::Own;
use crate::rules::{Rule, Signs, MERE_BOUND};

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
    pub(crate) signs: Signs,
    /// In a virtual machine's loop: why the word is one of the machine's own, if it is.
    pub own: Option<Own>,
}

/// A word with at least this score is called the flag.
pub const ENOUGH: f64 = 0.4;
/// The same without a good run to compare with: programs that compute have words of up to 0.42.
pub const ENOUGH_ALONE: f64 = 0.45;

/// What a word scores of which nothing more is known.
const PLAIN: f64 = 0.5;

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
        one.signs
            .add_about(Rule::AlikeInMachine, others.to_string());
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
        let mut signs = Signs::default();
        let part = self.rounds(candidate, &mut signs);
        let (exit, own) = self.exit(candidate, &mut signs)?;
        place(candidate, names, tid, &mut signs);
        let own = self.owner(candidate, own, &mut signs);
        self.site(candidate, &mut signs);
        if is_pointer(candidate, names) {
            self.pointer(candidate, exit, &mut signs);
        }
        outside.judge(candidate, &mut signs);
        self.work(candidate, exit, part, &mut signs);
        let weight = match (PLAIN + signs.points(), signs.are_of_bound()) {
            (sum, true) => sum.min(MERE_BOUND),
            (sum, false) => sum,
        };
        let most = match (analysis.interprets, outside.live) {
            (false, _) => CERTAIN,
            (true, false) => INTERPRETER,
            (true, true) => INTERPRETER_ALONE,
        };
        Some(Ranked {
            candidate: index,
            score: weight.clamp(0.0, most),
            weight,
            exit,
            signs,
            own,
        })
    }

    /// In how many rounds the word is read, and whether it keeps its value. Returns their share.
    fn rounds(&self, candidate: &Candidate, signs: &mut Signs) -> f64 {
        let rounds = self.analysis.spin.starts.len() as u32 - 1;
        let part = f64::from(candidate.rounds) / f64::from(rounds.max(1));
        let about = format!("{} of {rounds}", candidate.rounds);
        match part >= 0.9 {
            true => signs.add_about(Rule::ReadEachRound, about),
            false => signs.add_times(Rule::ReadSeldom, 1.0 - part, about),
        }
        if !candidate.steady {
            signs.add(Rule::Changes);
        }
        part
    }

    /// Of the exits that the word decides, the one that speaks most for it, and whether its test
    /// shows that a virtual machine has the word for itself.
    fn exit(&self, candidate: &Candidate, signs: &mut Signs) -> Option<(usize, Option<Own>)> {
        let (window, analysis, outside) = (self.window, self.analysis, self.outside);
        let of = |&exit: &usize| {
            let (signs, own) = exit_signs(window, analysis, self.depths, outside, candidate, exit);
            (exit, signs.points(), signs, own)
        };
        let exits = candidate.exits.iter().map(of);
        let (exit, _, found, mut own) =
            exits.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))?;
        signs.extend(found);
        // It is read together with its type.
        if outside.live && analysis.is_compared(candidate) {
            own = None;
        }
        let bounds = |&other: &usize| analysis.exits[other].induction;
        let is_bound = candidate.is_bound || candidate.exits.iter().any(bounds);
        if !analysis.exits[exit].induction && is_bound {
            signs.add(Rule::BoundsElsewhere);
        }
        Some((exit, own))
    }

    /// Whether a virtual machine has the word for itself.
    fn owner(&self, candidate: &Candidate, mut own: Option<Own>, signs: &mut Signs) -> Option<Own> {
        let (analysis, outside) = (self.analysis, self.outside);
        let holds_loop = analysis.generated.holds_loop;
        if analysis.generated.is_context(candidate.address) {
            signs.add(Rule::MachineState);
            own = Some(Own::State);
        }
        if analysis.interpreted.holds(candidate.address) {
            signs.add(Rule::MachineCode);
            own = Some(Own::Code);
        } else if !holds_loop && analysis.interpreted.is_near(candidate.address) {
            own = Some(Own::Code);
        }
        if outside.shared.contains(&candidate.address) {
            signs.add(Rule::CopiedConstant);
            own = own.or(Some(Own::Shared));
        }
        let is_module = analysis.interprets && !holds_loop;
        if outside.live && is_module && is_compared_with_something_new(analysis, candidate) {
            signs.add(Rule::ComparedWithNew);
            own = Some(Own::Code);
        }
        own
    }

    /// The code that reads the word.
    fn site(&self, candidate: &Candidate, signs: &mut Signs) {
        let (analysis, depths) = (self.analysis, self.depths);
        if candidate.kind == DataKind::Code {
            let read = &self.window.code(candidate.step).instruction;
            signs.add(match read.is_ip_rel_memory_operand() {
                true => Rule::CodeConstant,
                false => Rule::InCode,
            });
        }
        let asked_by = |&exit: &usize| depths.own[exit];
        if analysis.generated.holds_loop
            && candidate.kind == DataKind::Global
            && candidate.exits.iter().any(asked_by)
        {
            signs.add(Rule::AskedByGenerated);
        }
        let is_idle = |&exit: &usize| depths.idle[exit];
        if self.outside.live && candidate.exits.iter().all(is_idle) {
            signs.add(Rule::UnusedResult);
        }
        if candidate.of_page {
            signs.add(Rule::OfPage);
        }
    }

    /// A word that holds an address: if it is itself compared with another one (the ends of a
    /// queue), it is tested; else it mostly leads to the tested word.
    fn pointer(&self, candidate: &Candidate, exit: usize, signs: &mut Signs) {
        let (analysis, names) = (self.analysis, self.names);
        let test = analysis.conditions[exit].as_ref();
        let mentions = |test: &Condition| test.mentions(candidate.address, candidate.bytes);
        let compared = test.is_some_and(|test| mentions(test) && !test.tests_for_zero());
        // It is tested as well if only pointers decide: which object is asked, which function is
        // called. The type of that object (a table of functions in the program's constants) hardly
        // changes.
        let decides = |word: &&Candidate| word.exits.contains(&exit);
        let mut deciding = analysis.candidates.iter().filter(decides);
        let is_chosen = deciding.all(|word| is_pointer(word, names))
            && !test.is_some_and(mentions)
            && !candidate.value.is_some_and(|value| names.is_fixed(value));
        if !is_chosen {
            signs.add(match compared {
                true => Rule::ComparedPointer,
                false => Rule::Pointer,
            });
        }
        if self.outside.live && analysis.is_of_machine() && compared {
            signs.add(Rule::MachineReference);
        }
        if analysis.interprets && leads_to_code(candidate, names) {
            signs.add(Rule::LeadsToCode);
        }
    }

    /// What else the loop does. The bound towards which a loop counts, and the end of a loop that
    /// moves data, are no flags, whatever else speaks for them, unless another thread sets them.
    fn work(&self, candidate: &Candidate, exit: usize, part: f64, signs: &mut Signs) {
        let Ranker {
            window,
            analysis,
            outside,
            depths,
            ..
        } = *self;
        if analysis.work {
            signs.add(Rule::Works);
        }
        let any_part = analysis.work || analysis.of_task || depths.schedules;
        if outside.live && any_part && analysis.spin.iterations < FEW {
            signs.add(Rule::FewRounds);
        }
        if candidate.passed && part < 0.5 {
            signs.add(Rule::AskedInPassing);
        }
        if is_beside(window, analysis, outside, candidate) {
            signs.add(Rule::BesideOwnEnd);
        }
        let of_one_thread = outside.of_one_thread.contains(&candidate.address);
        if of_one_thread && analysis.has_long_rounds() && !analysis.is_of_machine() {
            signs.add(Rule::StopBySignal);
        }
        // A word that others change between the reads is data if the loop also writes new data, or
        // reads elsewhere in most iterations, as in the slots of a queue.
        if !candidate.steady && (analysis.work || part < 0.5) {
            signs.add(Rule::Data);
        }
        if outside.is_written_by_others(candidate) {
            return;
        }
        // A scheduler in user space sleeps and changes from task to task; a task shows by itself
        // what it tests.
        let of_task = depths.schedules && !depths.runtime[exit];
        let progress = &analysis.progress;
        let is_woken = progress.is_woken && !of_task;
        if analysis.exits[exit].induction || progress.consumes || is_woken {
            signs.add(Rule::Progress);
        }
        if outside.live && !progress.repeats && !of_task {
            signs.add(Rule::NeverAlike);
        }
        if outside.live && analysis.computes.is_some() {
            signs.add(Rule::Computes);
        }
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

fn place(candidate: &Candidate, names: &Names, tid: u32, signs: &mut Signs) {
    let home = names.data(candidate.address).home;
    match (&home, candidate.kind) {
        (DataHome::Tls { tid: owner, .. } | DataHome::ThreadControl { tid: owner, .. }, _) => {
            signs.add(match *owner == tid {
                true => Rule::OwnThreadLocal,
                false => Rule::OtherThreadLocal,
            });
        }
        (DataHome::Frame { tid: owner, .. }, _) if *owner != tid => signs.add(Rule::OtherStack),
        (_, DataKind::Stack) => signs.add(Rule::OnStack),
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
