// SPDX-License-Identifier: MIT
//! Has the kernel count (`bpf/top.bpf.c`), and takes the sums in the end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use flagfinder_bpf::{
    require, tracepoint_arguments, unavailable, Capability, Counts, Object, Pod, Ring, Table,
};
use flagfinder_linux::{clock, proc};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::facts::MapsFact;
use crate::options::StackMode;
use crate::processes;
use crate::protocol::{
    self as p, Config, Cpu, Member, TopBefore, TopConfig, TopCopy, TopName, TopPair, TopStack,
    TopSums, TopThread, TopWait,
};
use crate::sites::{Recorded, Sites};
use crate::switch;
use crate::tally::{Earlier, Question, Sums, Tally, WaitKey, Who};
use crate::{Failure, Result};

/// After so long a program has mapped its libraries.
const LOADED: Duration = Duration::from_millis(500);

const ALWAYS: [(&str, &str); 3] = [
    ("ff_sched_process_fork", "sched_process_fork"),
    ("ff_sched_process_exit", "sched_process_exit"),
    ("ff_sched_waking", "sched_waking"),
];

/// Size of the ring for copies of stacks if none are asked for: the kernel wants one.
const NO_COPIES: u32 = 4096;
/// Later a process seldom loads libraries.
const LATER: Duration = Duration::from_secs(1);

/// The code of a process, as it was last read, and since when it runs this program.
struct Code {
    program: PathBuf,
    since: Instant,
    read: Instant,
    fact: MapsFact,
}

/// The kernel counts while it lives. Dropping it detaches everything; so does the kernel when this
/// process dies.
pub struct Counting {
    object: Object,
    question: Question,
    tree: Table<u32, Member>,
    code: BTreeMap<u32, Code>,
    started: u64,
    stacks: Copies,
}

/// Stacks as they lay in memory, and what became of them: process and callers by their key.
struct Copies {
    ring: Ring,
    sites: Sites,
    /// Copies of stacks of processes whose code is not known yet.
    waiting: Vec<(TopCopy, Vec<u8>)>,
    known: FxHashMap<u64, (u32, Vec<u64>)>,
}

impl Copies {
    /// Takes what the kernel has handed over. `all`: also stacks for which no code is known.
    fn take(&mut self, all: bool) {
        let mut copies = std::mem::take(&mut self.waiting);
        self.ring.drain(usize::MAX, |record| {
            if let Some((head, bytes)) = p::read::<TopCopy>(record) {
                let length = bytes.len().min(head.bytes as usize);
                copies.push((head, bytes[..length].to_vec()));
            }
        });
        for (head, bytes) in copies {
            if !all && !self.sites.knows(head.process) {
                self.waiting.push((head, bytes));
                continue;
            }
            let copy = Recorded::Copy([head.ip, head.sp, head.bp], &bytes);
            let words = self.sites.keep(Some(head.process), &copy);
            self.known.insert(head.stack, (head.process, words));
        }
    }
}

fn text(name: &[u8]) -> String {
    let end = name.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&name[..end.unwrap_or(name.len())]).into_owned()
}

fn config(question: &Question) -> Result<TopConfig> {
    let mut calls = [0u64; p::TOP_CALLS / 64];
    for &number in &question.calls {
        let Some(word) = calls.get_mut(usize::from(number) / 64) else {
            return Err(Failure::usage(
                "This call can't be counted",
                format!("number {number}"),
                "Choose another with --call.",
                "Everything else stands.",
            ));
        };
        *word |= 1 << (number % 64);
    }
    Ok(TopConfig {
        least: question.least,
        calls,
        some_calls: (!question.calls.is_empty()).into(),
        tid: question.tid.unwrap_or(0),
        results: question.by_result().into(),
        error: question.error.unwrap_or(0),
    })
}

impl Counting {
    /// Starts counting. `object` is the compiled `bpf/top.bpf.c`.
    ///
    /// # Errors
    /// In four parts: privileges, the question, what the kernel refuses.
    pub fn start(question: Question, object: &[u8]) -> Result<Counting> {
        let names = question.names()?;
        let asked = config(&question)?;
        if question.stack_copy > p::COPY_MOST as u64 {
            return Err(copies_too_much(question.stack_copy));
        }
        require("Counting events", &[Capability::Bpf, Capability::Perfmon])?;
        let general = Config {
            everything: question.everything.into(),
            syscalls: p::SYSCALLS_LAZY,
            stack_words: if question.stacks {
                p::STACK_MOST as u32 - 1
            } else {
                0
            },
            copy_bytes: question.stack_copy,
            name_begins: names.begins,
            name_repeats: names.repeats,
            name_ends: names.ends,
            ..Config::default()
        };
        let tables = [("ff_names", &names.next[..])];
        let constants = [bytes_of("ff_config", &general), bytes_of("ff_top", &asked)];
        let sizes = [("copies", NO_COPIES)];
        let sizes = if question.stack_copy == 0 {
            &sizes[..]
        } else {
            &[]
        };
        let mut object = Object::load_with(object, &constants, &tables, sizes)?;
        object.find_namespace()?;
        let mut counting = Counting {
            tree: object.table("tree")?,
            stacks: Copies {
                ring: object.ring("copies")?,
                sites: Sites::new(
                    StackMode::All,
                    p::STACK_MOST as u32 - 1,
                    question.stack_copy > 0,
                    (clock::wall() / 1_000_000_000) as i64,
                ),
                waiting: Vec::new(),
                known: FxHashMap::default(),
            },
            object,
            question,
            code: BTreeMap::new(),
            started: 0,
        };
        counting.follow()?;
        let results = counting.question.by_result();
        let calls = [("ff_sys_exit", "sys_exit")];
        let calls = calls.iter().filter(|_| results);
        for (program, tracepoint) in ALWAYS.iter().chain(calls) {
            counting.object.trace(program, tracepoint)?;
        }
        let switched = switch::program_for(&tracepoint_arguments("sched_switch")?)?;
        counting.object.trace(switched, "sched_switch")?;
        counting.follow()?;
        counting.started = clock::kernel();
        counting.look();
        Ok(counting)
    }

    /// Has the kernel count these processes and their descendants.
    fn follow(&mut self) -> Result<()> {
        let keeps = Member {
            keeps: 1,
            ..Member::default()
        };
        for pid in flagfinder_waits::descendants(&self.question.pids) {
            if self.tree.get(&pid).is_none() && !self.tree.insert(pid, keeps) {
                return Err(unavailable(
                    "The processes can't be counted",
                    "the kernel's table of processes is full",
                    "Count fewer processes, or use --all.",
                ));
            }
        }
        let ended = self.tree.keys().into_iter();
        let ended = ended.filter(|pid| !proc::lives(*pid));
        ended.for_each(|pid| self.tree.remove(&pid));
        Ok(())
    }

    /// Reads where processes have code, if that may be new; whether any is left. To be called again
    /// and again.
    pub fn look(&mut self) -> bool {
        let pids = self.tree.keys();
        if self.question.stacks {
            pids.iter().for_each(|&pid| self.learn(pid));
            self.stacks.take(false);
        }
        !pids.is_empty()
    }

    fn learn(&mut self, pid: u32) {
        let program = PathBuf::from(proc::program(pid));
        let now = Instant::now();
        let known = self.code.get(&pid).filter(|code| code.program == program);
        let since = known.map_or(now, |code| code.since);
        let is_known = known.is_some_and(|code| {
            let often = now - since < LOADED;
            now - code.read < if often { Duration::ZERO } else { LATER }
        });
        if is_known {
            return;
        }
        let Some(maps) = processes::code_maps(pid) else {
            return;
        };
        if let Some(member) = self.tree.get(&pid) {
            let keeps = member.keeps;
            let path = program.to_string_lossy();
            let ranges = processes::code_ranges(&maps, &path);
            self.stacks.sites.learn(pid, &maps, &path);
            self.tree.replace(pid, Member { keeps, ..ranges });
        }
        let fact = MapsFact {
            ts: clock::kernel(),
            pid,
            text: maps,
        };
        let code = Code {
            program,
            since,
            read: now,
            fact,
        };
        self.code.insert(pid, code);
    }

    /// Waits that had begun before the counting: those that ended, and those that still go on.
    /// `seen`: threads that were seen to block meanwhile.
    fn tell_earlier(
        &mut self,
        tally: &mut Tally,
        now: u64,
        mut seen: FxHashSet<u32>,
    ) -> Result<()> {
        let before: Table<u32, TopBefore> = self.object.table("before")?;
        let mut found = Vec::new();
        for (tid, wait) in pairs(&before) {
            let ns = wait.until.saturating_sub(self.started);
            found.push((
                tid,
                wait.process,
                text(&wait.name),
                number_of(wait.call),
                ns,
            ));
        }
        let ended = found.len();
        seen.extend(found.iter().map(|one| one.0));
        // With --all, nothing is seen of most threads.
        let named = self.question.names()?;
        let pids = self.tree.keys().into_iter();
        for pid in pids.filter(|_| !self.question.everything) {
            for tid in proc::threads(pid).unwrap_or_default() {
                let asked = self.question.tid.is_none_or(|wanted| wanted == tid);
                if !asked || seen.contains(&tid) {
                    continue;
                }
                let look = flagfinder_waits::proc::look(pid, tid);
                let asleep = look.filter(|look| matches!(look.state, 'S' | 'D'));
                let Some(look) = asleep.filter(|look| named.fits(&look.name)) else {
                    continue;
                };
                let call = look.call.map(|call| call.number as u16);
                found.push((tid, pid, look.name, call, now - self.started));
            }
        }
        for (place, (tid, pid, name, call, ns)) in found.into_iter().enumerate() {
            let is_other = self.question.held_back != Some(tid);
            if is_other && ns > 0 && self.question.wants(call, ns) {
                let unfinished = place >= ended;
                tally.earlier.push(Earlier {
                    tid,
                    call,
                    ns,
                    unfinished,
                });
                tally.threads.insert(tid, Who { pid, name });
            }
        }
        Ok(())
    }

    /// Ends the counting; what was counted.
    ///
    /// # Errors
    /// When a map can't be read.
    pub fn finish(mut self) -> Result<Tally> {
        self.look();
        let now = clock::kernel();
        let kinds: Counts<Cpu> = self.object.counts("cpus")?;
        let waits: Table<TopWait, TopSums> = self.object.table("waits")?;
        let delays: Table<u32, TopSums> = self.object.table("delays")?;
        let instead: Table<TopPair, u64> = self.object.table("instead")?;
        let names: Table<u32, TopName> = self.object.table("names")?;
        let stacks: Table<u64, TopStack> = self.object.table("stacks")?;
        let doing: Table<u32, TopThread> = self.object.table("threads")?;
        let mut tally = Tally {
            span: now - self.started,
            recorded: (clock::wall() / 1_000_000_000) as i64,
            ..Tally::default()
        };
        for cpu in kinds.read() {
            tally.lost += cpu.lost;
            tally.stacks_dropped += cpu.stacks_dropped;
        }
        let mut numbers: FxHashMap<u64, u32> = FxHashMap::default();
        for (key, stack) in pairs(&stacks) {
            let words = &stack.words[..(stack.count as usize).min(p::STACK_MOST)];
            tally.stacks.push((stack.process, words.into()));
            numbers.insert(key, tally.stacks.len() as u32);
        }
        self.stacks.take(true);
        for (key, (pid, words)) in std::mem::take(&mut self.stacks.known) {
            tally.stacks.push((pid, words.into()));
            numbers.insert(key, tally.stacks.len() as u32);
        }
        let key_of = |tid, pid, call: u32, error, stack| WaitKey {
            tid,
            pid,
            call: number_of(call),
            error,
            stack: numbers.get(&stack).copied().unwrap_or(0),
        };
        for (key, sums) in pairs(&waits) {
            let key = key_of(key.tid, key.process, key.call, key.error, key.stack);
            tally.waits.entry(key).or_default().join(&sums_of(&sums));
        }
        for (_, thread) in pairs(&doing) {
            let number = number_of(thread.call);
            let ns = thread.blocked + now.saturating_sub(thread.since);
            if thread.since == 0 || !self.question.wants(number, ns) {
                continue;
            }
            let key = key_of(thread.tid, thread.process, thread.call, 0, thread.stack);
            let sums = tally.waits.entry(key).or_default();
            sums.add(ns);
            sums.unfinished += 1;
            let who = Who {
                pid: thread.process,
                name: text(&thread.name),
            };
            tally.threads.insert(thread.tid, who);
        }
        for (tid, sums) in pairs(&delays) {
            tally.delays.insert(tid, sums_of(&sums));
        }
        for (pair, ns) in pairs(&instead) {
            tally.instead.insert((pair.tid, pair.other), ns);
        }
        for (tid, name) in pairs(&names) {
            let who = Who {
                pid: name.process,
                name: text(&name.name),
            };
            tally.threads.insert(tid, who);
        }
        let seen = pairs(&doing).map(|(_, thread)| thread.tid).collect();
        self.tell_earlier(&mut tally, now, seen)?;
        tally.maps = self.code.into_values().map(|code| code.fact).collect();
        Ok(tally)
    }
}

fn number_of(call: u32) -> Option<u16> {
    call.checked_sub(1).map(|number| number as u16)
}

fn copies_too_much(bytes: u64) -> Failure {
    Failure::usage(
        "So much of a stack can't be copied",
        format!("{bytes} bytes of each"),
        format!("Give --stack-copy at most {}.", p::COPY_MOST),
        "Everything else stands.",
    )
}

fn bytes_of<'v, T: Pod>(name: &'v str, value: &'v T) -> (&'v str, &'v [u8]) {
    // SAFETY: Pod: any value is plain bytes, without padding (protocol.rs asserts it).
    let bytes =
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) };
    (name, bytes)
}

fn pairs<K: Pod, V: Pod>(table: &Table<K, V>) -> impl Iterator<Item = (K, V)> + '_ {
    let keys = table.keys().into_iter();
    keys.filter_map(|key| Some((key, table.get(&key)?)))
}

fn sums_of(sums: &TopSums) -> Sums {
    Sums {
        count: sums.count,
        total: sums.total,
        longest: sums.longest,
        slots: sums.slots,
        unfinished: 0,
    }
}
