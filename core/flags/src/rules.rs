// SPDX-License-Identifier: MIT
//! The one table of rules: what speaks for or against a word, and what is done with it then.
//!
//! In: the environment's `FF_WITHOUT`, names with commas between them, which switches rules off so
//! that each can be measured. Out: for each rule its name, its stage, what it weighs, and a
//! sentence. The first four stages are signs: whoever finds one adds it to a word's [`Signs`], and
//! the table alone says what that is worth. The other stages are passes over words and threads.

use std::fmt;
use std::sync::OnceLock;

/// Who applies a rule, in the order in which that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// What the loop's code shows of a word.
    Word,
    /// What it shows of a branch by which a word would end the loop. The best branch counts.
    Exit,
    /// What other threads and a good run show.
    Run,
    /// What the loop does beside: a word with such a sign scores no more than a bound.
    Loop,
    /// The choice among words and calls, by the code alone.
    Choice,
    /// What copies of threads show.
    Copies,
    /// All threads of a process beside each other.
    Threads,
}

impl Stage {
    /// As a heading.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Word => "What the loop's code shows of a word",
            Stage::Exit => "What it shows of a branch by which a word would end the loop",
            Stage::Run => "What other threads and a good run show of a word",
            Stage::Loop => "What the loop does beside",
            Stage::Choice => "The choice among words and calls",
            Stage::Copies => "What copies of threads show",
            Stage::Threads => "All threads of a process beside each other",
        }
    }
}

/// What a rule adds to a word's score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Hundredths, each time that the sign is there.
    Points(i32),
    /// The score is at most that of a bound, [`MERE_BOUND`].
    AtMost,
    /// It is a pass, and adds nothing itself.
    Pass,
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Points(0) | Pass => Ok(()),
            Points(points) => write!(f, "{points:+}"),
            AtMost => write!(f, "at most {:.0}", MERE_BOUND * 100.0),
        }
    }
}

/// Highest score of a word towards which the loop makes progress.
pub const MERE_BOUND: f64 = 0.3;

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Which one it is.
    pub rule: Rule,
    /// What `FF_WITHOUT` calls it.
    pub name: &'static str,
    /// Who applies it.
    pub stage: Stage,
    /// What it adds to a word's score.
    pub weight: Weight,
    /// Of a sign: the evidence, as people read it. `{}` stands for what differs from word to word.
    pub does: &'static str,
}

use Weight::{AtMost, Pass, Points};

macro_rules! rules {
    ($($stage:ident { $($rule:ident $name:literal $weight:expr, $does:literal)* })*) => {
        /// A step of judging that can be left out; [`RULES`] says what each does.
        #[expect(missing_docs, reason = "RULES has a sentence for each")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Rule { $($($rule),*),* }

        /// All rules, in the order in which they are asked.
        pub const RULES: &[Row] = &[
            $($(Row {
                rule: Rule::$rule,
                name: $name,
                stage: Stage::$stage,
                weight: $weight,
                does: $does,
            }),*),*
        ];
    };
}

rules! {
    Word {
        ReadEachRound "read-each-round" Points(0),
            "read at the same address in {} iterations"
        ReadSeldom "read-seldom" Points(-25),
            "read in only {} iterations"
        Changes "changes" Points(-30),
            "its value changes while the loop goes on"
        BoundsElsewhere "bounds-elsewhere" Points(-25),
            "it bounds a count elsewhere in the loop"
        OwnThreadLocal "own-thread-local" Points(-20),
            "it is the thread's own thread-local memory"
        OtherThreadLocal "other-thread-local" Points(10),
            "it is another thread's thread-local memory"
        OtherStack "other-stack" Points(10),
            "it is on another thread's stack"
        OnStack "on-stack" Points(-15),
            "it is on a stack"
        MachineState "machine-state" Points(-20),
            "it lies in the thread's state, to which generated code has a pointer"
        MachineCode "machine-code" Points(-30),
            "it lies with what tells the interpreter what to do next: the program's code"
        CopiedConstant "copied-constant" Points(-10),
            "its object is a constant of the program, too: it is copied when it is written"
        ComparedWithNew "compared-with-new" Points(-20),
            "the loop compares it with what it has just made: more likely a constant"
        CodeConstant "code-constant" Points(-30),
            "it lies with the code that reads it: a constant of that code"
        InCode "in-code" Points(-5),
            "it lies in executable memory"
        AskedByGenerated "asked-by-generated" Points(-8),
            "generated code asks a word of a module: more likely its machine's"
        UnusedResult "unused-result" Points(-12),
            "it is tested within a call whose result the loop does not use"
        OfPage "of-page" Points(-20),
            "found by clearing the low bits of an object's address: a memory manager's word"
        Pointer "pointer" Points(-10),
            "its value is a pointer"
        ComparedPointer "compared-pointer" Points(-4),
            "its value is a pointer, which is compared"
        MachineReference "machine-reference" Points(-10),
            "a virtual machine's loop compares it as a reference: what kind of object it is"
        LeadsToCode "leads-to-code" Points(-20),
            "it leads to the interpreter's own code: how an object of that type is used"
    }
    Exit {
        Compared "compared" Points(15),
            "the exit branch compares it directly"
        HeldByOthers "held-by-others" Points(-25),
            "the others keep the branch as it is, whatever this one holds"
        OwedByOthers "owed-by-others" Points(-12),
            "zero already, it would have to become negative: others owe the change"
        NullCheck "null-check" Points(-15),
            "the loop reads what it points to: a check for null"
        OneValue "one-value" Points(-4),
            "it is compared with the value it has: more likely a check"
        TypeCheck "type-check" Points(-10),
            "generated code compares it with the value it has: more likely a check"
        BitsOrBounds "bits-or-bounds" Points(-10),
            "a virtual machine's loop asks for bits of it, or for bounds: a check"
        BothSides "both-sides" Points(-5),
            "it stands on both sides of the comparison: a mask or a bound"
        Counter "counter" Points(-30),
            "it is compared with something the loop itself changes (a counter, a bound)"
        InRuntime "in-runtime" Points(-25),
            "the exit lies in the C library or language runtime"
        InLibrary "in-library" Points(-10),
            "the exit lies in a library, while the program itself tests other words"
        Depth "depth" Points(-4),
            "it is tested in a function that the loop calls, {} calls deep"
        ManyWords "many-words" Points(-2),
            "{} words decide the branch together"
        EndsScan "ends-scan" Points(-10),
            "a scan ends at it in every iteration"
        Parting "parting" Points(30),
            "the normal run leaves the loop by this very branch"
        AlsoParting "also-parting" Points(20),
            "the normal run goes the other way at this branch"
        LetsItself "lets-itself" Points(0),
            "on its other way the thread itself would change what ends the loop"
        Stays "stays" Points(-30),
            "its other way stays in the loop: it skips something"
        TestsMore "tests-more" Points(-10),
            "its other way leads to another test before it leaves"
        Dies "dies" Points(-20),
            "its other way never returns: a check that failed"
        DoesMore "does-more" Points(-12),
            "its other way goes on in the same function, which the loop calls: it does something \
             more"
        Reports "reports" Points(-20),
            "its other way reports something and returns: a condition is violated"
        Fails "fails" Points(-5),
            "its other way returns an error"
        OtherWayTaken "other-way-taken" Points(15),
            "the normal run took the other way here {}"
        Guard "guard" Points(-20),
            "generated code tests types and bounds like this, and several words here"
    }
    Run {
        AsInFile "as-in-file" Points(-6),
            "it is as the program's file has it, and not zero: more likely a setting"
        OwnPosition "own-position" Points(-6),
            "its reader's function stores to it: the reader's own position"
        OwnChange "own-change" Points(-20),
            "the reader itself would change it, once another test of the loop lets it"
        OfRuntime "of-runtime" Points(-20),
            "it belongs to the C library itself"
        NoGoodRun "no-good-run" Points(0),
            "there is no good run to compare with"
        Written "written" Points(30),
            "thread {} wrote it in the normal run"
        SameWrites "same-writes" Points(-10),
            "other threads made the same writes in both runs"
        OwnDoing "own-doing" Points(-35),
            "in the normal run {}: a virtual machine's own"
        OnlyReaders "only-readers" Points(-10),
            "in the normal run {}"
        Unrecorded "unrecorded" Points(0),
            "it changed in the normal run, by a write that was not recorded"
        NobodyWrote "nobody-wrote" Points(-20),
            "nobody wrote it in the recorded part of the normal run"
        WrittenHere "written-here" Points(10),
            "thread {} wrote it in the spin run"
        LeftWithSame "left-with-same" Points(-15),
            "the normal run read the same value and left"
        LeftWithOwn "left-with-own" Points(0),
            "the normal run left with {} there, written by itself"
        EndedByOther "ended-by-other" Points(-15),
            "the value with which the normal run left did not end its wait"
        LeftWith "left-with" Points(15),
            "the normal run left with {} there"
        LeftWithWritten "left-with-written" Points(10),
            "that is what the other thread wrote"
    }
    Loop {
        Works "works" Points(-15),
            "the loop also writes new data: it does work"
        FewRounds "few-rounds" Points(-10),
            "only few iterations were seen"
        AskedInPassing "asked-in-passing" AtMost,
            "the loop asks another word, with another value, in most iterations"
        BesideOwnEnd "beside-own-end" AtMost,
            "the normal run left by a word that the thread itself moves on, not by this"
        StopBySignal "stop-by-signal" AtMost,
            "only a signal's handler can write it, and each round is long: more likely a word to \
             stop by"
        Data "data" AtMost,
            "others change it between the reads, and each time it means something else: data"
        Progress "progress" AtMost,
            "the loop moves on in each iteration, and no other thread is known to write it"
        NeverAlike "never-alike" AtMost,
            "no two iterations went the same way, and no other thread is known to write it"
        Computes "computes" AtMost,
            "the loop hands on a new value in each iteration: it computes"
        AlikeInMachine "alike-in-machine" Pass,
            "a virtual machine's loop, and {} other words are as likely"
    }
    Choice {
        CallFirst "call-first" Pass,
            "A system call whose answer decides comes before words that only look likely."
        Commands "commands" Pass,
            "A call that changes something asks nothing: its success does not keep a loop waiting."
        WaitedWord "waited-word" Pass,
            "The word of a wait with a time limit is the flag where nothing else is clear."
        ForClients "for-clients" Pass,
            "A poll that finds nothing waits for clients where one of its sockets listens."
        CountedCalls "counted-calls" Pass,
            "A call that fails each time, where nothing else is answered anew, is made in vain."
    }
    Copies {
        GetsPast "gets-past" Pass,
            "A thread that leaves its loop while the word changes does not wait for the word."
        ProofOrder "proof-order" Pass,
            "A word by which a copy left the loop comes before one by which it did not."
        Checks "checks" Pass,
            "A word by which only an error ends the loop is a check, and no flag."
        OwnSide "own-side" Pass,
            "The index that the waiting thread moves itself is not what it waits for."
        MachineWords "machine-words" Pass,
            "Of a virtual machine's words only one that ends the program's loop is the flag."
        CountsAlone "counts-alone" Pass,
            "An interpreted loop that counts does not wait for a word that nobody else can write."
        LowScores "low-scores" Pass,
            "A word with a low score is the flag if copies show its writer and its effect."
        OwedFirst "owed-first" Pass,
            "A word that a thread is on its way to write comes before one that nobody owes."
        PollFirst "poll-first" Pass,
            "A poll in vain comes before a word that is tested only within it."
        OneOfTwo "one-of-two" Pass,
            "Where two words would do, and no copy tells them apart, neither is sure."
        BesidePoll "beside-poll" Pass,
            "A word that nobody is known to owe is not sure beside a poll in vain."
        EndedNothing "ended-nothing" Pass,
            "A word whose trial ended nothing, and which nobody owes, is not sure."
        NewsBeside "news-beside" Pass,
            "A word that nobody owes is not sure where others change what the loop reads beside."
        TrustProved "trust-proved" Pass,
            "A word that a copy of another thread wrote is sure."
    }
    Threads {
        OneMoment "one-moment" Pass,
            "In a core, a word is at most assumed, unless a thread that waits itself is to write \
             it."
        ServesMachine "serves-machine" Pass,
            "A thread that serves a virtual machine and looks seldom has no flag."
        IdleBesideProgress "idle-beside-progress" Pass,
            "An unsure word of an idle thread is no flag beside a thread that gets on."
        Heartbeats "heartbeats" Pass,
            "A thread that wakes seldom comes behind one that repeats a wait all the time."
    }
}

impl Rule {
    /// Its row.
    pub fn row(self) -> &'static Row {
        &RULES[self as usize]
    }

    /// Is it asked? All are but those that `FF_WITHOUT` names.
    pub fn is_on(self) -> bool {
        static OFF: OnceLock<Vec<Rule>> = OnceLock::new();
        let off = OFF.get_or_init(|| off(&std::env::var("FF_WITHOUT").unwrap_or_default()));
        !off.contains(&self)
    }
}

fn off(names: &str) -> Vec<Rule> {
    let rules = names
        .split(',')
        .filter_map(|name| RULES.iter().find(|row| row.name == name.trim()));
    rules.map(|row| row.rule).collect()
}

/// The signs of a word, in the order in which they were found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signs(Vec<Sign>);

/// A sign that is there.
#[derive(Clone, Debug)]
struct Sign {
    rule: Rule,
    /// How often, or how much of it.
    times: f64,
    /// What stands for the `{}` of its sentence.
    about: String,
}

impl Signs {
    pub fn add(&mut self, rule: Rule) {
        self.add_about(rule, "");
    }

    pub fn add_about(&mut self, rule: Rule, about: impl Into<String>) {
        self.add_times(rule, 1.0, about);
    }

    pub fn add_times(&mut self, rule: Rule, times: f64, about: impl Into<String>) {
        if rule.is_on() && times > 0.0 {
            let about = about.into();
            self.0.push(Sign { rule, times, about });
        }
    }

    pub fn extend(&mut self, others: Signs) {
        self.0.extend(others.0);
    }

    /// What they add up to.
    pub fn points(&self) -> f64 {
        let points = self.0.iter().map(|sign| match sign.rule.row().weight {
            Points(points) => f64::from(points) * sign.times,
            AtMost | Pass => 0.0,
        });
        points.sum::<f64>() / 100.0
    }

    /// Does one of them say that the word scores no more than a bound?
    pub fn are_of_bound(&self) -> bool {
        let mut signs = self.0.iter();
        signs.any(|sign| sign.rule.row().weight == AtMost)
    }

    /// A sentence for each.
    pub fn evidence(&self) -> impl Iterator<Item = String> + '_ {
        let told = |sign: &Sign| sign.rule.row().does.replacen("{}", &sign.about, 1);
        self.0.iter().map(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_switched_off_by_name_and_each_name_is_one_rule() {
        assert_eq!(
            off("own-side, heartbeats,none"),
            [Rule::OwnSide, Rule::Heartbeats]
        );
        assert!(off("").is_empty());
        for row in RULES {
            assert_eq!(off(row.name), [row.rule]);
            assert_eq!(row.rule.row().name, row.name);
        }
    }

    #[test]
    fn signs_add_up_by_the_table_and_are_told_in_their_order() {
        let mut signs = Signs::default();
        signs.add(Rule::Compared);
        signs.add_times(Rule::Depth, 2.0, "2");
        signs.add_about(Rule::Written, "7");
        assert!((signs.points() - 0.37).abs() < 1e-9);
        let told: Vec<String> = signs.evidence().collect();
        assert_eq!(told[2], "thread 7 wrote it in the normal run");
        assert!(!signs.are_of_bound());
        signs.add(Rule::Data);
        assert!(signs.are_of_bound());
    }
}
