// SPDX-License-Identifier: MIT
//! What `flagfinder why` hands on: the `flagfinder.why/1` report.

use flagfinder_code::{Code, Spot};
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

use crate::deadline::Deadline;
use crate::report::Source;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub pid: u32,
    pub tid: u32,
    pub name: String,
    /// What runs on no thread of its own, `goroutine 7`; the thread is then one of its scheduler's.
    #[serde(default)]
    pub task: Option<String>,
}

/// Who owes what is waited for, and where that thread stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OwedBy {
    #[serde(flatten)]
    pub node: Node,
    /// Of a flag: the code that writes it. Else the innermost call site outside of the C library.
    pub code: Option<Code>,
}

/// How a link is known; the surest comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Known {
    /// The kernel or the memory says so.
    Seen,
    /// A copy of the thread that owes wrote the word.
    Proved,
    /// There is code for it in a function that the thread may reach.
    ByCode,
    /// Its open calls have the object at hand that the wait is for, and no other's have.
    ByReference,
    /// Nobody else is left, or it is the usual one.
    Assumed,
}

/// What kind of thing is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Flag,
    Lock,
    Call,
    Child,
    Timer,
    Cpu,
}

/// The thing itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitsFor {
    pub kind: Kind,
    pub name: String,
    pub address: Option<String>,
    /// What of the name is no place, where the name of a statement has its place, too.
    #[serde(default)]
    pub statement: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Link {
    pub waiter: Node,
    pub waits_for: WaitsFor,
    pub owed_by: Option<OwedBy>,
    pub known: Known,
    pub reason: String,
    /// Calls that the waiter has open, innermost first.
    pub stack: Vec<Code>,
    /// Where it waits: the innermost place of the program's author. Null: none is known.
    #[serde(default)]
    pub at: Option<Spot>,
    /// What a copy of the thread that owes was told of its calls before it ended the wait.
    #[serde(default)]
    pub supposed: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RootKind {
    /// Something from outside: a terminal, a client, a signal, a device.
    Input,
    /// A process of another machine, or one that could not be looked at.
    Peer,
    Timer,
    /// By job control or by a tracer.
    Stopped,
    /// By a control group.
    Frozen,
    /// A process or thread that is no more.
    Ended,
    /// A thread that uses the processor, or that is kept from it.
    Computes,
    Deadlock,
    /// What a thread waits for is there already, and nobody is left to wake it.
    #[serde(rename = "lost-wakeup")]
    LostWakeup,
    /// A lock whose holder has no code ahead that gives it back.
    #[serde(rename = "left-locked")]
    LeftLocked,
    Unknown,
}

/// See [`RootKind`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    pub kind: RootKind,
    pub pid: Option<u32>,
    pub tid: Option<u32>,
    pub name: String,
    /// As [`Node::task`].
    #[serde(default)]
    pub task: Option<String>,
    pub what: String,
    /// Where that thread stands, as [`Link::at`].
    #[serde(default)]
    pub at: Option<Spot>,
    /// Of a circle: why nobody is left to end it, where its links alone do not say that.
    #[serde(default)]
    pub note: Option<String>,
    /// The chain comes there by a link that is assumed.
    #[serde(default)]
    pub assumed: bool,
}

/// A test, and the thread that runs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tested {
    pub pid: u32,
    /// Null: a task of a scheduler runs it, or a process.
    pub tid: Option<u32>,
    /// Where it is no function of the program: the command, or what is run instead of a test.
    #[serde(default)]
    pub command: Option<String>,
    #[serde(flatten)]
    pub spot: Spot,
}

/// Where a process runs; null what is not known, or not so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Home {
    pub pid: u32,
    /// Its id in its own pid namespace, where that is another one.
    pub inner_pid: Option<u32>,
    /// The container's id, and what made it.
    pub container: Option<String>,
    pub engine: Option<String>,
    /// The uid of its Kubernetes pod.
    pub pod: Option<String>,
    /// A service or scope of systemd.
    pub unit: Option<String>,
    /// The path of its control group.
    pub cgroup: String,
}

/// The chain of a report.
#[derive(Clone, Debug)]
pub struct Chain {
    pub links: Vec<Link>,
    pub root: Root,
}

impl Chain {
    /// The thread with which it begins.
    fn first(&self) -> Option<u32> {
        let waiter = self.links.first().map(|link| link.waiter.tid);
        waiter.or(self.root.tid)
    }
}

/// An open call, or a function that was inlined into it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenCall {
    #[serde(flatten)]
    pub spot: Spot,
    /// It is code of the program's author.
    pub own: bool,
    /// False: it may be an old one.
    pub sure: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ThreadStack {
    pub tid: u32,
    pub name: String,
    /// The system call that it is in; null: it runs.
    pub call: Option<String>,
    /// Innermost first.
    pub frames: Vec<OpenCall>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WhyReport {
    #[serde(skip_deserializing, default = "WhyReport::schema")]
    pub schema: &'static str,
    pub source: Source,
    pub pid: u32,
    pub program: String,
    pub links: Vec<Link>,
    pub root: Root,
    /// Tests of a test runner that processes of the chain are in.
    #[serde(default)]
    pub tests: Vec<Tested>,
    /// Where the processes of the chain run.
    #[serde(default)]
    pub homes: Vec<Home>,
    /// The command that helps most, if one does.
    pub next: Vec<String>,
    /// What could not be looked at.
    pub notes: Vec<String>,
    /// What the time limit left no time for.
    pub not_asked: Vec<String>,
    /// All threads, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stacks: Option<Vec<ThreadStack>>,
}

impl WhyReport {
    pub const SCHEMA: &'static str = "flagfinder.why/1";

    fn schema() -> &'static str {
        Self::SCHEMA
    }

    /// What this chain tells, and no more.
    pub(crate) fn of_chain(
        source: Source,
        pid: u32,
        program: String,
        links: Vec<Link>,
        root: Root,
    ) -> WhyReport {
        WhyReport {
            schema: WhyReport::SCHEMA,
            source,
            pid,
            program,
            tests: Vec::new(),
            homes: Vec::new(),
            next: Vec::new(),
            links,
            root,
            notes: Vec::new(),
            not_asked: Vec::new(),
            stacks: None,
        }
    }

    /// The processes that wait, in order, and the last one.
    pub(crate) fn chain(&self) -> Vec<u32> {
        let mut chain: Vec<u32> = self.links.iter().map(|link| link.waiter.pid).collect();
        chain.extend(self.root.pid);
        let mut known = FxHashSet::default();
        chain.retain(|pid| known.insert(*pid));
        chain
    }

    /// Tells what was left out.
    pub(crate) fn settle(&mut self, deadline: &Deadline) {
        let (not_asked, note) = deadline.not_asked();
        self.not_asked = not_asked;
        self.notes.extend(note);
    }

    /// Goes on where another chain begins; whether this one ends there.
    pub fn go_on(&mut self, chain: Chain) -> bool {
        let goes_on = self.root.kind == RootKind::Computes && chain.first() == self.root.tid;
        if goes_on {
            self.links.extend(chain.links);
            self.root = chain.root;
        }
        goes_on
    }
}

#[cfg(test)]
impl Node {
    /// A thread of process 1, without a name.
    pub(super) fn thread(tid: u32) -> Node {
        Node {
            pid: 1,
            tid,
            name: String::new(),
            task: None,
        }
    }
}

#[cfg(test)]
impl Link {
    /// A thread of process 1 waits for a lock that another one holds.
    pub(super) fn of_lock(waiter: u32, owed_by: u32) -> Link {
        Link {
            waiter: Node::thread(waiter),
            waits_for: WaitsFor {
                kind: Kind::Lock,
                name: "lock".into(),
                address: None,
                statement: None,
            },
            owed_by: Some(OwedBy {
                node: Node::thread(owed_by),
                code: None,
            }),
            known: Known::Seen,
            reason: String::new(),
            stack: Vec::new(),
            at: None,
            supposed: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(tid: u32) -> Node {
        Node {
            pid: 7,
            tid,
            name: "worker".into(),
            task: None,
        }
    }

    fn root(kind: RootKind, tid: u32) -> Root {
        Root {
            kind,
            pid: Some(7),
            tid: Some(tid),
            name: "worker".into(),
            task: None,
            what: "it computes".into(),
            at: None,
            note: None,
            assumed: false,
        }
    }

    fn report(root: Root) -> WhyReport {
        WhyReport {
            schema: WhyReport::SCHEMA,
            source: Source::Live,
            pid: 1,
            program: String::new(),
            links: Vec::new(),
            root,
            tests: Vec::new(),
            homes: Vec::new(),
            next: Vec::new(),
            notes: Vec::new(),
            not_asked: Vec::new(),
            stacks: None,
        }
    }

    /// Thread 8 polls a word that thread 9 owes.
    fn chain() -> Chain {
        let code = Code {
            offset: 0x1234,
            ..Code::default()
        };
        let link = Link {
            waiter: node(8),
            waits_for: WaitsFor {
                kind: Kind::Flag,
                name: "ready".into(),
                address: Some("0x4000".into()),
                statement: None,
            },
            owed_by: Some(OwedBy {
                node: node(9),
                code: Some(code),
            }),
            known: Known::Proved,
            reason: "a copy of it writes".into(),
            stack: Vec::new(),
            at: None,
            supposed: Vec::new(),
        };
        Chain {
            links: vec![link],
            root: root(RootKind::Input, 9),
        }
    }

    #[test]
    fn a_chain_goes_on_with_what_the_thread_at_its_end_polls() {
        let mut ends_there = report(root(RootKind::Computes, 8));
        assert!(ends_there.go_on(chain()));
        assert_eq!(ends_there.root.tid, Some(9));
        let owed = ends_there.links[0].owed_by.as_ref().unwrap();
        assert_eq!(owed.code.as_ref().unwrap().offset, 0x1234);
    }

    #[test]
    fn a_chain_that_ends_elsewhere_stays_as_it_is() {
        for end in [root(RootKind::Computes, 10), root(RootKind::Stopped, 8)] {
            let mut ends = report(end.clone());
            assert!(!ends.go_on(chain()));
            assert_eq!((ends.root, ends.links.len()), (end, 0));
        }
    }
}
