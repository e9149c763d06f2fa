// SPDX-License-Identifier: MIT
//! A futex wait, for people and for JSON.

use std::collections::BTreeMap;

use flagfinder_code::{AddressSpace, DataKind, Names};
use flagfinder_waits::futex::{word, Held};
use flagfinder_waits::proc::Call;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Futex {
    pub address: String,
    pub name: String,
    /// See [`flagfinder_waits::futex::Word`].
    pub kind: &'static str,
    pub value: Option<u64>,
    /// What it held when the wait began (the kernel compares).
    pub expected: u64,
    /// Thread that holds the lock, or that is waited for.
    pub owner: Option<u32>,
    #[serde(skip)]
    pub held: Option<Held>,
    /// The name is an address, and what lies there.
    #[serde(skip)]
    pub is_nameless: bool,
}

/// `threads`: by the id that the process itself sees.
pub fn describe(
    call: &Call,
    memory: &dyn AddressSpace,
    names: &Names,
    threads: &BTreeMap<u32, u32>,
) -> Option<Futex> {
    let word = word(call, memory, threads)?;
    let data = names.data(word.address);
    let name = match data.kind {
        DataKind::Unknown => format!("{:#x}", word.address),
        _ => data.name,
    };
    let address = format!("{:#x}", word.address);
    let is_nameless = name.starts_with(&address);
    Some(Futex {
        address,
        name,
        kind: word.kind,
        value: word.value,
        expected: word.expected,
        owner: word.owner,
        held: word.held,
        is_nameless,
    })
}
