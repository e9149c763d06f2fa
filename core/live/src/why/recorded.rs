// SPDX-License-Identifier: MIT
//! Why a recorded run hangs: from the word that it polls over who wrote it in a good run, to what
//! made that thread go another way.
//!
//! In: a recording of a good run and one of the run that spins. Out: a [`WhyReport`]. For each
//! thread that owes something, [`Ways::left`] names the branch at which it left the way to it, and
//! `causes.rs` the value behind that branch that differs between the runs; who wrote *that* value
//! in the good run is followed in the same way. Blind spots: values that were not recorded; of
//! several values that differ the nearest to the branch is followed.

use flagfinder_diff::{CodePlace, Left, Standing, ThreadRef, Ways};
use flagfinder_flags::{find_flags_in, FindError, Moments, Options, Report};
use flagfinder_linux::syscalls;
use flagfinder_trace::Trace;

use super::causes::{self, Cause};
use super::report::{Kind, Known, Link, Node, OwedBy, Root, RootKind, WaitsFor, WhyReport};
use crate::report::Source;

/// Longest chain.
const DEPTH: usize = 16;

type Found<T> = Result<T, FindError>;

/// Follows what the spin run waits for. `thread`: begin with this one of it.
///
/// # Errors
/// When a trace cannot be read, or holds no threads.
pub fn why_recorded(normal: &Trace, spin: &Trace, thread: Option<u32>) -> Found<WhyReport> {
    let quiet = |_| {};
    let options = flagfinder_diff::Options {
        threads: thread.into_iter().collect(),
    };
    let divergence = flagfinder_diff::diff(&[normal], spin, &options, &quiet)?;
    let report = |thread: Option<u32>| {
        let options = Options {
            thread,
            ..Options::default()
        };
        find_flags_in(spin, &[normal], Some(&divergence), &options, &|_| {})
    };
    let first = report(thread)?;
    let found = flagfinder_diff::ways(normal, spin, &quiet, |ways| {
        let mut walk = Walk {
            ways,
            normal: Moments::new(normal),
            spin: Moments::new(spin),
            report: &report,
            links: Vec::new(),
            passed: Vec::new(),
        };
        let reported = walk.begin(spin, thread, &first);
        // A chain from the first thread that comes to the reported one tells more.
        if thread.is_none() && first.names_a_flag() {
            let main = walk.begin(spin, None, &Report::nothing(first.verdict, ""));
            if let Some(main) = main.filter(|main| reported.as_ref() != Some(main)) {
                let root = walk.stands(&main)?;
                let comes_to = |tid| walk.links.iter().any(|link| link.waiter.tid == tid);
                if reported.as_ref().is_some_and(|it| comes_to(it.tid)) {
                    return Ok((Some(main), walk.links, root));
                }
                walk.links.clear();
                walk.passed.clear();
            }
        }
        let begin = reported;
        let root = match &begin {
            Some(begin) if first.names_a_flag() => walk.polls(begin, &first)?,
            Some(begin) => walk.stands(begin)?,
            None => unknown(None, first.reason.clone()),
        };
        Ok::<_, FindError>((begin, walk.links, root))
    })?;
    let (begin, links, root) = found?;
    let process = begin.unwrap_or_default();
    Ok(WhyReport {
        notes: divergence.unlike,
        ..WhyReport::of_chain(
            Source::Recordings,
            process.pid,
            process.program,
            links,
            root,
        )
    })
}

fn node(thread: &ThreadRef) -> Node {
    Node {
        pid: thread.pid,
        tid: thread.tid,
        name: match thread.name.as_str() {
            "" => thread.program.clone(),
            name => name.into(),
        },
        task: None,
    }
}

fn root(kind: RootKind, thread: Option<&ThreadRef>, what: impl Into<String>) -> Root {
    Root {
        kind,
        pid: thread.map(|thread| thread.pid),
        tid: thread.map(|thread| thread.tid),
        name: thread.map_or_else(String::new, |thread| node(thread).name),
        task: None,
        what: what.into(),
        at: None,
        note: None,
        assumed: false,
    }
}

fn unknown(thread: Option<&ThreadRef>, what: impl Into<String>) -> Root {
    root(RootKind::Unknown, thread, what)
}

/// What a thread of the normal run did, and no thread of the spin run.
struct Debt<'d> {
    normal: &'d ThreadRef,
    pos: u64,
    code: Option<flagfinder_code::Code>,
    /// What it did: `wrote 0x1 there`.
    did: String,
    known: Known,
}

struct Walk<'a> {
    ways: &'a Ways<'a>,
    normal: Moments<'a>,
    spin: Moments<'a>,
    report: &'a dyn Fn(Option<u32>) -> Found<Report>,
    links: Vec<Link>,
    /// Threads of the spin run whose goals were followed, with the goal's flow position.
    passed: Vec<(u32, u32, u64)>,
}

impl Walk<'_> {
    /// The thread that is reported, or the first one.
    fn begin(&self, spin: &Trace, asked: Option<u32>, first: &Report) -> Option<ThreadRef> {
        let reported = first.threads.spin.as_ref().filter(|_| first.names_a_flag());
        let tid = asked.or(reported.map(|thread| thread.tid));
        let processes = || spin.processes().iter().filter(|process| !process.replaced);
        let mut all = processes().flat_map(|p| p.threads().iter().map(move |t| (p, t)));
        let (process, thread) = all.find(|(_, t)| tid.is_none_or(|tid| tid == t.tid))?;
        Some(ThreadRef {
            pid: process.pid,
            image: process.image,
            program: process.program().into(),
            tid: thread.tid,
            name: thread.name.clone(),
        })
    }

    fn link(&mut self, waiter: &ThreadRef, waits_for: WaitsFor, known: Known, reason: String) {
        self.links.push(Link {
            waiter: node(waiter),
            waits_for,
            owed_by: None,
            known,
            reason,
            stack: Vec::new(),
            at: None,
            supposed: Vec::new(),
        });
    }

    /// A thread that polls a word.
    fn polls(&mut self, waiter: &ThreadRef, report: &Report) -> Found<Root> {
        let flag = &report.flags[0];
        let waits_for = WaitsFor {
            kind: match report.verdict {
                flagfinder_flags::Verdict::Lock => Kind::Lock,
                flagfinder_flags::Verdict::SyscallLoop => Kind::Call,
                _ => Kind::Flag,
            },
            name: flag.name.clone(),
            address: flag.address.spin.map(|at| format!("{at:#x}")),
            statement: None,
        };
        let Some(debt) = flag.debts.first() else {
            let why = flag.owed_by_nobody.clone().unwrap_or_default();
            self.link(waiter, waits_for, Known::Seen, why.clone());
            return Ok(unknown(Some(waiter), why));
        };
        let normal = ThreadRef {
            pid: debt.normal.pid,
            image: debt.normal.image,
            program: waiter.program.clone(),
            tid: debt.normal.tid,
            name: debt.normal.name.clone(),
        };
        let value = debt.value.map_or(String::new(), |v| format!(" {v:#x}"));
        let after = debt.after.as_ref();
        let after = after.map_or(String::new(), |after| format!(", after {after}"));
        self.owes(
            waiter,
            waits_for,
            &Debt {
                normal: &normal,
                pos: debt.normal.pos,
                code: Some(debt.code.clone()),
                did: format!("wrote{value} there{after}"),
                known: Known::Seen,
            },
        )
    }

    /// Somebody owes it what a thread of the normal run did.
    fn owes(&mut self, waiter: &ThreadRef, waits_for: WaitsFor, debt: &Debt) -> Found<Root> {
        let theirs = node(debt.normal);
        let seen = format!(
            "in the normal run thread {} ({}) {}",
            theirs.tid, theirs.name, debt.did
        );
        let Some(ours) = self.ways.in_spin(debt.normal) else {
            let never = format!("{seen}; no such thread was started here");
            self.link(waiter, waits_for, debt.known, never);
            let Some((parent, pos)) = self.ways.creation(debt.normal) else {
                return Ok(root(
                    RootKind::Ended,
                    Some(waiter),
                    "that thread was never started",
                ));
            };
            return match self.ways.in_spin(&parent) {
                Some(ours) => self.follow(&ours, &parent, pos, "to starting that thread"),
                None => Ok(root(RootKind::Ended, None, "its creator was never started")),
            };
        };
        self.link(waiter, waits_for, debt.known, seen);
        if let Some(last) = self.links.last_mut() {
            last.owed_by = Some(OwedBy {
                node: node(&ours),
                code: debt.code.clone(),
            });
        }
        self.follow(&ours, debt.normal, debt.pos, "to that")
    }

    /// Why `ours` did not come to what `theirs` did at `pos`. `to` names that.
    fn follow(&mut self, ours: &ThreadRef, theirs: &ThreadRef, pos: u64, to: &str) -> Found<Root> {
        let key = (ours.pid, ours.tid, pos);
        if self.passed.contains(&key) {
            let what = "the threads wait for each other";
            return Ok(root(RootKind::Deadlock, Some(ours), what));
        }
        if self.passed.len() >= DEPTH {
            return Ok(unknown(Some(ours), "the chain was not followed further"));
        }
        self.passed.push(key);
        match self.ways.left(theirs, pos, ours)? {
            Left::At(leaving) => {
                let cause = causes::find(&self.normal, &self.spin, theirs, ours, &leaving)?;
                let at = self.code(ours, &leaving.branch)?;
                self.caused(
                    ours,
                    theirs,
                    cause,
                    &format!("it left the way {to} at {at}"),
                )
            }
            Left::OnTheWay(place) => {
                let at = self.code(ours, &place)?;
                match self.ways.standing(ours) {
                    Standing::Ended => {
                        let what = format!("it ended on the way {to}, in {at}");
                        Ok(root(RootKind::Ended, Some(ours), what))
                    }
                    _ => self.stands(ours),
                }
            }
            Left::Unlike => self.stands(ours),
        }
    }

    fn code(&self, of: &ThreadRef, place: &CodePlace) -> Found<String> {
        let code = self.spin.code(of, place)?;
        Ok(code.map_or_else(
            || format!("{}+{:#x}", place.module, place.offset),
            |code| code.to_string(),
        ))
    }

    /// The reason why it left.
    fn caused(
        &mut self,
        ours: &ThreadRef,
        theirs: &ThreadRef,
        cause: Cause,
        left: &str,
    ) -> Found<Root> {
        let ended = self.ways.standing(ours) == Standing::Ended;
        match cause {
            Cause::Unknown => {
                let what = format!("{left}; why is not known");
                let kind = if ended {
                    RootKind::Ended
                } else {
                    RootKind::Unknown
                };
                Ok(root(kind, Some(ours), what))
            }
            Cause::Call { here, there } => {
                let there = there.map_or(String::new(), |there| {
                    format!(" (in the normal run {there})")
                });
                let what = format!("{left}, as {here}{there}");
                let kind = if ended {
                    RootKind::Ended
                } else {
                    RootKind::Input
                };
                Ok(root(kind, Some(ours), what))
            }
            Cause::Word(word) => {
                let waits_for = WaitsFor {
                    kind: Kind::Flag,
                    name: word.name.clone(),
                    address: Some(format!("{:#x}", word.address)),
                    statement: None,
                };
                let was = format!(
                    "{} was {}, in the normal run {}",
                    word.name,
                    causes::value(word.value),
                    causes::value(word.normal_value)
                );
                let reason = format!("{left}: {was}");
                match causes::writer(&self.normal, &self.spin, self.ways, theirs, ours, &word)? {
                    causes::Writer::Nobody => {
                        self.link(ours, waits_for, Known::Seen, reason);
                        let what = match self.spin.is_from_start(ours, word.address)? {
                            true => was,
                            false => format!("{was}; no code of the program wrote that"),
                        };
                        Ok(root(RootKind::Input, Some(ours), what))
                    }
                    causes::Writer::Differs { by, like, cause } => {
                        self.link(ours, waits_for, Known::Seen, reason);
                        let name = node(&by);
                        let left = format!("{was}; thread {} ({}) wrote it", name.tid, name.name);
                        self.caused(&by, &like, cause, &left)
                    }
                    causes::Writer::Missing(written) => {
                        let did = format!("wrote {} there; {reason}", causes::value(written.value));
                        let debt = Debt {
                            normal: &written.thread,
                            pos: written.pos,
                            code: Some(written.code.clone()),
                            did,
                            known: Known::Seen,
                        };
                        self.owes(ours, waits_for, &debt)
                    }
                }
            }
        }
    }

    /// What the thread is in at the end.
    fn stands(&mut self, ours: &ThreadRef) -> Found<Root> {
        match self.ways.standing(ours) {
            Standing::Ended => {
                let what = "it ended, without ever coming near that";
                Ok(root(RootKind::Ended, Some(ours), what))
            }
            Standing::Runs => {
                let report = (self.report)(Some(ours.tid))?;
                if report.names_a_flag() {
                    return self.polls(ours, &report);
                }
                let what = format!("it computes: {}", report.reason);
                Ok(root(RootKind::Computes, Some(ours), what))
            }
            Standing::Waits(number, ns) => self.blocked(ours, number, ns),
        }
    }

    /// It has been in a call for `ns`.
    fn blocked(&mut self, ours: &ThreadRef, number: u32, ns: u64) -> Found<Root> {
        let blocked = causes::blocked(&self.normal, &self.spin, self.ways, ours)?;
        let name = syscalls::name(number);
        let waits_for = WaitsFor {
            kind: blocked.kind,
            name: blocked.name.clone(),
            address: blocked.address.map(|at| format!("{at:#x}")),
            statement: None,
        };
        let since = format!("it has been in `{name}` for {} s", ns / 1_000_000_000);
        if let Some(owing) = blocked.debt {
            let (links, passed) = (self.links.len(), self.passed.len());
            let debt = Debt {
                normal: &owing.normal,
                pos: owing.pos,
                code: owing.code,
                did: format!("{}; {since}", owing.did),
                known: owing.known,
            };
            let found = self.owes(ours, waits_for.clone(), &debt)?;
            // Nobody is blamed if the circle contains assumed links.
            if found.kind != RootKind::Deadlock || owing.known != Known::Assumed {
                return Ok(found);
            }
            self.links.truncate(links);
            self.passed.truncate(passed);
        }
        self.link(ours, waits_for, Known::Seen, since);
        let there = blocked.there.map_or(String::new(), |there| {
            format!(" (in the normal run {there})")
        });
        let what = format!(
            "it has been waiting for {} for {} s{there}",
            blocked.name,
            ns / 1_000_000_000
        );
        Ok(root(blocked.root, Some(ours), what))
    }
}
