// SPDX-License-Identifier: MIT
//! A look at all threads of some processes: what each is in, and whom it waits for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use flagfinder_code::{own_id, ProcessMemory};
use flagfinder_linux::life;
use flagfinder_linux::proc::{threads, Status};
use serde::{Deserialize, Serialize};

use crate::hot_call::Told;
use crate::owners::Owners;
use crate::proc::Call;
use crate::{call, descriptor, futex, locks, proc, relatives};

/// Most threads that are looked at.
const MOST: usize = 2000;
/// Most processes that are named of the other ends of descriptors.
const MOST_PEERS: usize = 16;

/// Why one thread waits for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// It wants a lock that a thread holds.
    Lock,
    /// It waits for a thread's end.
    Thread,
    /// It waits for a child's end.
    Child,
    /// It wants a lock on a file.
    FileLock,
    /// It waits for what the processes at the other ends of its descriptors send or take.
    Peer,
}

/// One of those who are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Holder {
    /// Its process id.
    pub pid: u32,
    /// `None`: any thread of the process may be meant.
    pub tid: Option<u32>,
}

/// What a thread was in when it was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Looked {
    /// When, on the clock of who asked.
    pub ts: u64,
    /// Its id as we see it.
    pub tid: u32,
    /// Its process's id as we see it.
    pub pid: u32,
    /// As the kernel has it (`comm`), at most 15 bytes.
    pub name: String,
    /// As ps shows it: R, S, D, T, ..
    pub state: char,
    /// The system call that it is in, and its first argument.
    pub call: Option<u32>,
    /// 0 when it is in no call.
    pub first: u64,
    /// Null: nobody is known to be waited for.
    pub how: Option<How>,
    /// Who is waited for; several: any of them may be meant.
    pub by: Vec<Holder>,
    /// Of a call that it makes over and over: those that it is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub descriptors: Vec<Told>,
}

impl Looked {
    /// As state of a thread of which only the name was asked.
    pub const UNKNOWN: char = '?';
}

/// What was seen, and what could not be seen.
#[derive(Debug, Default)]
pub struct Look {
    /// By process, those that were asked for first.
    pub threads: Vec<Looked>,
    /// Why some were not looked at, for people; `None`: all were.
    pub missing: Option<String>,
}

/// What is known of one process while its threads are looked at.
struct Process {
    memory: Option<ProcessMemory>,
    /// Thread ids of ours, by the ids that the process itself sees.
    threads: BTreeMap<u32, u32>,
}

impl Process {
    fn open(pid: u32) -> Process {
        let tids = threads(pid).unwrap_or_default();
        Process {
            memory: ProcessMemory::open(pid).ok(),
            threads: tids
                .into_iter()
                .map(|tid| (own_id(pid, tid), tid))
                .collect(),
        }
    }
}

fn processes(pids: impl IntoIterator<Item = u32>) -> Vec<Holder> {
    pids.into_iter()
        .map(|pid| Holder { pid, tid: None })
        .collect()
}

/// Whom a thread waits for in a call.
fn whom(
    pid: u32,
    call: &Call,
    process: &Process,
    owners: &mut Owners,
) -> Option<(How, Vec<Holder>)> {
    if life::waits_for_child(call.number) {
        let children = relatives::awaited(pid, call.number, &call.args);
        return Some((How::Child, processes(children)));
    }
    if locks::takes_file_lock(call.number, &call.args) {
        let locks = locks::on_file(pid, call.args[0] as i32).unwrap_or_default();
        // A descriptor of its own may be another process's as well, which inherited it.
        let others = locks.holders.into_iter().map(|(holder, _)| holder);
        return Some((
            How::FileLock,
            processes(others.filter(|&holder| holder != pid)),
        ));
    }
    let memory = process.memory.as_ref()?;
    if let Some(word) = futex::word(call, memory, &process.threads) {
        let how = match word.kind {
            futex::THREAD => How::Thread,
            _ => How::Lock,
        };
        let held = word.held.and_then(|held| process.threads.get(&held.id));
        let tid = word.owner.or(held.copied())?;
        let pid = Status::of(tid)
            .and_then(|status| status.number("Tgid:"))
            .unwrap_or(pid);
        return Some((
            how,
            vec![Holder {
                pid,
                tid: Some(tid),
            }],
        ));
    }
    let mut peers = BTreeSet::new();
    for fd in call::descriptors(call, memory) {
        let found = descriptor::describe(pid, fd, owners);
        let inner = found.watches.iter().flat_map(|inner| &inner.others);
        let others = found.others.iter().chain(inner);
        peers.extend(others.map(|owner| owner.pid).filter(|&other| other != pid));
    }
    Some((How::Peer, processes(peers.into_iter().take(MOST_PEERS))))
}

/// Looks at all threads of these processes, and at those of other processes that they wait for,
/// for `limit` at most. The owners of descriptors are looked for once. `now` tells the time.
pub fn look(pids: &[u32], limit: Duration, now: impl Fn() -> u64) -> Look {
    let begin = Instant::now();
    let mut found = Look::default();
    let mut owners = Owners::default();
    let mut waiting: VecDeque<u32> = pids.iter().copied().collect();
    let mut known: BTreeSet<u32> = pids.iter().copied().collect();
    while let Some(pid) = waiting.pop_front() {
        let process = Process::open(pid);
        for &tid in process.threads.values() {
            if begin.elapsed() > limit || found.threads.len() >= MOST {
                found.missing = Some("there are too many threads to look at all of them".into());
                return found;
            }
            let Some(seen) = proc::look(pid, tid) else {
                continue;
            };
            if !seen.may_read || process.memory.is_none() {
                found.missing.get_or_insert_with(|| {
                    let why = flagfinder_privileges::why_unreadable(pid);
                    format!("what process {pid} waits for may not be read: {why}")
                });
            }
            let waited = seen.call.filter(|_| matches!(seen.state, 'S' | 'D'));
            let whom = waited.and_then(|call| whom(pid, &call, &process, &mut owners));
            let (how, by) = whom.filter(|(_, by)| !by.is_empty()).unzip();
            let by = by.unwrap_or_default();
            let new = by.iter().map(|holder| holder.pid);
            waiting.extend(new.filter(|&pid| known.insert(pid)));
            found.threads.push(Looked {
                ts: now(),
                tid,
                pid,
                name: seen.name,
                state: seen.state,
                call: seen.call.map(|call| call.number),
                first: seen.call.map_or(0, |call| call.args[0]),
                how,
                by,
                descriptors: Vec::new(),
            });
        }
    }
    found
}
