// SPDX-License-Identifier: MIT
//! What threads ask, or are blocked in, in code that is not the machine's, as an interpreter's
//! source has it.

use std::collections::BTreeMap;

use flagfinder_code::Spot;
use serde::Deserialize;

use super::report::RootKind;

/// What a thread asks again and again, or is blocked in, as the source of its program has it.
#[derive(Clone, Debug, Deserialize)]
pub struct Asked {
    /// Its id as we see it.
    pub tid: u32,
    /// The expression, and where it stands.
    pub name: String,
    /// The expression alone.
    #[serde(default)]
    pub statement: Option<String>,
    /// Where it stands, if that is no place on the thread's stack.
    #[serde(default)]
    pub at: Option<Spot>,
    /// Threads whose code gives it another value.
    pub owed: Vec<AskedOf>,
    /// Why there are none, where it asks.
    pub nobody: String,
    /// It does not ask, but is blocked, if it is in a call without a time limit.
    #[serde(default)]
    pub blocks: bool,
    /// A task of its event loop is told of: what ends that task's wait. `nobody` says more.
    #[serde(default)]
    pub of_task: Option<RootKind>,
    /// All tasks of that loop wait for locks, which no new client gives back.
    #[serde(default)]
    pub is_locked: bool,
    /// The machine's code need not be looked at, as that of a shell, which would be held meanwhile.
    #[serde(default)]
    pub tells_all: bool,
}

/// What is known of a program by its source.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct InSource {
    /// What threads ask, or are blocked in.
    pub asked: Vec<Asked>,
    /// Open calls by thread, innermost first.
    pub stacks: BTreeMap<u32, Vec<Spot>>,
}

/// A thread that gives what is asked another value.
#[derive(Clone, Debug, Deserialize)]
pub struct AskedOf {
    pub tid: u32,
    /// By which code.
    pub reason: String,
}
