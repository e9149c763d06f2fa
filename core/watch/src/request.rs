// SPDX-License-Identifier: MIT
//! What to watch, as it was asked for. `place.rs` finds it in the process.

use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "by", rename_all = "kebab-case")]
pub enum WordRequest {
    /// A variable; thread-local ones need the thread.
    Symbol {
        module: Option<String>,
        symbol: String,
        size: Option<u32>,
        tid: Option<u32>,
    },
    /// `pool->workers[2].state`, evaluated now.
    Expression {
        module: Option<String>,
        text: String,
        size: Option<u32>,
        tid: Option<u32>,
    },
    /// A run-time address.
    Address { address: u64, size: u32 },
    /// `offset`: ELF virtual address in the module.
    Module {
        module: String,
        offset: u64,
        size: u32,
    },
    /// `offset` bytes into the module's thread-local block.
    Tls {
        module: String,
        offset: u64,
        size: u32,
        tid: u32,
    },
}

/// An instruction: `offset` is its ELF virtual address in the module.
#[derive(Clone, Debug, Deserialize)]
pub struct SiteRequest {
    pub module: String,
    pub offset: u64,
    /// The words that it reads are watched from then on, as long as there are debug registers.
    #[serde(default)]
    pub follow: bool,
}

/// Everything that was asked for.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Request {
    #[serde(default)]
    pub(crate) words: Vec<WordRequest>,
    #[serde(default)]
    pub(crate) sites: Vec<SiteRequest>,
    /// Reads too, not only writes.
    #[serde(default)]
    pub(crate) reads: bool,
    /// See [`crate::until::Until`].
    pub(crate) until: Option<String>,
    /// Readers whose reads are held back at once; `None`: as many as `bpf/watch.bpf.c` has room
    /// for.
    #[serde(default)]
    pub(crate) most_readers: Option<u32>,
}
