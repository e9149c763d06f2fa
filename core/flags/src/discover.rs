// SPDX-License-Identifier: MIT
//! The data flags of one healthy run: words that a thread polled until another thread wrote them.
//!
//! In: a trace. Out: a [`Discovery`]. A thread that polls repeats one round of blocks
//! (`rounds.rs`). The window before its last round shows what the loop's exits depend on; the last
//! round shows with which value it was left. One pass over the stores of all threads then tells who
//! wrote that word. Blind spots: those of `rounds.rs`; words whose value at the end was not
//! recorded; words that no thread of the process writes (shared memory, the kernel). Stores have no
//! time: one that came before the wait counts as well, where it could have ended it.

use std::collections::BTreeMap;

use flagfinder_analysis::{self as analysis, Analysis, Candidate};
use flagfinder_diff::Callback;
use flagfinder_machine::{window_between, Window};
use flagfinder_trace::{BlockId, Process, Result, Thread, Trace};
use iced_x86::FlowControl;
use rayon::prelude::*;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::block_set::BlockSet;
use crate::evidence::Outside;
use crate::find::FindError;
use crate::finder;
use crate::naming::Naming;
use crate::report::{Flag, LoopReport, ThreadName, Writer};
use crate::rounds::{self, Rounds};
use crate::run::Run;
use crate::run_evidence::search;
use crate::standing::Standing;
use crate::stores;

/// Most ways out of loops that are looked at in one process, the longest stays first.
const ASKED: usize = 1000;
/// Stays that are looked at for each way out: the longest.
const TRIED: usize = 6;
/// Rounds of a stay that are looked at.
const LAST_ROUNDS: u64 = 64;

/// A word that ended waits.
#[derive(Clone, Debug, Serialize)]
pub struct Discovered {
    /// The process.
    pub pid: u32,
    /// The word, with the stores of others that ended a wait as its writers.
    #[serde(flatten)]
    pub flag: Flag,
    /// Where it is polled.
    #[serde(rename = "loop")]
    pub spin_loop: Option<LoopReport>,
    /// How many stays in such a loop ended where this word is tested; only those that were looked
    /// at, where other words ended others there.
    pub waits: u64,
    /// Rounds of all of them.
    pub rounds: u64,
    /// The threads that polled.
    pub polled_by: Vec<ThreadName>,
}

/// What `flagfinder discover` prints as JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Discovery {
    /// [`Discovery::SCHEMA`].
    pub schema: &'static str,
    /// The flags, those that ended the most waits first.
    pub flags: Vec<Discovered>,
    /// Ways out of repeated rounds that were seen, in all processes.
    pub ways_out: u64,
    /// Of those: the loop read another value in its last round, but no store of another thread to
    /// that word was recorded.
    pub unexplained: u64,
    /// What limits the answer, a line each.
    pub notes: Vec<String>,
}

impl Discovery {
    /// The name and version of its JSON format.
    pub const SCHEMA: &'static str = "flagfinder.discover/1";
}

/// One way out of a repeated round: the last block within, the first one outside.
struct WayOut<'t> {
    waits: u64,
    rounds: u64,
    /// By thread id.
    threads: BTreeMap<u32, ThreadName>,
    /// The longest stays.
    stays: Vec<(&'t Thread, Rounds)>,
}

/// A loop that ended as a word got another value.
struct Ended<'t> {
    thread: &'t Thread,
    rounds: u64,
    window: Window,
    analysis: Analysis,
    /// Candidates by number, with the value of the last round.
    words: Vec<(usize, u64)>,
}

/// Lists the flags of a run.
///
/// # Errors
/// When the trace cannot be read.
pub fn discover(trace: &Trace, progress: Callback) -> std::result::Result<Discovery, FindError> {
    let mut found = Discovery {
        schema: Discovery::SCHEMA,
        flags: Vec::new(),
        ways_out: 0,
        unexplained: 0,
        notes: Vec::new(),
    };
    if trace.processes().iter().all(|p| p.threads().is_empty()) {
        return Err(FindError::NoThreads);
    }
    for process in trace.processes() {
        of_process(process, progress, &mut found)?;
    }
    let order = |one: &Discovered| (std::cmp::Reverse(one.waits), std::cmp::Reverse(one.rounds));
    found.flags.sort_by_key(order);
    for (index, one) in found.flags.iter_mut().enumerate() {
        one.flag.rank = index as u32 + 1;
    }
    Ok(found)
}

fn of_process(process: &Process, progress: Callback, found: &mut Discovery) -> Result<()> {
    let run = Run::new(process)?.telling(progress);
    let mut ways = ways_out(&run)?;
    found.ways_out += ways.len() as u64;
    if ways.len() > ASKED {
        found.notes.push(format!(
            "process {}: of {} ways out of loops the {ASKED} with the longest stays were looked at",
            process.pid,
            ways.len()
        ));
        ways.truncate(ASKED);
    }
    let positions = positions(process, &ways)?;
    let looks: Vec<Result<Vec<Ended>>> = ways
        .par_iter()
        .map(|way| look(&run, way, &positions))
        .collect();
    let mut ended = Vec::new();
    for (way, look) in ways.iter().zip(looks) {
        let look = look?;
        let is_one = are_of_one_word(&look);
        ended.extend(look.into_iter().map(|one| (is_one.then_some(way), one)));
    }
    let outside = who_stored(&run, &ended)?;
    let mut counted: Vec<&WayOut> = Vec::new();
    for ((way, look), outside) in ended.iter().zip(&outside) {
        let mut flags = flags(&run, look, outside);
        found.unexplained += u64::from(flags.is_empty());
        if let Some(way) = way.filter(|_| !flags.is_empty()) {
            // All of its stays count, those as well that were not looked at.
            let is_new = !counted.iter().any(|known| std::ptr::eq(*known, way));
            counted.push(way);
            for flag in &mut flags {
                flag.waits = if is_new { way.waits } else { 0 };
                flag.rounds = if is_new { way.rounds } else { 0 };
                flag.polled_by = way.threads.values().cloned().collect();
            }
        }
        for flag in flags {
            add(&mut found.flags, flag);
        }
    }
    Ok(())
}

/// Was it the same words that ended each?
fn are_of_one_word(looks: &[Ended]) -> bool {
    let words = |look: &Ended| -> Vec<u64> {
        let of = |&(word, _): &(usize, u64)| look.analysis.candidates[word].address;
        look.words.iter().map(of).collect()
    };
    looks.windows(2).all(|two| words(&two[0]) == words(&two[1]))
}

/// The ways out of repeated rounds, those with the longest stays first.
fn ways_out<'t>(run: &Run<'t>) -> Result<Vec<WayOut<'t>>> {
    let threads: &'t [Thread] = run.process.threads();
    let all: Vec<Result<Vec<Rounds>>> = threads.par_iter().map(rounds::of_thread).collect();
    let mut ways: FxHashMap<(BlockId, BlockId), WayOut> = FxHashMap::default();
    for (thread, rounds) in threads.iter().zip(all) {
        for one in rounds? {
            let way = ways.entry((one.last, one.next)).or_insert_with(|| WayOut {
                waits: 0,
                rounds: 0,
                threads: BTreeMap::new(),
                stays: Vec::new(),
            });
            way.waits += 1;
            way.rounds += one.count;
            way.threads
                .entry(thread.tid)
                .or_insert_with(|| name(thread));
            way.stays.push((thread, one));
            if way.stays.len() > 2 * TRIED {
                keep_longest(&mut way.stays);
            }
        }
    }
    ways.retain(|(last, _), _| chooses(run, *last));
    let mut ways: Vec<WayOut> = ways.into_values().collect();
    for way in &mut ways {
        keep_longest(&mut way.stays);
    }
    ways.sort_by_key(|way| {
        let (thread, stay) = way.stays[0];
        (std::cmp::Reverse(stay.count), thread.tid, stay.ended)
    });
    Ok(ways)
}

fn name(thread: &Thread) -> ThreadName {
    ThreadName {
        tid: thread.tid,
        name: thread.name.clone(),
    }
}

fn keep_longest(stays: &mut Vec<(&Thread, Rounds)>) {
    stays.sort_by_key(|(thread, stay)| (std::cmp::Reverse(stay.count), thread.tid, stay.ended));
    stays.truncate(TRIED);
}

/// Can the block go on in two ways, by what it finds?
fn chooses(run: &Run, block: BlockId) -> bool {
    let block = run.process.block(block);
    let codes = block.and_then(|block| run.blocks.get(block));
    let last = codes.and_then(|codes| Some(codes.instructions.last()?.instruction.flow_control()));
    matches!(
        last,
        Some(FlowControl::ConditionalBranch | FlowControl::IndirectBranch | FlowControl::Return)
    )
}

/// The first block of a stay's last rounds, the block before its very last round, and its last
/// block.
fn marks(stay: &Rounds) -> [u64; 3] {
    let rounds = stay.count.min(LAST_ROUNDS) * stay.length;
    let ended = stay.ended;
    [ended - rounds, ended - 1 - stay.length, ended - 1]
}

/// Positions in the flow of the blocks that are asked about, by thread id and index.
fn positions(process: &Process, ways: &[WayOut]) -> Result<FxHashMap<(u32, u64), u64>> {
    let mut found = FxHashMap::default();
    for thread in process.threads() {
        let of_thread = ways.iter().flat_map(|way| &way.stays);
        let own = of_thread.filter(|(other, _)| std::ptr::eq(*other, thread));
        let mut indices: Vec<u64> = own.flat_map(|(_, stay)| marks(stay)).collect();
        indices.sort_unstable();
        indices.dedup();
        let positions = rounds::positions(thread, &indices)?;
        found.extend(
            positions
                .into_iter()
                .map(|(index, pos)| ((thread.tid, index), pos)),
        );
    }
    Ok(found)
}

/// What the stays depended on that a word ended.
fn look<'t>(
    run: &Run<'t>,
    way: &WayOut<'t>,
    positions: &FxHashMap<(u32, u64), u64>,
) -> Result<Vec<Ended<'t>>> {
    let mut found = Vec::new();
    for &(thread, stay) in &way.stays {
        let marks = marks(&stay).map(|index| positions.get(&(thread.tid, index)));
        let [Some(&first), Some(&before), Some(&last)] = marks else {
            continue;
        };
        let window = window_between(&run.blocks, thread, first..=before)?;
        let Some(analysis) = analysis::analyse(&window, &run.names, &[], true) else {
            continue;
        };
        let last_round = window_between(&run.blocks, thread, before..=last)?;
        let candidates = analysis.candidates.iter().enumerate();
        let words: Vec<(usize, u64)> = candidates
            .filter_map(|(number, word)| Some((number, ending(&analysis, word, &last_round)?)))
            .collect();
        if !words.is_empty() {
            found.push(Ended {
                thread,
                rounds: stay.count,
                window,
                analysis,
                words,
            });
        }
    }
    Ok(found)
}

/// The value of the word in the last round, if it is another one and ends the loop.
fn ending(analysis: &Analysis, word: &Candidate, last_round: &Window) -> Option<u64> {
    let read = |step: u32| {
        if !word.readers.contains(&last_round.pc(step)) {
            return None;
        }
        let mut accesses = last_round.accesses(step).iter();
        let read = accesses.find(|one| !one.write && one.address == Some(word.address))?;
        read.value.get((read.bytes * 8).min(64))
    };
    let value = (0..last_round.len()).rev().find_map(read)?;
    let is_other = word.value.is_some_and(|before| before != value);
    (is_other && analysis.lets_go(word, value) == Some(true)).then_some(value)
}

/// Who stored to the words, by loop.
fn who_stored(run: &Run, ended: &[(Option<&WayOut>, Ended)]) -> Result<Vec<Outside>> {
    let mut questions = stores::Questions::default();
    for (number, (_, look)) in ended.iter().enumerate() {
        for &(word, _) in &look.words {
            let word = &look.analysis.candidates[word];
            let key = (number, word.address);
            questions.watch(word.address, word.bytes, key, Some(look.thread.tid));
        }
    }
    let mut outside: Vec<Outside> = ended
        .iter()
        .map(|_| Outside {
            spin_searched: true,
            ..Outside::default()
        })
        .collect();
    search(run, &BlockSet::default(), questions, None, &mut outside)?;
    Ok(outside)
}

/// The words that another thread wrote, so that this loop ended.
fn flags(run: &Run, look: &Ended, outside: &Outside) -> Vec<Discovered> {
    let naming = Naming {
        spin: &run.names,
        normal: None,
    };
    let thread = name(look.thread);
    let analysis = &look.analysis;
    let report = finder::report(&look.window, analysis, &naming, thread, outside);
    let named = || report.flags.iter().chain(&report.considered);
    let flag = |&(number, value): &(usize, u64)| {
        let word = &analysis.candidates[number];
        let stores = outside.stores.get(&word.address)?;
        let ends = |store: &&crate::evidence::Store| {
            let wrote = |value| analysis.lets_go(word, value) != Some(false);
            outside.is_foreign(store) && store.value.is_none_or(wrote)
        };
        let writers: Vec<(u32, _)> = stores
            .iter()
            .filter(ends)
            .map(|store| (store.tid, run.names.code(store.pc)))
            .collect();
        if writers.is_empty() {
            return None;
        }
        let mut flag = named()
            .find(|flag| flag.address.spin == Some(word.address))?
            .clone();
        flag.standing = Standing::SeenInGoodRun;
        flag.value.exit = Some(value);
        flag.writers.retain(|one| {
            writers
                .iter()
                .any(|(tid, code)| *tid == one.tid && *code == one.code)
        });
        Some(Discovered {
            pid: run.process.pid,
            flag,
            spin_loop: report.spin_loop.clone(),
            waits: 1,
            rounds: look.rounds,
            polled_by: vec![name(look.thread)],
        })
    };
    look.words.iter().filter_map(flag).collect()
}

/// Adds a flag, to what is known of the same word already, or of the same field of other objects
/// that the same instruction polls.
fn add(flags: &mut Vec<Discovered>, new: Discovered) {
    let is_same = |known: &&mut Discovered| {
        let (known, new) = (&known.flag, &new.flag);
        let field = new.access_path.is_some() && known.access_path == new.access_path;
        known.address.spin == new.address.spin || field && known.readers == new.readers
    };
    let mut of_process = flags.iter_mut().filter(|known| known.pid == new.pid);
    let Some(known) = of_process.find(is_same) else {
        flags.push(new);
        return;
    };
    known.waits += new.waits;
    known.rounds += new.rounds;
    for thread in new.polled_by {
        if !known.polled_by.contains(&thread) {
            known.polled_by.push(thread);
        }
    }
    for reader in new.flag.readers {
        if !known.flag.readers.contains(&reader) {
            known.flag.readers.push(reader);
        }
    }
    for writer in new.flag.writers {
        let is_same = |known: &&mut Writer| (known.tid, &known.code) == (writer.tid, &writer.code);
        match known.flag.writers.iter_mut().find(is_same) {
            Some(known) => known.count = known.count.max(writer.count),
            None => known.flag.writers.push(writer),
        }
    }
}
