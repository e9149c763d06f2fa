// SPDX-License-Identifier: MIT
//! What keeps one thread: what it waits for and who may end that, or where the chain ends.

use std::rc::Rc;

use flagfinder_code::{Code, Spot};
use flagfinder_waits::turn::SentLast;

use super::asked::Asked;
use super::report::{Kind, Known, Node, Root, RootKind, WaitsFor};
use crate::effects::Effect;

/// How much the end of a chain explains; of several ends the greatest wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    Unknown,
    /// A wait for whatever comes: a listening socket, a heartbeat, a limit of time.
    Idle,
    /// A circle of threads, or a thread that holds both ends of a connection.
    Circle,
    Outside,
    /// Something that is wrong in itself: stopped, frozen, ended, starved.
    Fault,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    pub kind: RootKind,
    pub what: String,
    pub weight: Weight,
    /// Another process or thread than the one that waits, and its name.
    pub who: Option<(u32, Option<u32>, String)>,
    /// Nothing shows it.
    pub assumed: bool,
}

impl End {
    pub fn new(kind: RootKind, weight: Weight, what: impl Into<String>) -> End {
        End {
            kind,
            what: what.into(),
            weight,
            who: None,
            assumed: false,
        }
    }
    /// A thread that uses a processor and waits for nothing that was found. `is_seen`: it was seen
    /// to get on.
    pub fn computes(what: String, is_seen: bool) -> End {
        End {
            assumed: !is_seen,
            ..End::new(RootKind::Computes, Weight::Outside, what)
        }
    }
    pub fn unknown(what: impl Into<String>) -> End {
        End::new(RootKind::Unknown, Weight::Unknown, what)
    }
    pub fn outside(kind: RootKind, what: impl Into<String>) -> End {
        End::new(kind, Weight::Outside, what)
    }
    pub fn idle(kind: RootKind, what: impl Into<String>) -> End {
        End::new(kind, Weight::Idle, what)
    }
    pub fn fault(kind: RootKind, what: impl Into<String>) -> End {
        End::new(kind, Weight::Fault, what)
    }
    #[must_use]
    pub fn of(self, pid: u32, tid: Option<u32>, name: impl Into<String>) -> End {
        End {
            who: Some((pid, tid, name.into())),
            ..self
        }
    }
    /// As the root of a chain whose last thread is this one.
    pub fn root(self, last: &Node) -> Root {
        let task = last.task.clone().filter(|_| self.who.is_none());
        let own = || (last.pid, Some(last.tid), last.name.clone());
        let (pid, tid, name) = self.who.unwrap_or_else(own);
        Root {
            kind: self.kind,
            pid: Some(pid),
            tid,
            name,
            task,
            what: self.what,
            at: None,
            note: None,
            assumed: self.assumed,
        }
    }
}

/// Who may end a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    Thread(u32, u32),
    /// Any of these threads of a process. They are one debtor until they are followed: each of
    /// thousands of threads may wait for all others.
    AnyOf(u32, Rc<[u32]>),
    /// Any thread of a process, rather one that is in a call on this file (as /proc/PID/fd links).
    Process(u32, Option<String>),
}

/// See [`Who`].
#[derive(Clone, Debug)]
pub struct Debtor {
    pub who: Who,
    pub known: Known,
    pub reason: String,
    pub code: Option<Code>,
    /// What it is to do, where copies may tell whether it will.
    pub effect: Option<Effect>,
    /// What its copy was answered before it did.
    pub supposed: Vec<String>,
}

impl Debtor {
    pub fn seen(who: Who, reason: impl Into<String>) -> Debtor {
        Debtor {
            who,
            known: Known::Seen,
            reason: reason.into(),
            code: None,
            effect: None,
            supposed: Vec::new(),
        }
    }
    pub fn assumed(who: Who, reason: impl Into<String>) -> Debtor {
        Debtor {
            known: Known::Assumed,
            ..Debtor::seen(who, reason)
        }
    }
    #[must_use]
    pub fn with(self, effect: Effect) -> Debtor {
        Debtor {
            effect: Some(effect),
            ..self
        }
    }
    /// Its process, and the threads of it, as far as they are told apart.
    fn threads(&self) -> (u32, &[u32]) {
        match &self.who {
            Who::Thread(pid, tid) => (*pid, std::slice::from_ref(tid)),
            Who::AnyOf(pid, tids) => (*pid, tids),
            Who::Process(pid, _) => (*pid, &[]),
        }
    }
    /// What is left of it without these threads.
    pub fn without(self, is_out: impl Fn(u32) -> bool) -> Option<Debtor> {
        let (pid, tids) = self.threads();
        if !tids.iter().any(|tid| is_out(*tid)) {
            return Some(self);
        }
        let left = tids.iter().copied().filter(|tid| !is_out(*tid));
        Debtor::any_of(pid, left.collect(), self.reason)
    }
    /// Any of these threads of a process, as far as there are any.
    pub fn any_of(pid: u32, tids: Vec<u32>, reason: impl Into<String>) -> Option<Debtor> {
        let who = match tids[..] {
            [] => return None,
            [only] => Who::Thread(pid, only),
            _ => Who::AnyOf(pid, tids.into()),
        };
        Some(Debtor::assumed(who, reason))
    }
}

/// A channel of the waiting thread; sockets by the address that clients connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Side {
    /// It takes connections there.
    Listens(String),
    /// A connection of which this is the local address.
    Connected(String),
    /// The programs of a terminal that this process shows.
    Programs,
    /// A channel of which this process alone has both ends.
    Own,
}

/// One thing that a thread waits for; any of several may end a call.
#[derive(Clone, Debug)]
pub struct Obstacle {
    pub waits_for: WaitsFor,
    pub debtors: Vec<Debtor>,
    /// The debtors are the threads that are left; nothing says which of them it is.
    pub by_elimination: bool,
    /// Threads that wait for time, and of which copies did not end it.
    pub passing: Vec<(u32, u32)>,
    /// What the thread waits for if nobody owes it.
    pub otherwise: End,
    /// How it is known then.
    pub known: Known,
    pub reason: String,
    /// Of sockets, terminals that it shows, and pipes to itself.
    pub side: Option<Side>,
    /// A server waits for this beside new clients: the other side owes nothing.
    pub is_request: bool,
    /// The channel is full: whoever has its other end is to read.
    pub for_room: bool,
    /// Of a TCP connection: who sent last.
    pub sent_last: Option<SentLast>,
    /// Where it waits, if that is no place on its thread's stack.
    pub at: Option<Spot>,
}

impl Obstacle {
    /// Whether the thread waits for this is not known, whoever owes it.
    pub fn doubt(&mut self) {
        self.known = Known::Assumed;
        let debtors = self.debtors.iter_mut();
        debtors.for_each(|debtor| debtor.known = Known::Assumed);
    }

    /// Nobody owes it, or the debtor is not known.
    pub fn ends(kind: Kind, name: impl Into<String>, end: End) -> Obstacle {
        let name = name.into();
        Obstacle {
            reason: end.what.clone(),
            waits_for: WaitsFor {
                kind,
                name,
                address: None,
                statement: None,
            },
            debtors: Vec::new(),
            by_elimination: false,
            passing: Vec::new(),
            otherwise: end,
            known: Known::Seen,
            side: None,
            is_request: false,
            for_room: false,
            sent_last: None,
            at: None,
        }
    }

    pub fn owed(kind: Kind, name: impl Into<String>, debtors: Vec<Debtor>) -> Obstacle {
        let end = End::unknown("who owes it could not be looked at");
        Obstacle {
            debtors,
            ..Obstacle::ends(kind, name, end)
        }
    }

    /// The same, as the source of the program names it.
    pub fn named_by(mut self, asked: &Asked) -> Obstacle {
        self.waits_for.name.clone_from(&asked.name);
        self.waits_for.statement.clone_from(&asked.statement);
        self.at.clone_from(&asked.at);
        self
    }

    /// Can only threads of this process end it?
    pub fn is_within(&self, pid: u32) -> bool {
        let is_own =
            |one: &Debtor| matches!(one.who, Who::Thread(of, _) | Who::AnyOf(of, _) if of == pid);
        !self.debtors.is_empty() && self.debtors.iter().all(is_own)
    }

    /// A debtor that is left over. Threads of which copies did not end the wait are set apart.
    pub fn leave(&mut self, debtor: Debtor, passing: &[u32]) {
        let (pid, tids) = debtor.threads();
        let passing = tids.iter().filter(|tid| passing.contains(tid));
        self.passing.extend(passing.map(|tid| (pid, *tid)));
        let left = debtor.without(|tid| self.passing.contains(&(pid, tid)));
        self.debtors.extend(left);
    }

    /// Any of these may end the wait; nothing says which.
    pub fn by_elimination(pid: u32, debtors: Vec<Debtor>, waits_for: WaitsFor) -> Obstacle {
        Obstacle {
            by_elimination: true,
            otherwise: nobody_left(pid, &waits_for.name),
            waits_for,
            ..Obstacle::owed(Kind::Flag, "", debtors)
        }
    }
}

/// Where all threads that could end the wait wait themselves, or are no more.
pub fn nobody_left(pid: u32, name: &str) -> End {
    // A call, or a statement of the program.
    let does = match name.contains("()") || name.contains('`') {
        true => "end",
        false => "change the",
    };
    let what = format!("no other thread of process {pid} is left that could {does} {name}");
    End::fault(RootKind::Deadlock, what)
}

/// What was found of a thread.
#[derive(Clone, Debug)]
pub enum State {
    /// The chain ends here.
    End(End),
    /// Any of these lets it go on.
    Waits(Vec<Obstacle>),
}
