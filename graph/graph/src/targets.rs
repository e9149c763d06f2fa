// SPDX-License-Identifier: MIT
//! What descriptors are, for people: a socket by its other end's address and process, a pipe by the
//! processes at its other end.

use std::collections::{BTreeMap, HashMap};

use flagfinder_events::DescriptorFact;
use serde::{Deserialize, Serialize};

/// Most processes that are named.
const NAMED: usize = 2;

/// `process 5 (cat)`, `process 5 (cat), process 6 and 2 more`.
fn processes(all: &BTreeMap<u32, &str>) -> String {
    let named = all.iter().take(NAMED).map(|(pid, name)| match *name {
        "" => format!("process {pid}"),
        name => format!("process {pid} ({name})"),
    });
    let named = named.collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// What a descriptor was when it was last used before it became another, or when it was looked up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    pub pid: u32,
    pub fd: i32,
    pub ts: u64,
    pub text: String,
    /// Place in `Meta::hosts`.
    #[serde(default)]
    pub host: u32,
}

/// What a descriptor, by host, process and number, was at a time: as it was first known then or
/// later, else as it was known last. `all` is in the order that [`targets`] makes.
pub(crate) fn target_at(all: &[Target], key: (u32, u32, i32), ts: u64) -> Option<&Target> {
    let next = all.partition_point(|known| known.place() < (key, ts));
    let is_it = |known: &&Target| known.place().0 == key;
    let later = all.get(next).filter(is_it);
    later.or_else(|| all.get(next.checked_sub(1)?).filter(is_it))
}

impl Target {
    pub(crate) fn place(&self) -> ((u32, u32, i32), u64) {
        ((self.host, self.pid, self.fd), self.ts)
    }
}

/// The descriptors that were looked up, by process, number and time. `name`: of a process.
pub(crate) fn targets<'n>(
    facts: &'n [DescriptorFact],
    name: impl Fn(u32) -> Option<&'n str>,
) -> Vec<Target> {
    let mut owners: HashMap<&str, BTreeMap<u32, &str>> = HashMap::new();
    for fact in facts {
        let own = owners.entry(&fact.target).or_default();
        own.insert(fact.pid, name(fact.pid).unwrap_or_default());
    }
    let text = |fact: &DescriptorFact| {
        let is_socket = fact.target.starts_with("socket:[");
        // If another process has the same socket, that one was inherited, and is no other end.
        let peer = fact.peer.as_ref().or((!is_socket).then_some(&fact.target));
        let known = peer.and_then(|peer| owners.get(&peer[..]));
        let mut others = known.cloned().unwrap_or_default();
        let ends = fact.ends.iter().map(|end| (end.pid, &end.name[..]));
        if !ends.clone().any(|(pid, _)| others.contains_key(&pid)) {
            others.extend(ends);
        }
        others.remove(&fact.pid);
        let what = match (&fact.remote, &fact.at) {
            (Some(address), _) => format!("a socket to {address}"),
            (None, Some(address)) => format!("a socket that listens at {address}"),
            (None, None) if is_socket && !others.is_empty() => "a socket to".into(),
            (None, None) => fact.target.clone(),
        };
        let between = if what.ends_with(" to") { " " } else { ", " };
        let has_ends = is_socket || fact.target.starts_with("pipe:[") || !fact.ends.is_empty();
        match others.is_empty() || !has_ends {
            true => what,
            false => format!("{what}{between}{}", processes(&others)),
        }
    };
    let told = facts.iter().map(|fact| Target {
        pid: fact.pid,
        fd: fact.fd,
        ts: fact.ts,
        text: text(fact),
        host: 0,
    });
    let mut all: Vec<Target> = told.collect();
    // A fact that was found later about the same descriptor stands behind the first, and is
    // complete.
    all.reverse();
    all.sort_by_key(Target::place);
    all.dedup_by_key(|target| target.place());
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagfinder_events::EndFact;

    fn fact(pid: u32, target: &str, peer: Option<&str>, remote: Option<&str>) -> DescriptorFact {
        DescriptorFact {
            pid,
            fd: 3,
            target: target.into(),
            peer: peer.map(str::to_owned),
            remote: remote.map(str::to_owned),
            ..DescriptorFact::default()
        }
    }

    /// One of each fact, in its order.
    fn told(facts: &[DescriptorFact]) -> Vec<String> {
        let names = HashMap::from([(2, "server")]);
        let numbered = (0..)
            .zip(facts)
            .map(|(ts, fact)| DescriptorFact { ts, ..fact.clone() });
        let numbered: Vec<DescriptorFact> = numbered.collect();
        let mut told = targets(&numbered, |pid| names.get(&pid).copied());
        told.sort_by_key(|target| target.ts);
        told.into_iter().map(|target| target.text).collect()
    }

    #[test]
    fn a_socket_is_told_by_its_other_end() {
        let listens = DescriptorFact {
            at: Some("/run/x".into()),
            ..fact(2, "socket:[4]", None, None)
        };
        let facts = [
            fact(1, "socket:[8]", Some("socket:[9]"), Some("127.0.0.1:80")),
            fact(2, "socket:[9]", Some("socket:[8]"), None),
            fact(1, "socket:[5]", None, Some("[2001:db8::1]:443")),
            fact(1, "socket:[6]", Some("socket:[7]"), None),
            fact(2, "socket:[6]", None, None),
            listens,
            fact(1, "/dev/null", None, None),
            fact(2, "/dev/null", None, None),
        ];
        let expected = [
            "a socket to 127.0.0.1:80, process 2 (server)",
            "a socket to process 1",
            "a socket to [2001:db8::1]:443",
            "socket:[6]",
            "socket:[6]",
            "a socket that listens at /run/x",
            "/dev/null",
            "/dev/null",
        ];
        assert_eq!(told(&facts), expected);
    }

    #[test]
    fn a_pipe_is_told_by_the_processes_at_its_other_end() {
        let end = |pid: u32| EndFact {
            pid,
            name: format!("p{pid}"),
        };
        let with = |ends: &[u32], fact: DescriptorFact| DescriptorFact {
            ends: ends.iter().map(|&pid| end(pid)).collect(),
            ..fact
        };
        let facts = [
            fact(1, "pipe:[4]", None, None),
            fact(2, "pipe:[4]", None, None),
            with(&[7], fact(1, "pipe:[5]", None, None)),
            with(&[7, 8, 9], fact(1, "/tmp/fifo", None, None)),
            with(&[6], fact(1, "socket:[6]", Some("socket:[3]"), None)),
            fact(1, "pipe:[9]", None, None),
        ];
        let expected = [
            "pipe:[4], process 2 (server)",
            "pipe:[4], process 1",
            "pipe:[5], process 7 (p7)",
            "/tmp/fifo, process 7 (p7), process 8 (p8) and 1 more",
            "a socket to process 6 (p6)",
            "pipe:[9]",
        ];
        assert_eq!(told(&facts), expected);
    }

    #[test]
    fn a_number_is_told_by_what_it_was_then() {
        let fact = |ts, fd, target: &str| DescriptorFact {
            ts,
            fd,
            ..fact(1, target, None, None)
        };
        // Of the first, more was found later.
        let facts = [
            fact(10, 3, "/old"),
            fact(50, 3, "/a"),
            fact(70, 4, "/b"),
            fact(90, 3, "/new"),
            fact(10, 3, "/old, of process 7"),
        ];
        let all = targets(&facts, |_| None);
        let at = |fd, ts| target_at(&all, (0, 1, fd), ts).map(|target| &target.text[..]);
        let old = Some("/old, of process 7");
        assert_eq!([5, 10].map(|ts| at(3, ts)), [old; 2]);
        assert_eq!([11, 50].map(|ts| at(3, ts)), [Some("/a"); 2]);
        assert_eq!([51, 90, 99].map(|ts| at(3, ts)), [Some("/new"); 3]);
        assert_eq!([at(4, 99), at(5, 1), at(2, 1)], [Some("/b"), None, None]);
        assert_eq!(target_at(&all, (0, 2, 3), 1), None);
    }
}
