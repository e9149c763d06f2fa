// SPDX-License-Identifier: MIT
//! From an analysed window and its evidence to a report.

use flagfinder_analysis::condition::Condition;
use flagfinder_analysis::{failing_call, own_position, Analysis, Candidate, LoopKind, OtherWay};
use flagfinder_code::Spot;
use flagfinder_machine::Window;

use crate::access_path::Explorer;
use crate::evidence::Outside;
use crate::naming::{short_name, Naming};
use crate::places::Places;
use crate::rank::{self, Ranked, ENOUGH, ENOUGH_ALONE, INTERPRETER_ALONE};
use crate::report::{
    Ask, Facts, Flag, FlagKind, Group, LoopReport, Report, Test, ThreadName, Threads, Verdict,
    VirtualMachine,
};
use crate::report_builder::Builder;
use crate::rules::Rule;
use crate::standing::Standing;
use crate::touched;
use crate::within_poll;

/// The note on an interpreter's loop, for reports that know no code of the program that it runs.
pub const OF_INTERPRETER: &str = "the loop is an interpreter's: it runs a program of its own, and \
    the words are the interpreter's. Which variable of that program is meant, its own tools can \
    tell (a stack dump of the thread names the line)";
/// Most flags a report lists.
const LISTED: usize = 8;
/// The same for a virtual machine's loop in a live process, where a copy tells more than the code.
const LISTED_OF_MACHINE: usize = 24;
/// Most words of an interpreter's loop that are listed whatever their score, because the loop
/// compares them with another word, as the program's comparison does.
const COMPARED: usize = 8;
/// Most words that are reported beside them because they pick one of the program's named objects.
const PICKS: usize = 24;
/// Most values for which tests of one word are reported.
const ASKED: usize = 4;
/// A word that scores this much less than the best is not listed.
const FAR_BELOW: f64 = 0.45;

/// The report on one thread's window.
pub fn report(
    window: &Window,
    analysis: &Analysis,
    naming: &Naming,
    thread: ThreadName,
    outside: &Outside,
) -> Report {
    let names = naming.spin;
    let ranked = rank::rank(window, analysis, names, thread.tid, outside);
    let mut builder = Builder {
        window,
        analysis,
        naming,
        outside,
        explorer: Explorer::new(window, naming.spin),
        rounds: iterations_that_count(analysis, ranked.first(), outside.live),
        explain: Vec::new(),
    };
    builder.explain_loop();
    let best = ranked.first().map_or(0.0, |r| r.score);
    let proven = ranked.first().is_some_and(|r| builder.is_proven(r));
    let mut flags: Vec<Flag> = Vec::new();
    let asked = builder.asked_call(best);
    let call = asked.as_ref().map(|(call, _)| *call);
    let mut call_flag = asked.map(|(_, flag)| flag);
    let polled = ranked
        .first()
        .is_some_and(|r| builder.leaves_by(r) && !builder.waits_for_a_signal(r))
        && call.is_some_and(|call| builder.asks_in_passing(call));
    let call_first = call_flag
        .as_ref()
        .is_some_and(|flag| !proven && !polled && flag.confidence >= ENOUGH)
        && Rule::CallFirst.is_on();
    if call_first {
        flags.extend(call_flag.take());
    }
    for ranked in builder.listed(&ranked) {
        let mut flag = builder.flag(ranked);
        if call_first {
            flag.confidence *= 0.5;
            let why = "the result of a system call decides as well, and comes first";
            flag.evidence.push(why.into());
        }
        flags.push(flag);
    }
    flags.extend(call_flag);
    let is_clear = call_first || best >= enough(outside.live);
    let is_asked = Rule::WaitedWord.is_on();
    if is_asked && !is_clear && !is_served(analysis) && !analysis.is_of_machine() {
        if let Some(flag) = builder.waited_word(&ranked) {
            flags.retain(|other| other.address.spin != flag.address.spin);
            flags.insert(0, flag);
        }
    }
    for (index, flag) in flags.iter_mut().enumerate() {
        flag.rank = index as u32 + 1;
    }
    let mut groups = builder.groups(&flags);
    let kind = builder.kind(flags.first());
    let endless = builder.endless();
    let (verdict, reason) = match &endless {
        Some(why) => (Verdict::NoFlag, format!("nothing ends the loop: {why}")),
        None => builder.verdict(&flags, call_first, kind),
    };
    let mut notes = Vec::new();
    if analysis.interprets && verdict != Verdict::NoFlag {
        notes.push(OF_INTERPRETER.to_string());
    }
    let mut considered = builder.picks(&ranked, &flags);
    if verdict == Verdict::NoFlag {
        // A word that was not believed is no flag; it is reported all the same.
        groups.clear();
        notes.extend(flags.iter().map(|flag| {
            let doubt = flag.evidence.last().map_or("", String::as_str);
            format!(
                "considered {}, at {:.2}: {doubt}",
                flag.name, flag.confidence
            )
        }));
        considered.splice(0..0, flags.drain(..));
    }
    for flag in &mut flags {
        flag.standing = builder.standing(flag);
    }
    for flag in &mut considered {
        flag.standing = Standing::RuledOut;
    }
    for (index, flag) in flags.iter_mut().chain(&mut considered).enumerate() {
        flag.rank = index as u32 + 1;
    }
    let gets_on = builder.computes().is_some();
    let machine = analysis.is_of_machine();
    let machine = machine.then(|| builder.machine(&ranked));
    Report {
        verdict,
        reason,
        threads: Threads {
            normal: None,
            spin: Some(thread),
        },
        spin_loop: Some(builder.loop_report(kind)),
        flags,
        considered,
        groups,
        condition: None,
        notes,
        explain: builder.explain,
        facts: Facts {
            gets_on: gets_on
                || analysis.progress.consumes
                || analysis.progress.is_woken
                || !analysis.progress.repeats,
            machine,
            apart: own_position::apart(analysis),
            within_poll: within_poll::words(window, analysis, &ranked),
            long_rounds: analysis.has_long_rounds(),
            places: Places::of(window, analysis),
            rewritten: touched::rewritten(window, analysis),
            reads: touched::read(window, analysis),
            reads_news: false,
            endless,
            task: None,
        },
        ..Report::nothing(verdict, "")
    }
}

/// A word with at least this score is called the flag.
fn enough(live: bool) -> f64 {
    if live {
        ENOUGH_ALONE
    } else {
        ENOUGH
    }
}

/// How many iterations a call that keeps the loop going must be made in: those that read the word
/// which would be the flag without it. An interpreter's loop goes round for each piece of its
/// program: all that this one tests is read and asked in few of them.
fn iterations_that_count(analysis: &Analysis, best: Option<&Ranked>, live: bool) -> usize {
    let all = analysis.spin.starts.len() - 1;
    best.filter(|best| best.score >= enough(live))
        .map_or(all, |best| {
            all.min(analysis.candidates[best.candidate].rounds as usize)
        })
}

/// Does the thread get data, or is it woken? `consumes` includes a thread that took data shortly
/// before (`recent_intake.rs`).
fn is_served(analysis: &Analysis) -> bool {
    analysis.progress.is_woken || analysis.progress.consumes
}

impl Builder<'_> {
    fn explain_loop(&mut self) {
        let analysis = self.analysis;
        let header = self.code(self.window.code_at(analysis.spin.marker).pc());
        self.explain.push(format!(
            "{} iterations of a loop that begins at {header}",
            analysis.spin.iterations
        ));
        self.explain.push(format!(
            "{} branches always went one way and could leave it",
            analysis.exits.len()
        ));
        self.explain.push(format!(
            "they depend on {} words of memory and {} system calls that the thread does not write \
             itself, and on {} words that it does",
            analysis.candidates.len(),
            analysis.calls.len(),
            analysis.own_words.len()
        ));
    }

    /// How it is known so far that the loop waits for the flag.
    fn standing(&self, flag: &Flag) -> Standing {
        let (live, address) = (self.outside.live, flag.address.spin);
        let mut candidates = self.analysis.candidates.iter();
        let word = candidates.find(|word| Some(word.address) == address);
        match word.is_some_and(|word| self.outside.was_ended_by_others(word)) {
            true => Standing::SeenInGoodRun,
            false if flag.confidence < enough(live) => Standing::Unsure,
            // An interpreter tests much of its own.
            false if word.is_some() && live && self.analysis.interprets => Standing::Unsure,
            false => Standing::ByCode,
        }
    }

    /// The call whose result decides whether the loop goes on, or that the loop makes in vain, as a
    /// flag. `best` is the score of the first word.
    fn asked_call(&self, best: f64) -> Option<(u32, Flag)> {
        let (analysis, outside) = (self.analysis, self.outside);
        let ready = || self.ready_call().filter(|_| best < ENOUGH);
        let call = self.deciding_call().or_else(ready);
        let sure = call.is_some_and(|call| self.call_doubt(call).is_none());
        let unclear = best < ENOUGH || analysis.interprets;
        let in_vain = || failing_call::asked_in_vain(self.window, &analysis.same_again);
        let vain = (!sure && unclear && !is_served(analysis)).then(in_vain);
        let is_own = |call: &u32| outside.own_wakeups.contains(call);
        let vain = vain
            .flatten()
            .filter(|call| !self.is_schedulers_poll(*call) && !is_own(call));
        let decides = call.filter(|call| !(outside.live && self.is_schedulers_poll(*call)));
        let step = vain.or(decides)?;
        let mut flag = self.call_flag(step);
        if let Some(doubt) = self.call_doubt(step).filter(|_| vain.is_none()) {
            flag.confidence = 0.1;
            flag.evidence.push(doubt.into());
        }
        if vain.is_some() || analysis.interprets && outside.live {
            flag.confidence = flag.confidence.min(INTERPRETER_ALONE);
            if analysis.interprets {
                let why = "an interpreter makes it, maybe for its own work";
                flag.evidence.push(why.into());
            }
        }
        Some((step, flag))
    }

    /// The words that are listed: those that come near the first, and those that an interpreter's
    /// program compares.
    fn listed<'r>(&self, ranked: &'r [Ranked]) -> Vec<&'r Ranked> {
        let (analysis, live) = (self.analysis, self.outside.live);
        let best = ranked.first().map_or(0.0, |r| r.score);
        let condition = ranked.first().map(|r| analysis.compounds[r.exit]);
        let is_near = |ranked: &&Ranked| {
            ranked.score > 0.05
                && (ranked.score + FAR_BELOW >= best || self.is_tested_in(ranked, condition))
        };
        let most = match live && analysis.is_of_machine() {
            true => LISTED_OF_MACHINE,
            false => LISTED,
        };
        let mut listed: Vec<&Ranked> = ranked.iter().filter(is_near).take(most).collect();
        let is_compared = |ranked: &&Ranked| {
            live && analysis.is_compared(&analysis.candidates[ranked.candidate])
                && listed.iter().all(|one| one.candidate != ranked.candidate)
        };
        let compared: Vec<_> = ranked.iter().filter(is_compared).take(COMPARED).collect();
        listed.extend(compared);
        listed
    }

    /// In the normal run another thread writes it.
    fn is_proven(&self, ranked: &Ranked) -> bool {
        let candidate = &self.analysis.candidates[ranked.candidate];
        ranked.score >= ENOUGH && self.outside.is_written_by_others(candidate)
    }

    /// Does only a signal's handler write it? Then what the loop asks the kernel comes first.
    fn waits_for_a_signal(&self, ranked: &Ranked) -> bool {
        let word = &self.analysis.candidates[ranked.candidate];
        self.outside.of_one_thread.contains(&word.address)
    }

    /// Words not `listed` that hold the address of something that has a name, where just that is
    /// tested: one of several states, each an object, as what an interpreter's program calls true,
    /// false and nothing.
    fn picks(&self, ranked: &[Ranked], listed: &[Flag]) -> Vec<Flag> {
        let is_listed = |address: u64| listed.iter().any(|flag| flag.address.spin == Some(address));
        // The exit at which an interpreter chooses what it does next (a jump by a table) asks for
        // nothing.
        let tests = |word: &Candidate, exit: usize| {
            let test = self.analysis.conditions[exit].as_ref();
            test.is_some_and(|test| test.mentions(word.address, word.bytes))
        };
        let tested = |ranked: &Ranked| {
            let word = &self.analysis.candidates[ranked.candidate];
            let mut exits = std::iter::once(ranked.exit).chain(word.exits.iter().copied());
            let exit = exits.find(|&exit| tests(word, exit))?;
            let names = self.naming.spin;
            let is_pick = !is_listed(word.address)
                && word.bytes == 8
                && word.steady
                && word.value.is_some_and(|v| names.symbol_at(v).is_some());
            is_pick.then(|| {
                let mut ranked = ranked.clone();
                ranked.exit = exit;
                ranked
            })
        };
        let found = ranked.iter().filter_map(tested).take(PICKS);
        found.map(|ranked| self.flag(&ranked)).collect()
    }

    fn machine(&self, ranked: &[Ranked]) -> VirtualMachine {
        let analysis = self.analysis;
        let own = |word: &Ranked| Some((analysis.candidates[word.candidate].address, word.own?));
        let hops = |word: &Ranked| {
            let address = analysis.candidates[word.candidate].address;
            Some((address, analysis.interpreted.hops(address)?))
        };
        let is_listed = |(at, word): &(usize, &Ranked)| {
            *at < LISTED_OF_MACHINE || analysis.is_compared(&analysis.candidates[word.candidate])
        };
        let listed = ranked
            .iter()
            .enumerate()
            .filter(is_listed)
            .map(|(_, word)| word);
        VirtualMachine {
            own: ranked.iter().filter_map(own).collect(),
            readers: analysis.interpreted.readers.clone(),
            asks: listed.clone().flat_map(|word| self.asks(word)).collect(),
            hops: listed.filter_map(hops).collect(),
            counts: touched::counts(self.window, analysis),
        }
    }

    /// What the tests ask of a word, each value once. (A virtual machine looks at the word's type
    /// before the program's comparison, or at what this came to behind it.) The program compares
    /// the word with another one; how the machine asks for a type comes last.
    fn asks(&self, ranked: &Ranked) -> Vec<Ask> {
        let word = &self.analysis.candidates[ranked.candidate];
        let (address, bytes) = (word.address, word.bytes);
        let short = |at: u64| match at == address {
            true => "value".to_string(),
            false => short_name(&self.naming.spin.data(at), at),
        };
        let bits = (bytes * 8).min(64);
        let mut asks: Vec<Ask> = Vec::new();
        let conditions = &self.analysis.conditions;
        let tests = word
            .exits
            .iter()
            .filter_map(|&exit| conditions[exit].as_ref());
        let is_of_word = |test: &&Condition| test.mentions(address, bytes);
        let mut tests: Vec<&Condition> = tests.filter(is_of_word).collect();
        tests.sort_by_key(|test| (!test.asks_for_same_words(), test.asks_for_bits_or_bounds()));
        for test in tests {
            if let Some(value) = test.leaving_value(address, bits, word.value.unwrap_or(0)) {
                if asks.len() < ASKED && asks.iter().all(|ask| ask.value != value) {
                    let when = test.text(&short);
                    asks.push(Ask {
                        address,
                        bytes,
                        with_word: test.asks_for_same_words(),
                        value,
                        when,
                    });
                }
            }
        }
        asks
    }

    /// Is the word likely, and tested where the loop is simply left?
    fn leaves_by(&self, ranked: &Ranked) -> bool {
        let exit = &self.analysis.exits[ranked.exit];
        let pc = self.window.pc(exit.step);
        ranked.score >= ENOUGH && !self.outside.other_ways.contains_key(&pc)
    }

    /// Is it compared in one of the condition's tests?
    fn is_tested_in(&self, ranked: &Ranked, condition: Option<usize>) -> bool {
        let candidate = &self.analysis.candidates[ranked.candidate];
        candidate.exits.iter().any(|&exit| {
            let test = self.analysis.conditions[exit].as_ref();
            Some(self.analysis.compounds[exit]) == condition
                && test.is_some_and(|test| test.mentions(candidate.address, candidate.bytes))
        })
    }

    fn groups(&self, flags: &[Flag]) -> Vec<Group> {
        let analysis = self.analysis;
        let is_told = |address| flags.iter().any(|flag| flag.address.spin == Some(address));
        let name = |address| match is_told(address) {
            true => self.word_name(address),
            false => short_name(&self.naming.spin.data(address), address),
        };
        let mut groups: Vec<Group> = Vec::new();
        for exits in self.exits_by_condition() {
            let decides = |flag: &&Flag| {
                let mut candidates = analysis.candidates.iter();
                candidates.any(|c| {
                    Some(c.address) == flag.address.spin
                        && exits.iter().any(|exit| c.exits.contains(exit))
                })
            };
            let members: Vec<u32> = flags.iter().filter(decides).map(|f| f.rank).collect();
            if members.is_empty() || groups.iter().any(|g| g.flags == members) {
                continue;
            }
            let mut tests: Vec<Test> = Vec::new();
            for &exit in &exits {
                let Some(condition) = &analysis.conditions[exit] else {
                    continue;
                };
                let own = flags.iter().filter(|flag| members.contains(&flag.rank));
                let compared = own.filter_map(|flag| Some((flag.address.spin?, flag.size)));
                let words = compared.filter(|(at, bytes)| condition.mentions(*at, *bytes));
                let words: Vec<u64> = words.map(|(at, _)| at).collect();
                let way = self
                    .outside
                    .other_ways
                    .get(&self.window.pc(analysis.exits[exit].step));
                let test = Test {
                    text: condition.text(&name),
                    operator: condition.operator().map(str::to_string),
                    words,
                    tests_more: way == Some(&OtherWay::Tests),
                };
                let is_about_them = !test.words.is_empty() || exits.len() == 1;
                if is_about_them && tests.iter().all(|other| other.text != test.text) {
                    tests.push(test);
                }
            }
            let texts: Vec<&str> = tests.iter().map(|test| test.text.as_str()).collect();
            groups.push(Group {
                branch: self.code(self.window.pc(analysis.exits[exits[0]].step)),
                exit_when: (!texts.is_empty()).then(|| texts.join(" or ")),
                flags: members,
                tests,
            });
        }
        groups.sort_by_key(|group| group.flags.clone());
        groups.truncate(LISTED);
        groups
    }

    /// The exits of each condition of the source, in the order of execution.
    fn exits_by_condition(&self) -> Vec<Vec<usize>> {
        let mut by_condition: Vec<(usize, Vec<usize>)> = Vec::new();
        for (exit, &condition) in self.analysis.compounds.iter().enumerate() {
            match by_condition.iter_mut().find(|(c, _)| *c == condition) {
                Some((_, exits)) => exits.push(exit),
                None => by_condition.push((condition, vec![exit])),
            }
        }
        by_condition.into_iter().map(|(_, exits)| exits).collect()
    }

    fn kind(&self, first: Option<&Flag>) -> LoopKind {
        let atomic = first.is_some_and(|flag| {
            let mut candidates = self.analysis.candidates.iter();
            candidates.any(|c| Some(c.address) == flag.address.spin && c.atomic)
        });
        if atomic {
            LoopKind::Rmw
        } else {
            self.analysis.kind
        }
    }

    fn verdict(&self, flags: &[Flag], call_first: bool, kind: LoopKind) -> (Verdict, String) {
        let enough = enough(self.outside.live);
        match flags.first() {
            Some(flag) if call_first => (
                Verdict::SyscallLoop,
                format!("the loop repeats because {}", flag.name),
            ),
            Some(flag) if flag.confidence >= enough && flag.kind != FlagKind::Syscall => {
                let text = format!(
                    "the loop polls {}; it ends when {}",
                    flag.name, flag.exit_when
                );
                if kind == LoopKind::Rmw {
                    (Verdict::Lock, text)
                } else {
                    (Verdict::DataFlag, text)
                }
            }
            _ if self.analysis.progress.consumes => (
                Verdict::NoFlag,
                "the loop takes over data in every iteration: it makes progress".into(),
            ),
            _ if self.analysis.progress.is_woken => (
                Verdict::NoFlag,
                "other threads wake it in every iteration: it is served".into(),
            ),
            _ if self.computes().is_some() => {
                (Verdict::NoFlag, self.computes().unwrap_or_default())
            }
            _ if self.outside.live && !self.analysis.progress.repeats => (
                Verdict::NoFlag,
                "no two iterations of the loop go the same way: it does something else each time"
                    .into(),
            ),
            _ if self.analysis.exits.iter().any(|exit| exit.induction) => (
                Verdict::NoFlag,
                "what decides the loop's exits is changed by the loop's own thread in every \
                 iteration; whether that leads to its end is not known"
                    .into(),
            ),
            Some(flag) => {
                (
                    Verdict::NoFlag,
                    format!(
                    "nothing that decides the loop's exits is sure enough to be called the flag; \
                     {}, at {:.2}, comes nearest{}",
                    flag.name,
                    flag.confidence,
                    flag.evidence.last().map(|doubt| format!(" ({doubt})")).unwrap_or_default(),
                ),
                )
            }
            None => (
                Verdict::NoFlag,
                "no exit of the loop depends on memory that stays the same and that this thread \
                 does not write"
                    .into(),
            ),
        }
    }

    /// That the loop computes, and where it makes the value that says so. (With a good run to
    /// compare with, that run tells more.)
    fn computes(&self) -> Option<String> {
        let is_asked = self.outside.live && Rule::Computes.is_on();
        let step = self.analysis.computes.filter(|_| is_asked)?;
        let code = self.code(self.window.pc(step));
        Some(format!(
            "the loop computes: what {code} makes is new in each iteration, and made from what it \
             made before"
        ))
    }

    fn loop_report(&self, kind: LoopKind) -> LoopReport {
        let spin = &self.analysis.spin;
        let marker = self.window.code_at(spin.marker).pc();
        let header = self.code(marker);
        let spots = self.naming.spin.spots(marker + 1);
        let at = Spot::first_own(spots.iter().map(|(whose, spot)| (*whose, spot)));
        let function = header.symbol.as_deref().map(|s| {
            s.rsplit_once("+0x")
                .map_or(s, |(function, _)| function)
                .to_string()
        });
        let module = header.module.clone();
        let place = module
            .as_ref()
            .map(|module| format!("{module}+{:#x}", header.offset));
        LoopReport {
            kind,
            function: function.or(place),
            module,
            iterations: spin.iterations,
            header,
            at,
        }
    }
}
