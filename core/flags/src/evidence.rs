// SPDX-License-Identifier: MIT
//! What other runs and other threads say about candidates: who wrote them, what the
//! normal run read there, and how it left.

use std::collections::BTreeSet;

use flagfinder_analysis::other_way_stores::Change;
use flagfinder_analysis::{Candidate, OtherWay};
use flagfinder_code::times;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::rules::{Rule, Signs};

/// A store to a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// The store is of a normal run; else of the spin run.
    pub normal: bool,
    /// Which of the normal runs' processes.
    pub run: usize,
    pub tid: u32,
    /// Flow position of the block that made it last.
    pub pos: u64,
    /// The word that was watched there.
    pub address: u64,
    /// Run-time address of the instruction, in that run.
    pub pc: u64,
    /// The value of the last store.
    pub value: Option<u64>,
    pub count: u64,
    /// The instruction stored different values, as far as is known.
    pub varies: bool,
    /// The store was made by a thread other than the reader (in that run).
    pub foreign: bool,
    /// Return addresses of the open calls then, innermost first.
    pub stack: Vec<u64>,
    /// All that it stored would have kept the loop going.
    pub in_vain: bool,
}

impl Store {
    /// Did it only ever store the value that the loop goes on with, or values that would keep it
    /// going?
    pub fn sets_up(&self, value: Option<u64>) -> bool {
        let same = self.value.is_some() && self.value == value;
        self.in_vain || same && !self.varies
    }
}

/// Of each store: did another thread make it to this word? Threads read other words by the same
/// code: what is written there counts in the normal run only if nothing is known of `there`, this
/// word.
pub(crate) fn made_by_others(stores: &[Store], there: Option<u64>) -> Vec<bool> {
    let hits = |store: &Store| Some(store.address) == there;
    let known = |store: &Store| store.normal && store.foreign && hits(store);
    let is_known = stores.iter().any(known);
    let counts = |store: &Store| store.foreign && (!store.normal || !is_known || hits(store));
    stores.iter().map(counts).collect()
}

/// What the normal run says of one candidate.
#[derive(Clone, Debug, Default)]
pub struct Counterpart {
    /// Where the same instruction read in the normal run.
    pub address: Option<u64>,
    /// What it read when the normal run left by the exit.
    pub exit_value: Option<u64>,
    /// The same, as the spin run has it: what a pointer to a variable or an object would be there.
    pub exit_value_here: Option<u64>,
    /// The instruction that reads the word ran in the normal run.
    pub seen: bool,
    /// The normal run left by a branch that the word decides, with another value than the one with
    /// which that branch had repeated.
    pub changed: bool,
    /// The normal run left by a branch that the word decides, with the same value.
    pub unchanged: bool,
    /// The exit value would have kept the loop going: something else ended it.
    pub in_vain: bool,
    /// It read different values there in the course of the normal run.
    pub varies: bool,
}

impl Counterpart {
    /// Did something else end the wait?
    fn was_no_reason(&self) -> bool {
        self.in_vain || self.unchanged && !self.changed
    }
}

/// All evidence; empty if there is only a window.
#[derive(Clone, Debug, Default)]
pub struct Outside {
    /// By candidate address in the spin run.
    pub stores: FxHashMap<u64, Vec<Store>>,
    pub counterparts: FxHashMap<u64, Counterpart>,
    /// Exit branches (pc in the spin run): how often the normal runs took the other way.
    pub other_way: FxHashMap<u64, u64>,
    /// The branch at which the diff says the runs part (pc in the spin run).
    pub parting: Option<u64>,
    /// Branches (pc in the spin run) that the diff names beside it.
    pub also_parting: Vec<u64>,
    /// The thread of the normal run that does there what the spinning one does; others run the same
    /// code.
    pub reader: Option<u32>,
    /// A normal run with values was searched for stores.
    pub normal_searched: bool,
    /// The spin run's other threads were searched for stores.
    pub spin_searched: bool,
    /// Exit branches whose other way does not simply leave the loop.
    pub other_ways: FxHashMap<u64, OtherWay>,
    /// Words other than zero that hold what the program's file has there.
    pub as_in_file: FxHashSet<u64>,
    /// Words of the C library's or language runtime's own.
    pub of_runtime: FxHashSet<u64>,
    /// Words that only a signal's handler can change while the reader waits.
    pub of_one_thread: FxHashSet<u64>,
    /// Words that the reader itself would change on the other way of a branch.
    pub changes: Vec<Change>,
    /// Words that are compared with others, and which the reader's own function stores to.
    pub own_positions: FxHashSet<u64>,
    /// Words of an object that an interpreted program's code and one of its variables share.
    pub shared: FxHashSet<u64>,
    /// Steps of calls by which a virtual machine's threads only ask whether they are to wake each
    /// other.
    pub own_wakeups: FxHashSet<u32>,
    /// The loop is a virtual machine's or generated code's: it keeps state beside its program's.
    pub of_machine: bool,
    /// The process was looked at, without another run to compare with.
    pub live: bool,
    /// Paths that calls are about, or by which the loop opened their files, by step.
    pub paths: FxHashMap<u32, String>,
}

impl Outside {
    /// Do the runs part at the branch at `pc`?
    pub fn parts_at(&self, pc: u64) -> bool {
        self.parting == Some(pc) || self.also_parting.contains(&pc)
    }

    /// What the other runs, or the code, say about leaving by the branch at `pc`. The second is
    /// what the sign's sentence is about.
    pub(crate) fn exit(&self, pc: u64) -> Option<(Rule, String)> {
        let plain = |rule| Some((rule, String::new()));
        if self.parting == Some(pc) {
            return plain(Rule::Parting);
        }
        if self.also_parting.contains(&pc) {
            return plain(Rule::AlsoParting);
        }
        let by_itself = self.changes.iter().any(|change| change.branch == pc);
        match self.other_ways.get(&pc) {
            Some(_) if by_itself => return plain(Rule::LetsItself),
            Some(OtherWay::Stays) => return plain(Rule::Stays),
            Some(OtherWay::Tests) => return plain(Rule::TestsMore),
            Some(OtherWay::Dies) => return plain(Rule::Dies),
            Some(OtherWay::Skips) => return plain(Rule::DoesMore),
            Some(OtherWay::Reports) => return plain(Rule::Reports),
            Some(OtherWay::Fails) => return plain(Rule::Fails),
            Some(OtherWay::Decides) | None => {}
        }
        let count = self.other_way.get(&pc).copied().unwrap_or(0);
        (count > 0).then(|| (Rule::OtherWayTaken, times(count)))
    }

    /// Was it made by another thread than the one that waits (in the normal run: than its
    /// counterpart)?
    pub fn is_foreign(&self, store: &Store) -> bool {
        store.foreign && !(store.normal && Some(store.tid) == self.reader)
    }

    /// Does a thread other than the reader write the word in the normal run, with another value
    /// than the one that the loop goes on with? (In the spin run the word may just have been set up
    /// before the loop.)
    pub fn is_written_by_others(&self, candidate: &Candidate) -> bool {
        self.counterpart_write(candidate).is_some()
    }

    /// The store of the normal run that could have ended the loop. A thread that only ever wrote
    /// the very value that the loop goes on with ended no loop: it set the word up, as the start of
    /// a thread does. Neither did threads whose writes were all made in the spin run as well.
    fn counterpart_write(&self, candidate: &Candidate) -> Option<&Store> {
        let stores = self.stores.get(&candidate.address)?;
        let made = |normal: bool| -> BTreeSet<(Option<u64>, u64)> {
            let of_run = stores.iter().filter(|store| store.normal == normal);
            let foreign = of_run.filter(|store| self.is_foreign(store));
            foreign.map(|store| (store.value, store.count)).collect()
        };
        if made(true) == made(false) {
            return None;
        }
        let mut normal = stores.iter().filter(|store| store.normal);
        normal.find(|store| self.is_foreign(store) && !store.sets_up(candidate.value))
    }

    /// Did another thread write it in the normal run, which left with another value than this one
    /// has?
    pub fn was_ended_by_others(&self, candidate: &Candidate) -> bool {
        let counterpart = self.counterparts.get(&candidate.address);
        let left_with = counterpart.filter(|one| !one.was_no_reason());
        let left_with = left_with.and_then(|one| one.exit_value);
        left_with.is_some() && left_with != candidate.value && self.is_written_by_others(candidate)
    }

    /// What the writers say about a candidate.
    pub(crate) fn judge(&self, candidate: &Candidate, signs: &mut Signs) {
        let address = candidate.address;
        if self.as_in_file.contains(&address) {
            signs.add(Rule::AsInFile);
        }
        if self.own_positions.contains(&address) {
            signs.add(Rule::OwnPosition);
        }
        if self.changes.iter().any(|change| change.word == address) {
            signs.add(Rule::OwnChange);
        }
        if self.of_runtime.contains(&address) {
            signs.add(Rule::OfRuntime);
        }
        if self.live {
            signs.add(Rule::NoGoodRun);
        }
        let stores = self.stores.get(&address).map_or(&[][..], Vec::as_slice);
        let counterpart = self.counterparts.get(&address);
        let left_with = counterpart.and_then(|there| there.exit_value);
        let in_normal = || stores.iter().filter(|store| store.normal);
        let mut is_own_doing = false;
        if let Some(store) = self.counterpart_write(candidate) {
            signs.add_about(Rule::Written, store.tid.to_string());
        } else if self.normal_searched && counterpart.is_some_and(|there| there.seen) {
            let writers: BTreeSet<u32> = in_normal().map(|store| store.tid).collect();
            if in_normal().any(|store| self.is_foreign(store)) {
                signs.add(Rule::SameWrites);
            } else if !writers.is_empty() {
                let wrote_last = || in_normal().any(|store| store.value == left_with);
                is_own_doing = self.of_machine && left_with.is_some() && wrote_last();
                let rule = match is_own_doing {
                    true => Rule::OwnDoing,
                    false => Rule::OnlyReaders,
                };
                signs.add_about(rule, only_readers_wrote(&writers));
            } else if counterpart.is_some_and(|there| there.varies) {
                signs.add(Rule::Unrecorded);
            } else {
                signs.add(Rule::NobodyWrote);
            }
        }
        let mut in_spin = stores.iter().filter(|store| !store.normal);
        if let Some(store) = in_spin.find(|store| self.is_foreign(store)) {
            signs.add_about(Rule::WrittenHere, store.tid.to_string());
        }
        let Some(value) = left_with else { return };
        let here = counterpart.and_then(|there| there.exit_value_here);
        if [Some(value), here].contains(&candidate.value) {
            signs.add(Rule::LeftWithSame);
        } else if is_own_doing {
            signs.add_about(Rule::LeftWithOwn, format!("{value:#x}"));
        } else if counterpart.is_some_and(Counterpart::was_no_reason) {
            signs.add(Rule::EndedByOther);
        } else {
            signs.add_about(Rule::LeftWith, format!("{value:#x}"));
            let is_it = |store: &Store| self.is_foreign(store) && store.value == Some(value);
            if in_normal().any(is_it) {
                signs.add(Rule::LeftWithWritten);
            }
        }
    }
}

/// The instruction may read a word of each thread's own: then many threads write, each its own.
fn only_readers_wrote(writers: &BTreeSet<u32>) -> String {
    let list: Vec<String> = writers.iter().map(|tid| format!("thread {tid}")).collect();
    match list.as_slice() {
        [one] => format!("only {one} wrote it, which reads it there itself"),
        many => format!(
            "{} wrote it, each its own word, which it also reads there",
            many.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use flagfinder_code::DataKind;

    use super::*;

    const WORD: u64 = 0x4000;

    #[test]
    fn the_good_run_ends_a_wait_by_what_others_wrote() {
        let ended = |foreign, left_with| {
            let store = Store {
                foreign,
                ..store(Some(1), false)
            };
            let left = Counterpart {
                exit_value: left_with,
                changed: true,
                ..Counterpart::default()
            };
            let outside = Outside {
                stores: [(WORD, vec![store])].into_iter().collect(),
                counterparts: [(WORD, left)].into_iter().collect(),
                ..Outside::default()
            };
            outside.was_ended_by_others(&candidate())
        };
        assert!(ended(true, Some(1)));
        assert!(!ended(false, Some(1)), "it wrote that itself");
        assert!(!ended(true, Some(0)), "it left with what the loop finds");
        assert!(!ended(true, None), "with what it left is not known");
    }

    /// Is the word, which the loop finds 0, written by others, who wrote this in the normal run?
    fn is_written(value: Option<u64>, varies: bool) -> bool {
        is_written_by(vec![store(value, varies)])
    }

    fn store(value: Option<u64>, varies: bool) -> Store {
        Store {
            normal: true,
            run: 0,
            tid: 2,
            pos: 0,
            address: WORD,
            pc: 0x1000,
            value,
            count: 2,
            varies,
            foreign: true,
            stack: Vec::new(),
            in_vain: false,
        }
    }

    fn candidate() -> Candidate {
        Candidate {
            address: WORD,
            bytes: 4,
            value: Some(0),
            readers: Vec::new(),
            step: 0,
            exits: Vec::new(),
            rounds: 9,
            steady: true,
            atomic: false,
            followed: false,
            of_page: false,
            is_bound: false,
            passed: false,
            kind: DataKind::Global,
        }
    }

    #[test]
    fn writes_to_other_threads_words_count_only_if_none_to_this_one_is_known() {
        let elsewhere = |tid| Store {
            tid,
            address: WORD + 0x800,
            ..store(Some(4), false)
        };
        let stores = [store(Some(4), false), elsewhere(3)];
        assert_eq!(made_by_others(&stores, Some(WORD)), [true, false]);
        assert_eq!(made_by_others(&stores, None), [true, true]);
        let mut own = store(Some(0), false);
        own.foreign = false;
        let stores = [own, elsewhere(3)];
        assert_eq!(made_by_others(&stores, Some(WORD)), [false, true]);
    }

    fn is_written_by(stores: Vec<Store>) -> bool {
        let mut outside = Outside::default();
        outside.stores.insert(WORD, stores);
        outside.is_written_by_others(&candidate())
    }

    /// What this of the normal run says for the word, which the loop finds 0.
    fn weight(counterpart: Counterpart) -> f64 {
        let mut outside = Outside::default();
        outside.counterparts.insert(WORD, counterpart);
        let mut signs = Signs::default();
        outside.judge(&candidate(), &mut signs);
        signs.points()
    }

    #[test]
    fn a_value_that_differs_from_run_to_run_says_nothing_for_a_word() {
        let left = Counterpart {
            exit_value: Some(0x7000),
            ..Counterpart::default()
        };
        assert!(weight(left.clone()) > 0.0);
        for (unchanged, changed, in_vain, speaks_for) in [
            (true, false, false, false),
            (true, true, false, true),
            (false, true, true, false),
        ] {
            let counterpart = Counterpart {
                unchanged,
                changed,
                in_vain,
                ..left.clone()
            };
            assert_eq!(weight(counterpart) > 0.0, speaks_for);
        }
    }

    #[test]
    fn a_write_of_the_value_that_the_loop_goes_on_with_ends_no_loop() {
        assert!(!is_written(Some(0), false));
        assert!(is_written(Some(1), false));
        assert!(is_written(None, false), "not known");
        assert!(is_written(Some(0), true), "set and taken back");
    }

    #[test]
    fn writers_that_read_their_own_are_named() {
        let told = |tids: &[u32]| only_readers_wrote(&tids.iter().copied().collect());
        assert!(told(&[7]).contains("only thread 7 wrote it"));
        assert!(told(&[7, 9]).contains("thread 7, thread 9 wrote it, each its own word"));
    }

    #[test]
    fn a_write_of_both_runs_is_not_missing() {
        let in_normal = store(Some(1), false);
        let in_spin = |count| Store {
            normal: false,
            count,
            ..in_normal.clone()
        };
        let both = |count| vec![in_normal.clone(), in_spin(count)];
        assert!(!is_written_by(both(in_normal.count)));
        assert!(is_written_by(both(in_normal.count - 1)), "once too few");
    }

    #[test]
    fn a_value_that_keeps_the_loop_going_ends_no_wait() {
        let pointer = Store {
            in_vain: true,
            ..store(Some(0x7000), false)
        };
        assert!(!is_written_by(vec![pointer.clone()]));
        assert!(is_written_by(vec![pointer, store(Some(1), false)]));
    }

    /// What the evidence adds for a word that the loop finds 0, to which these threads wrote 1 in
    /// the normal run, and with which that left.
    fn judged_with(left: u64, writers: &[u32], of_machine: bool, varies: bool) -> f64 {
        let mut outside = Outside {
            reader: Some(1),
            normal_searched: true,
            of_machine,
            ..Outside::default()
        };
        let store = |tid: &u32| Store {
            tid: *tid,
            ..store(Some(1), false)
        };
        let stores = writers.iter().map(store).collect();
        outside.stores.insert(WORD, stores);
        let counterpart = Counterpart {
            exit_value: Some(left),
            seen: true,
            varies,
            ..Counterpart::default()
        };
        outside.counterparts.insert(WORD, counterpart);
        let mut signs = Signs::default();
        outside.judge(&candidate(), &mut signs);
        signs.points()
    }

    fn judged(writers: &[u32], of_machine: bool, varies: bool) -> f64 {
        judged_with(1, writers, of_machine, varies)
    }

    #[test]
    fn a_word_that_a_virtual_machine_changes_is_its_own() {
        assert!(judged(&[1], true, true) < -0.3);
        assert!(judged(&[1], false, true) > 0.0, "a signal handler's flag");
        assert!(judged(&[2], true, true) > 0.5);
        let unseen = judged_with(2, &[1], true, true);
        assert!(unseen > 0.0, "it wrote what was there before the object");
    }

    #[test]
    fn a_write_that_was_not_recorded_was_made_all_the_same() {
        assert!(judged(&[], true, true) > judged(&[], true, false));
    }
}
