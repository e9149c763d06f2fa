// SPDX-License-Identifier: MIT
//! Trying out in a copy of the thread whether the named words end its loop.
//!
//! In: a thread's report with candidates. Out: each candidate's `proof`; those that end the loop
//! come first, and one that was tried and does not end it steps back behind one that does. Blind
//! spot: a thread whose copy does not do what the thread does (it needs others to move) has no
//! proof.

use std::cell::{Cell, RefCell};
use std::thread::Builder;
use std::time::{Duration, Instant};

use flagfinder_code::{is_counted_in, AddressSpace, CodeReader, Names};
use flagfinder_flags::{Ask, FlagKind, Rule, Verdict};
use flagfinder_replica::{
    keep, Experiment, Left, Live, Moment, Outcome, Pages, Rounds, Source, Unfit, Wanted, Word,
};

use crate::candidate::{code_address, Candidate};
use crate::frame;
use crate::low_scores;
use crate::memory::has_one_writer;
use crate::others::{Others, Process};
use crate::owed;
use crate::own_side;
use crate::report::{ThreadReport, Via};
use crate::standing::About;
use crate::stepping_job::milliseconds;
use crate::tried::{halted, Tried};
use crate::values;
use crate::verdict::decide;
use crate::vm_words::{self, Tests};
use crate::why::{never_changes, resumed_goroutines};

/// Most candidates that are tried, and how many further ones if none of these ends the loop.
const TRIED: (usize, usize) = (4, 4);
/// The same in a virtual machine's loop, where the code says less.
const TRIED_OF_MACHINE: (usize, usize) = (12, 0);
/// How long each may take: the thread to stop, its copy to show its loop, and each try.
pub(crate) const STOPS: Duration = Duration::from_millis(200);
const SHOWS: Duration = Duration::from_millis(800);
const TRIES: Duration = Duration::from_millis(400);
/// So many times as long where a loop's rounds are long.
const LONGER: u32 = 3;
/// How often a copy that can't go on is made again: its memory may be a mixture of moments.
pub(crate) const AGAIN: usize = 3;
/// Most pages that are read at one moment, and how near others lie that are read with them.
const MOST_KNOWN: usize = 512;
const AROUND: u64 = 4;

pub(crate) fn unfit(unfit: &Unfit) -> String {
    match unfit {
        Unfit::Halted(halt) => format!("in a copy of the thread {}", halted(halt)),
        Unfit::NoLoop { instructions } => {
            format!("a copy of the thread repeats nothing within {instructions} instructions")
        }
    }
}

/// Tries the thread's candidates, and asks who of the others would write them, for at most `time`.
/// A thread that was stepped is copied again only while it stood still for less than `budget`.
pub(crate) fn prove(
    pid: u32,
    thread: &mut ThreadReport,
    others: &Others,
    names: &Names,
    memory: &(dyn AddressSpace + Sync),
    (time, budget): (Duration, Duration),
) {
    // ptrace belongs to the thread that started the copy, which also changes its own affinity.
    let refused = std::thread::scope(|scope| {
        let proving = Builder::new().spawn_scoped(scope, || {
            begin(thread);
            let live = match Live::open(pid) {
                Ok(live) => live,
                Err(error) => {
                    for flag in &mut thread.flags {
                        flag.owed_by_nobody(format!("nothing could be copied: {error}"));
                    }
                    return not_tried(thread, &error.to_string());
                }
            };
            let held = Cell::new(Duration::ZERO);
            let known = RefCell::new(Wanted {
                held: thread.held.iter().copied().collect(),
                ..Wanted::default()
            });
            let (spins, before, task) = (thread.tid, thread.pause(), thread.facts.task);
            let may = match thread.via {
                Some(Via::InPlace) => budget,
                _ => Duration::MAX,
            };
            let capture = |tid| {
                if tid == spins && held.get() + before >= may {
                    return Err("it has stood still for as long as it may".into());
                }
                if tid != spins {
                    let captured = live.capture(tid, STOPS).map_err(|e| e.to_string())?;
                    return Ok(captured.0);
                }
                let known = known.borrow();
                let captured = live.capture_with(tid, STOPS, Moment::Now, &known);
                let captured = captured.map_err(|e| e.to_string())?;
                held.set(held.get() + captured.pause);
                let Some(task) = task else {
                    return Ok(captured.state);
                };
                let resumed = resumed_goroutines(memory, names, &captured.state);
                let own = resumed.into_iter().find(|one| one.id == task);
                own.map(|one| one.state)
                    .ok_or_else(|| format!("goroutine {task} runs just now"))
            };
            let learn = |pages: &Pages| learn(&mut known.borrow_mut(), pages);
            let process = Process {
                pid,
                names,
                memory,
                others,
                capture: &capture,
                learn: &learn,
                is_dead: false,
                time,
            };
            try_out(&live, &process, thread);
            thread.pause_ms = milliseconds(held.get() + thread.pause());
        });
        // What was not tried is missing in the report.
        proving.map(|proving| drop(proving.join())).err()
    });
    if let Some(error) = refused {
        not_tried(thread, &error.to_string());
    }
}

/// The pages that a copy used are read at one moment for the next copy.
pub(crate) fn learn(known: &mut Wanted, pages: &Pages) {
    let room = MOST_KNOWN.saturating_sub(known.held.len());
    known
        .held
        .extend(pages.writable(AROUND).into_iter().take(room));
}

/// The same for a process from any source. A note of the report says why there is no proof.
pub(crate) fn try_out(source: &dyn Source, process: &Process, thread: &mut ThreadReport) {
    let is_open = Rule::MachineWords.is_on() && vm_words::is_open(thread);
    if is_open {
        vm_words::take_up(thread);
        begin(thread);
    }
    let is_near = Rule::LowScores.is_on() && low_scores::is_open(thread);
    if is_near {
        low_scores::take_up(thread);
        begin(thread);
    }
    let begin = Instant::now();
    let attempts: [Pages; AGAIN + 1] = std::array::from_fn(|_| Pages::new(source));
    let mut attempts = attempts.iter();
    let tried = loop {
        let Some(pages) = attempts.next() else {
            break Ok(None);
        };
        let tried = try_candidates(pages, process, thread);
        let is_last = attempts.len() == 0 || process.is_dead || begin.elapsed() >= SHOWS;
        if tried.is_ok() || is_last {
            break tried;
        }
        (process.learn)(pages);
    };
    if let Err(why) = &tried {
        not_tried(thread, why);
    }
    let experiment = tried.ok().flatten();
    let mut owings = owed::tell(process, source, experiment.as_ref(), thread);
    let thrown = thread.thrown.clone();
    let fails = |flag: &Candidate| is_failure(process, &thrown, flag);
    if let Some(machine) = thread
        .facts
        .machine
        .as_ref()
        .filter(|_| Rule::MachineWords.is_on())
    {
        let own = machine.own.clone();
        let tests = Tests {
            fails: &fails,
            is_reference: &|flag| is_reference(process, flag),
            is_local: &|flag| frame::is_local(process.memory, &own, flag, base(process, flag)),
            never_changes: &|flag| {
                never_changes(process.names, process.memory, flag.word()?.address)
            },
            has_one_writer: &|flag| {
                flag.address()
                    .is_some_and(|at| has_one_writer(process.names, at))
            },
        };
        vm_words::settle(thread, &mut owings, is_open, &tests);
    }
    if is_near {
        low_scores::settle(thread, &mut owings, fails);
    }
    let flags = thread.flags.clone();
    let moves = std::mem::take(&mut thread.moves);
    let within_poll = std::mem::take(&mut thread.facts.within_poll);
    let about = About {
        is_nulled: &fails,
        is_counted: &|flag| is_counted(process, flag),
        is_own: &|flag| own_side::is_own(&flags, &moves, flag),
        is_in_poll: &|flag| flag.address().is_some_and(|at| within_poll.contains(&at)),
        moves_own: &|flag| own_side::moves_own(&flags, &moves, flag),
        has_long_rounds: thread.facts.long_rounds,
        reads_news: thread.facts.reads_news,
    };
    decide(thread, &owings, &about);
}

/// Does the program's code count the global up or down, by one instruction?
fn is_counted(process: &Process, flag: &Candidate) -> bool {
    let global = flag.word().filter(|_| flag.flag.kind == FlagKind::Global);
    global
        .is_some_and(|word| is_counted_in(process.names, process.memory, word.address, word.bytes))
}

/// Does the loop end by the word because a check fails? Null is followed, or an exception comes.
fn is_failure(process: &Process, thrown: &[u64], flag: &Candidate) -> bool {
    let is_thrown = flag
        .word()
        .is_some_and(|word| thrown.contains(&word.address));
    is_thrown || is_nulled(process, flag)
}

/// What the register holds by which the loop reads the word, if it reads it by one alone.
fn base(process: &Process, flag: &Candidate) -> Option<u64> {
    let pc = flag.reader(process.names)?;
    let (distance, _) = CodeReader::new(process.memory).field(pc)?;
    Some(flag.address()?.wrapping_sub(distance))
}

/// Is null the value that ends the loop, in place of a pointer? Any check of it then ends the loop.
fn is_nulled(process: &Process, flag: &Candidate) -> bool {
    is_reference(process, flag)
        && flag
            .word()
            .is_some_and(|word| word.bytes == 8 && word.value == 0)
}

/// Does the word hold the address of something?
fn is_reference(process: &Process, flag: &Candidate) -> bool {
    let is_mapped = |address: u64| process.memory.word(address).is_some();
    flag.flag.value.spin.is_some_and(is_mapped)
}

/// Nothing has been tried yet.
pub(crate) fn begin(thread: &mut ThreadReport) {
    for flag in &mut thread.flags {
        flag.trial = None;
        flag.owed_by_nobody("nobody could be asked");
    }
}

/// Of a thread whose words are not tried out, and of which nobody is asked who owes them.
pub(crate) fn not_proved(thread: &mut ThreadReport, why: &str) {
    for flag in &mut thread.flags {
        flag.trial = None;
        flag.owed_by_nobody(why);
    }
    not_tried(thread, why);
}

fn not_tried(thread: &mut ThreadReport, why: &str) {
    thread.explain.push(format!("not tried out: {why}"));
}

/// Can a copy show something about the word? Where its test is not understood no value is known
/// that the loop asks for, but a copy of another thread may write one, which is then tried. In a
/// virtual machine's loop most such words are the machine's.
fn may_be_tried(flag: &Candidate, asks: &[Ask], is_of_machine: bool) -> bool {
    let is_plain = !is_of_machine && flag.is_word() && flag.flag.size <= 8;
    is_plain || values::first(flag, asks).is_some()
}

/// The copy of the thread that was tried out, if any was.
fn try_candidates<'p>(
    pages: &'p Pages<'p>,
    process: &Process,
    thread: &mut ThreadReport,
) -> Result<Option<Experiment<'p>>, String> {
    let names = process.names;
    let flags = &mut thread.flags;
    let machine = thread.facts.machine.as_ref();
    let asks = machine.map_or(&[][..], |vm| &vm.asks);
    if !flags
        .iter()
        .any(|flag| may_be_tried(flag, asks, machine.is_some()))
    {
        return Ok(None);
    }
    let _keeping = keep();
    let state = (process.capture)(thread.tid)?;
    let most = match machine {
        Some(_) => TRIED_OF_MACHINE,
        None => TRIED,
    };
    let readers = machine.map_or(&[][..], |machine| &machine.readers);
    let spin_loop = thread.spin_loop.as_ref().ok_or("its loop is not known")?;
    let header = code_address(names, &spin_loop.header).ok_or("its loop is not known")?;
    let failed = |e: std::io::Error| format!("the copy failed: {e}");
    let rounds = Rounds::of(thread.steps, spin_loop.iterations);
    let longer = if rounds.are_long() { LONGER } else { 1 };
    let experiment = Experiment::prepare(pages, &state, readers, rounds, SHOWS * longer)
        .map_err(failed)?
        .map_err(|e| unfit(&e))?;
    if !experiment.executes(header) {
        return Err("a copy of the thread does not do what the thread does".into());
    }
    let holder = names.function(header);
    let apart = match machine {
        Some(_) => Vec::new(),
        None => own_side::words(flags, &thread.facts.apart),
    };
    let try_words = |words: &[Word]| {
        let is_beside = |other: &&Word| words.iter().all(|word| word.address != other.address);
        let beside: Vec<Word> = apart.iter().filter(is_beside).copied().collect();
        let proof = experiment
            .try_words(words, &beside, TRIES * longer)
            .map_err(failed)?;
        let mut tried = Tried::of(&proof, words, names);
        // A function may remove its own frame in one step as it returns; so may generated code that
        // hands over to its machine, and which belongs to no function.
        let reached = proof.reached.and_then(|pc| names.function(pc));
        let is_handed_over = holder.is_none() || reached == holder;
        if proof.left == Left::Exception && is_handed_over {
            tried.left = Left::Function;
        }
        Ok::<Tried, String>(tried)
    };
    let begin = Instant::now();
    let seen = values::try_out(flags, asks, most, try_words, || begin.elapsed())?;
    (thread.thrown, thread.moves) = (seen.thrown, seen.moves);
    thread.not_all_tried = seen.is_cut;
    if Rule::ProofOrder.is_on() {
        rank(flags, |flag| is_failure(process, &thread.thrown, flag));
    }
    if Rule::Checks.is_on() {
        leave_checks(thread);
    }
    if Rule::OwnSide.is_on() {
        own_side::set_behind(thread);
    }
    if let Some(proof) = thread.flags.first().and_then(Candidate::proof) {
        thread.explain.push(told(proof));
    }
    Ok(Some(experiment))
}

/// Of the candidates that were tried, one that ends the loop comes first, and then one that does
/// not comes last. What could not be tried (a call's result) keeps its place: that another word
/// ends the loop says nothing about it. Nor does it say anything that a loop ends by null where it
/// follows a pointer (`is_nulled`): then a check fails.
fn rank(flags: &mut [Candidate], is_nulled: impl Fn(&Candidate) -> bool) {
    let places: Vec<usize> = (0..flags.len())
        .filter(|&at| flags[at].proof().is_some())
        .collect();
    let mut tried: Vec<Candidate> = places.iter().map(|&at| flags[at].clone()).collect();
    let leaves = |flag: &Candidate| flag.outcome() == Some(Outcome::Leaves);
    if tried.iter().any(leaves) {
        tried.sort_by_key(|flag| match flag.outcome() {
            Some(Outcome::Leaves) if !is_nulled(flag) => 0,
            // The thread did something else and came back: it waits for more than this word.
            Some(Outcome::Returns) if !flag.does_something() => 2,
            _ => 1,
        });
    }
    for (at, flag) in places.into_iter().zip(tried) {
        flags[at] = flag;
    }
}

/// A word is a check, and no flag, if an error ends the loop by it. (Of a virtual machine's words
/// `vm_words.rs` judges.)
fn leave_checks(thread: &mut ThreadReport) {
    let is_check = |flag: &Candidate| flag.proof().is_some_and(Tried::is_thrown);
    if thread.facts.machine.is_some() || !thread.flags.iter().any(is_check) {
        return;
    }
    let flags = std::mem::take(&mut thread.flags).into_iter();
    let (checks, flags): (Vec<Candidate>, Vec<Candidate>) = flags.partition(is_check);
    thread.flags = flags;
    let name = &checks[0].flag.name;
    let reason = format!("the loop ends by {name} only by an error: it is a check");
    thread.explain.push(reason.clone());
    if thread.flags.is_empty() {
        thread.verdict = Some(Verdict::NoFlag);
        thread.reason = reason;
    }
    thread.considered.splice(0..0, checks);
}

fn told(proof: &Tried) -> String {
    let values: Vec<String> = proof
        .with
        .iter()
        .map(|(address, value)| format!("{value:#x} at {address:#x}"))
        .collect();
    let end = match proof.outcome {
        Outcome::Leaves if proof.is_thrown() => "an error leads the thread out of its loop",
        Outcome::Leaves => "the thread leaves its loop",
        Outcome::Returns if proof.instructions.is_none() => "the thread stays in its loop",
        Outcome::Returns => "the thread does something else and comes back to its loop",
        Outcome::Faults => "the thread would crash",
        Outcome::Unknown => "it was not seen whether the thread leaves its loop",
    };
    format!(
        "in a copy of the thread, with {}, {end}",
        values.join(" and ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidate::tests::{name, word};

    const LEAVES: Option<Outcome> = Some(Outcome::Leaves);
    const RETURNS: Option<Outcome> = Some(Outcome::Returns);
    const UNKNOWN: Option<Outcome> = Some(Outcome::Unknown);

    fn order(flags: &[(&str, Option<Outcome>)]) -> Vec<String> {
        let flag = |(name, outcome): &(&str, Option<Outcome>)| {
            word(name, 0.5, outcome.map(|outcome| (outcome, None)))
        };
        let mut flags: Vec<Candidate> = flags.iter().map(flag).collect();
        rank(&mut flags, |flag| name(flag) == "pointer");
        flags.iter().map(|flag| name(flag).to_owned()).collect()
    }

    #[test]
    fn a_word_whose_test_is_not_understood_is_worth_a_copy_outside_of_machines() {
        let mut flag = word("word", 0.5, None);
        flag.flag.size = 4;
        assert!(may_be_tried(&flag, &[], false));
        assert!(!may_be_tried(&flag, &[], true));
        flag.flag.kind = FlagKind::Syscall;
        assert!(!may_be_tried(&flag, &[], false));
    }

    #[test]
    fn a_word_that_ends_the_loop_comes_before_one_that_does_not() {
        let tried = [("bound", RETURNS), ("untried", None), ("flag", LEAVES)];
        assert_eq!(order(&tried), ["flag", "untried", "bound"]);
    }

    #[test]
    fn a_loop_that_ends_by_null_for_a_pointer_proves_nothing() {
        let tried = [("count", UNKNOWN), ("pointer", LEAVES)];
        assert_eq!(order(&tried), ["count", "pointer"]);
        let tried = [("pointer", LEAVES), ("flag", LEAVES)];
        assert_eq!(order(&tried), ["flag", "pointer"]);
    }

    #[test]
    fn a_word_by_which_only_an_error_ends_the_loop_is_a_check() {
        let thread = |others: &[&str]| {
            let mut check = word("closed", 0.65, Some((Outcome::Leaves, None)));
            let mut proof = check.proof().cloned().unwrap_or_default();
            proof.left = Left::Exception;
            check.set_proof(proof);
            let other = |name: &&str| word(name, 0.6, Some((Outcome::Leaves, None)));
            let mut thread = ThreadReport::blank(1, crate::report::Class::RepeatedYield);
            thread.flags = std::iter::once(check)
                .chain(others.iter().map(other))
                .collect();
            leave_checks(&mut thread);
            thread
        };
        let beside = thread(&["count"]);
        assert_eq!(name(&beside.flags[0]), "count");
        assert_eq!(beside.verdict, None, "the other word's");
        let alone = thread(&[]);
        assert!(!alone.has_flag() && alone.verdict == Some(Verdict::NoFlag));
        assert_eq!(name(&alone.considered[0]), "closed");
    }

    #[test]
    fn a_candidate_that_could_not_be_tried_keeps_its_place() {
        let tried = [("call", None), ("count", LEAVES)];
        assert_eq!(order(&tried), ["call", "count"]);
    }

    #[test]
    fn the_order_stays_where_no_word_ends_the_loop() {
        let tried = [("first", RETURNS), ("second", UNKNOWN)];
        assert_eq!(order(&tried), ["first", "second"]);
    }
}
