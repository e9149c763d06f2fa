// SPDX-License-Identifier: MIT
//! Gathering evidence from traces: one pass over the normal run for what the same
//! instructions read and where they went, one pass over each run for who stored there.

use flagfinder_analysis::Analysis;
use flagfinder_machine::Window;
use flagfinder_trace::Result;
use iced_x86::Instruction;

use crate::block_set::BlockSet;
use crate::counterpart::{by_home, same_home};
use crate::evidence::Outside;
use crate::passes::ask;
use crate::reads::{self, Leaves, Reads, Seen};
use crate::run::Run;
use crate::stores::{self, Stores};
use crate::twins::Twins;

/// A thread that waits for a write that does not come.
pub struct Waiting<'w> {
    pub tid: u32,
    /// Its counterpart in the normal run.
    pub reader: Option<u32>,
    pub window: &'w Window,
    pub analysis: &'w Analysis,
    /// For how many blocks it has repeated its loop; 0: not known.
    pub length: u64,
}

/// The blocks that these threads of one run repeat.
fn repeated(spin: &Run, waiting: &[Waiting]) -> Result<BlockSet> {
    let mut all = BlockSet::default();
    for one in waiting {
        all.extend(&spin.repeated(one.tid, one.length)?);
    }
    Ok(all)
}

/// Evidence about threads of the spin run that wait, in their order: who stored to their candidates
/// in that run, and what the `normals` say, runs of the same program.
///
/// # Errors
/// When a trace cannot be read.
pub fn gather(
    spin: &Run,
    waiting: &[Waiting],
    normals: &[&Run],
    writers: bool,
) -> Result<Vec<Outside>> {
    let of = |one: &Waiting| Outside {
        reader: one.reader,
        of_machine: one.analysis.is_of_machine(),
        ..Outside::default()
    };
    let mut outside: Vec<Outside> = waiting.iter().map(of).collect();
    if waiting.is_empty() {
        return Ok(outside);
    }
    let loops = repeated(spin, waiting)?;
    if writers {
        from_spin(spin, &loops, waiting, &mut outside)?;
    }
    for (number, normal) in normals.iter().enumerate() {
        from_normal(spin, &loops, waiting, (number, normal), &mut outside)?;
    }
    for (one, outside) in waiting.iter().zip(&mut outside) {
        mark_what_ended_no_wait(spin, one.analysis, normals, outside);
    }
    Ok(outside)
}

/// Addresses differ from run to run. A pointer that had another value in the other run did not end
/// the wait by that.
fn mark_what_ended_no_wait(
    spin: &Run,
    analysis: &Analysis,
    normals: &[&Run],
    outside: &mut Outside,
) {
    for candidate in &analysis.candidates {
        let keeps = |value: Option<u64>| {
            value.is_some_and(|value| analysis.lets_go(candidate, value) == Some(false))
        };
        let stores = outside.stores.get_mut(&candidate.address);
        for store in stores.into_iter().flatten() {
            let normal = normals.get(store.run).filter(|_| store.normal);
            let here = normal.and_then(|run| as_in(spin, store.value?, run));
            let is_same = here.is_some() && here == candidate.value;
            store.in_vain = !store.varies && (is_same || keeps(store.value));
        }
        if let Some(counterpart) = outside.counterparts.get_mut(&candidate.address) {
            counterpart.in_vain = keeps(counterpart.exit_value);
        }
    }
}

/// What a value of the normal run would be in the spin run, if it points to a variable, a function
/// or an object that both have.
fn as_in(spin: &Run, value: u64, normal: &Run) -> Option<u64> {
    by_home(&normal.names, value, &spin.names)
}

/// Adds what a normal run says.
fn from_normal(
    spin: &Run,
    loops: &BlockSet,
    waiting: &[Waiting],
    (number, normal): (usize, &Run),
    outside: &mut [Outside],
) -> Result<()> {
    let loops = spin.translate_blocks(loops, normal);
    let reads = ask_what_is_read(spin, &loops, waiting, normal)?;
    for (&(waiting, pc), count) in &reads.other_way {
        *outside[waiting].other_way.entry(pc).or_default() += count;
    }
    let threads = normal.process.threads();
    let searched = threads.iter().any(|t| !t.value_spans().is_empty());
    let mut questions = stores::Questions::default();
    for (which, one) in waiting.iter().enumerate() {
        let outside = &mut outside[which];
        outside.normal_searched |= searched;
        for (candidate, read) in one.analysis.candidates.iter().zip(&reads.found[which]) {
            let same = read.seen.iter().find(|seen| {
                same_home(&spin.names, candidate.address, &normal.names, seen.address)
            });
            let counterpart = outside.counterparts.entry(candidate.address).or_default();
            counterpart.seen |= !read.seen.is_empty();
            counterpart.changed |= read.let_go.is_some();
            counterpart.unchanged |= read.unchanged;
            // Code that many words pass through (an interpreter's) is later left with other words.
            let left = read.let_go.or(read.leaving);
            let left_at = |seen: &&Seen| Some(seen.address) == left.map(|(at, _)| at);
            let seen = same.or_else(|| read.seen.iter().find(left_at));
            counterpart.varies |= seen.is_some_and(|seen| seen.varies);
            counterpart.address = counterpart
                .address
                .or(same.map(|seen| seen.address))
                .or(left.map(|(address, _)| address))
                .or(read.seen.last().map(|seen| seen.address));
            if counterpart.exit_value.is_none() {
                let left_with = same.and_then(|seen| seen.left_with);
                counterpart.exit_value = left_with.or(left.map(|(_, value)| value));
                let value = counterpart.exit_value;
                counterpart.exit_value_here = value.and_then(|value| as_in(spin, value, normal));
            }
            let key = (which, candidate.address);
            // If the flag was set in time, the run never came to the loop's reads.
            if read.seen.is_empty() {
                let (ours, theirs) = (&spin.names, &normal.names);
                if let Some(address) = by_home(ours, candidate.address, theirs) {
                    counterpart.address = counterpart.address.or(Some(address));
                    questions.watch(address, candidate.bytes, key, one.reader);
                }
            }
            for seen in &read.seen {
                questions.watch(seen.address, candidate.bytes, key, seen.reader);
            }
        }
    }
    search(normal, &loops, questions, Some(number), outside)
}

fn ask_what_is_read(
    spin: &Run,
    loops: &BlockSet,
    waiting: &[Waiting],
    normal: &Run,
) -> Result<Reads> {
    let mut questions = reads::Questions::default();
    let twins = Twins::between(&spin.code, &normal.code);
    let translate = |pc: u64| {
        let twin = || twins.instruction(pc).map(Instruction::ip);
        spin.translate(pc, normal).or_else(twin)
    };
    for (number, one) in waiting.iter().enumerate() {
        for (index, candidate) in one.analysis.candidates.iter().enumerate() {
            let readers = candidate.readers.iter();
            for pc in readers.filter_map(|&pc| translate(pc)) {
                let list = questions.loads.entry(pc).or_default();
                list.push((number, index));
            }
        }
        for (index, exit) in one.analysis.exits.iter().enumerate() {
            let spin_pc = one.window.pc(exit.step);
            // Where generated code never went there is none, so the branch itself tells where its
            // twin goes.
            let branch = &one.window.code(exit.step).instruction;
            let to = |pc| {
                let way = || twins.way(branch, pc);
                spin.translate(pc, normal).or_else(way)
            };
            let leaves = match exit.other {
                Some(other) => to(other).map(Leaves::To),
                None => {
                    let round = one.window.next_pc(exit.step);
                    round.and_then(to).map(Leaves::ElsewhereThan)
                }
            };
            if let (Some(at), Some(leaves)) = (translate(spin_pc), leaves) {
                let candidates = one.analysis.candidates.iter().enumerate();
                let deciding = candidates.filter(|(_, candidate)| candidate.exits.contains(&index));
                questions.exits.entry(at).or_default().push(reads::Exit {
                    waiting: number,
                    spin_pc,
                    leaves,
                    candidates: deciding.map(|(number, _)| number).collect(),
                });
            }
        }
    }
    let candidates = waiting.iter().map(|one| one.analysis.candidates.len());
    let mut reads = Reads::new(questions, candidates);
    ask(normal, loops, &mut reads)?;
    Ok(reads)
}

/// Adds who stored to the candidates in the spin run.
fn from_spin(
    spin: &Run,
    loops: &BlockSet,
    waiting: &[Waiting],
    outside: &mut [Outside],
) -> Result<()> {
    let mut questions = stores::Questions::default();
    for (number, one) in waiting.iter().enumerate() {
        outside[number].spin_searched = true;
        for candidate in &one.analysis.candidates {
            let address = candidate.address;
            questions.watch(address, candidate.bytes, (number, address), Some(one.tid));
        }
    }
    search(spin, loops, questions, None, outside)
}

/// Looks in one run for stores to the words of `questions`.
///
/// # Errors
/// When a trace cannot be read.
pub fn search(
    run: &Run,
    loops: &BlockSet,
    questions: stores::Questions,
    normal: Option<usize>,
    outside: &mut [Outside],
) -> Result<()> {
    if questions.is_empty() {
        return Ok(());
    }
    let mut stores = Stores::new(questions);
    ask(run, loops, &mut stores)?;
    stores.tell(normal, outside);
    Ok(())
}
