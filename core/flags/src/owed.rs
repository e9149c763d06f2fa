// SPDX-License-Identifier: MIT
//! Who owes a word's write: the thread of the spin run that corresponds to the one that made it in
//! a normal run.
//!
//! In: the stores that were seen, and which threads the diff paired. Out: [`Flag::owed`], or the
//! reason why nobody owes it: no such thread was started here, or it has ended. Blind spots: a
//! thread whose flow has a hole between its last call and the write.

use flagfinder_code::Names;
use flagfinder_diff::{Divergence, ThreadRef};
use flagfinder_linux::syscalls::{self, Role};
use flagfinder_linux::{futex, life, traits};
use flagfinder_trace::{Event, Flow, Process, Result, Thread, Trace};

use crate::evidence::{Outside, Store};
use crate::report::{Debt, Flag, FlagKind, Known, Owed, Report, Seen};
use crate::run::Run;

/// Most threads that are reported for one word.
const TOLD: usize = 8;

/// All runs, and which thread of the one is which of the other.
pub(crate) struct Compared<'a> {
    pub spin: &'a Trace,
    pub normals: &'a [&'a Run<'a>],
    /// Without a divergence it is not known which threads correspond.
    pub divergence: Option<&'a Divergence>,
}

/// What corresponds to a thread of the normal run.
enum Counterpart<'a> {
    Thread(&'a ThreadRef, &'a Thread),
    /// The spin run has no such thread.
    Missing,
    /// It belongs to another normal run than the one whose threads were paired.
    Unknown,
}

impl Compared<'_> {
    /// Says of each flag who owes it.
    ///
    /// # Errors
    /// When the trace cannot be read.
    pub fn tell(&self, report: &mut Report, outside: &Outside) -> Result<()> {
        if self.divergence.is_none() {
            return Ok(());
        }
        let reader = report
            .threads
            .spin
            .as_ref()
            .and_then(|spin| self.in_normal(spin.tid));
        for flag in report.flags.iter_mut().chain(&mut report.considered) {
            flag.debts = self.debts(flag, outside, reader)?;
            let owed: Vec<Owed> = flag.debts.iter().filter_map(owed).collect();
            if owed.is_empty() {
                let why = match flag.debts.first() {
                    _ if flag.kind == FlagKind::Syscall => {
                        "it is what a system call answers, which no thread writes".into()
                    }
                    Some(debt) => nobody(debt),
                    None if outside.normal_searched => {
                        "no other thread of the normal run was seen to end the wait by a write"
                            .into()
                    }
                    None => "the normal run holds no values, so its writes are not known".into(),
                };
                flag.owed_by_nobody = Some(why);
            }
            flag.owed = Some(owed);
        }
        Ok(())
    }

    /// The thread of the normal run that is paired with a thread of the spin run.
    fn in_normal(&self, tid: u32) -> Option<u32> {
        let mut pairs = self.divergence?.threads.iter();
        let is_it = |spin: &ThreadRef| spin.tid == tid;
        let pair = pairs.find(|pair| pair.spin.as_ref().is_some_and(is_it))?;
        pair.normal.as_ref().map(|normal| normal.tid)
    }

    /// `reader`: the thread of the normal run that waited.
    fn debts(&self, flag: &Flag, outside: &Outside, reader: Option<u32>) -> Result<Vec<Debt>> {
        let stores = flag.address.spin.and_then(|at| outside.stores.get(&at));
        let lets_go = |store: &&Store| {
            store.normal && outside.is_foreign(store) && !store.sets_up(flag.value.spin)
        };
        let mut stores: Vec<&Store> = stores.into_iter().flatten().filter(lets_go).collect();
        // Others read other words by the same code: theirs count only where this one's is not
        // known.
        if stores
            .iter()
            .any(|s| Some(s.address) == flag.address.normal)
        {
            stores.retain(|store| Some(store.address) == flag.address.normal);
        }
        // The value that the normal run left with was written by the writer that counts.
        stores.sort_by_key(|store| flag.value.exit.is_none() || store.value != flag.value.exit);
        let mut debts: Vec<Debt> = Vec::new();
        for store in stores {
            let Some((run, thread)) = self.writer(store) else {
                continue;
            };
            let normal = Seen {
                pid: run.process.pid,
                image: run.process.image,
                tid: thread.tid,
                name: thread.name.clone(),
                pos: store.pos,
            };
            let is_told = debts.iter().any(|debt| is_same(&debt.normal, &normal));
            if is_told || debts.len() == TOLD {
                continue;
            }
            // What it stored before there was a reader ended no wait.
            if reader.map_or(Ok(false), |reader| starts(thread, store.pos, reader))? {
                continue;
            }
            let debtor = match self.counterpart(run.process, thread) {
                Counterpart::Thread(who, ours) => Some((who.clone(), ours.ended_open())),
                Counterpart::Missing => None,
                Counterpart::Unknown => continue,
            };
            debts.push(Debt {
                code: run.names.code(store.pc),
                value: store.value,
                after: last_call(thread, store.pos, run)?,
                normal,
                debtor,
            });
        }
        Ok(debts)
    }

    fn writer(&self, store: &Store) -> Option<(&Run<'_>, &Thread)> {
        let run = *self.normals.get(store.run)?;
        // If a thread id was used several times, it is not known which of the threads it was.
        let threads = run.process.threads().iter();
        let mut lives = threads.filter(|thread| thread.tid == store.tid);
        let first = lives.next()?;
        lives.next().is_none().then_some((run, first))
    }

    fn counterpart(&self, process: &Process, thread: &Thread) -> Counterpart<'_> {
        let is_it = |other: &&ThreadRef| {
            (other.pid, other.image, other.tid) == (process.pid, process.image, thread.tid)
        };
        let pairs = self.divergence.map_or(&[][..], |d| &d.threads);
        let Some(pair) = pairs
            .iter()
            .find(|p| p.normal.as_ref().filter(is_it).is_some())
        else {
            return Counterpart::Unknown;
        };
        let Some(ours) = &pair.spin else {
            return Counterpart::Missing;
        };
        let mut processes = self.spin.processes().iter();
        let process = processes.find(|p| (p.pid, p.image) == (ours.pid, ours.image));
        let threads = process.map_or(&[][..], Process::threads);
        match threads.iter().rfind(|thread| thread.tid == ours.tid) {
            Some(found) => Counterpart::Thread(ours, found),
            None => Counterpart::Unknown,
        }
    }
}

fn is_same(one: &Seen, other: &Seen) -> bool {
    (one.pid, one.image, one.tid) == (other.pid, other.image, other.tid)
}

fn thread(tid: u32, name: &str) -> String {
    match name {
        "" => format!("thread {tid}"),
        _ => format!("thread {tid} ({name})"),
    }
}

/// The thread that owes it, if it still runs.
fn owed(debt: &Debt) -> Option<Owed> {
    let (who, _) = debt.debtor.as_ref().filter(|(_, runs)| *runs)?;
    Some(Owed {
        pid: who.pid,
        tid: who.tid,
        name: who.name.clone(),
        code: debt.code.clone(),
        value: debt.value,
        known: Known::Seen,
        after: debt.after.clone(),
        normal: debt.normal.clone(),
    })
}

/// Why nobody owes it any more.
fn nobody(debt: &Debt) -> String {
    let writer = thread(debt.normal.tid, &debt.normal.name);
    match &debt.debtor {
        Some((who, _)) => format!(
            "{}, which does what {writer} did in the normal run, has ended",
            thread(who.tid, &who.name),
        ),
        None => format!("in the normal run {writer} wrote it, and no such thread was started here"),
    }
}

/// Does the thread start another one after `pos`?
fn starts(thread: &Thread, pos: u64, other: u32) -> Result<bool> {
    let starts: Vec<u64> = thread.flow_section_extents().map(|s| s.0).collect();
    let sections = starts.partition_point(|start| *start <= pos);
    let Some(&first) = starts[..sections].last() else {
        return Ok(false);
    };
    for item in thread.flow_from(first) {
        let item = item?;
        if item.pos() > pos && creates(&item, other) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Does a call return that made this thread?
fn creates(item: &Flow, other: u32) -> bool {
    match item {
        Flow::Event {
            event: Event::SyscallExit { number, result, .. },
            ..
        } => life::creates(*number) && *result == i64::from(other),
        _ => false,
    }
}

/// The last event before the block at `pos` that the thread waited for or was told of, as a
/// sentence. Calls that only ask or arrange something are passed over. `None`: there was none.
fn last_call(thread: &Thread, pos: u64, run: &Run) -> Result<Option<String>> {
    let starts: Vec<u64> = thread.flow_section_extents().map(|s| s.0).collect();
    let sections = starts.partition_point(|start| *start <= pos);
    let mut end = pos;
    for &start in starts[..sections].iter().rev() {
        let (mut call, mut last) = (None, None);
        for item in thread.flow_from(start) {
            let item = item?;
            if item.pos() >= end {
                break;
            }
            match item {
                Flow::Event {
                    event: Event::SyscallEnter(enter),
                    ..
                } => call = Some((enter.number, enter.args)),
                Flow::Event {
                    event: Event::SyscallExit { result, .. },
                    ..
                } => {
                    let told = call
                        .take()
                        .and_then(|call| came_back(call, result, &run.names, false));
                    last = told.or(last);
                }
                _ => {}
            }
        }
        if last.is_some() {
            return Ok(last);
        }
        end = start;
    }
    Ok(None)
}

/// How a call came back; `None` for a call that waits for nothing, unless `any` is wanted.
pub(crate) fn came_back(
    (number, args): (u32, [u64; 6]),
    result: i64,
    names: &Names,
    any: bool,
) -> Option<String> {
    if !any && !traits::waits(number) {
        return None;
    }
    if futex::is_futex(number) {
        let waits = futex::waits_for_word(futex::command(&args));
        let word = || names.data(args[0]).name;
        return waits.then(|| format!("its wait for {} ended", word()));
    }
    let name = syscalls::name(number);
    let on = syscalls::descriptor(number, &args);
    let on = on.map_or(String::new(), |fd| format!(" on fd {fd}"));
    Some(match result {
        _ if syscalls::role(number, &args) == Role::Sleep => "its sleep ended".into(),
        0 if traits::receives(number) => format!("its `{name}`{on} returned end of file"),
        0.. => format!("its `{name}`{on} returned {result}"),
        _ => {
            let why = std::io::Error::from_raw_os_error(-result as i32);
            format!("its `{name}`{on} failed: {why}")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_started_by_the_call_that_returns_its_id() {
        let returns = |name: &str, result| {
            let number = syscalls::number(name).expect("a call");
            let event = Event::SyscallExit {
                ts: 0,
                number,
                result,
            };
            creates(&Flow::Event { event, pos: 1 }, 7)
        };
        assert!(returns("clone3", 7) && returns("clone", 7));
        assert!(!returns("clone3", 8), "another one");
        assert!(!returns("read", 7), "bytes");
    }
}
