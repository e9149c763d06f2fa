// SPDX-License-Identifier: MIT
//! What descriptors are, for people: a socket by its other end's address and process.

use std::collections::HashMap;

use flagfinder_events::DescriptorFact;

/// Of each descriptor that was looked up process, number and what it was. `name`: of a process.
pub(crate) fn targets<'n>(
    facts: &[DescriptorFact],
    name: impl Fn(u32) -> Option<&'n str>,
) -> Vec<(u32, i32, String)> {
    let mut owners: HashMap<&str, u32> = HashMap::new();
    for fact in facts {
        owners.entry(&fact.target).or_insert(fact.pid);
    }
    let text = |fact: &DescriptorFact| {
        let owner = fact.peer.as_deref().and_then(|peer| owners.get(peer));
        let owner = owner.map(|&pid| match name(pid).unwrap_or_default() {
            "" => format!("process {pid}"),
            name => format!("process {pid} ({name})"),
        });
        match (&fact.remote, owner) {
            (Some(address), Some(owner)) => format!("a socket to {address}, {owner}"),
            (Some(address), None) => format!("a socket to {address}"),
            (None, Some(owner)) => format!("a socket to {owner}"),
            (None, None) => fact.target.clone(),
        }
    };
    facts.iter().map(|f| (f.pid, f.fd, text(f))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(pid: u32, target: &str, peer: Option<&str>, remote: Option<&str>) -> DescriptorFact {
        DescriptorFact {
            ts: 0,
            pid,
            fd: 3,
            target: target.into(),
            peer: peer.map(str::to_owned),
            remote: remote.map(str::to_owned),
            records: false,
        }
    }

    #[test]
    fn a_socket_is_told_by_its_other_end() {
        let facts = [
            fact(1, "socket:[8]", Some("socket:[9]"), Some("127.0.0.1:80")),
            fact(2, "socket:[9]", Some("socket:[8]"), None),
            fact(1, "socket:[5]", None, Some("[2001:db8::1]:443")),
            fact(1, "socket:[6]", Some("socket:[7]"), None),
            fact(1, "pipe:[4]", None, None),
        ];
        let names = HashMap::from([(2, "server")]);
        let told = targets(&facts, |pid| names.get(&pid).copied());
        let told: Vec<&str> = told.iter().map(|(_, _, text)| &text[..]).collect();
        assert_eq!(
            told,
            [
                "a socket to 127.0.0.1:80, process 2 (server)",
                "a socket to process 1",
                "a socket to [2001:db8::1]:443",
                "socket:[6]",
                "pipe:[4]"
            ]
        );
    }
}
