// SPDX-License-Identifier: MIT
//! What `flagfinder diagnose` is asked, as JSON has it.

use serde::Deserialize;

/// Which hang is meant; without both, the most unusual one of the main thread.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Request {
    /// A thread id of the recording.
    pub thread: Option<u32>,
    /// CLOCK_MONOTONIC, ns.
    pub at: Option<u64>,
    /// How many vertices before a wait must be similar, too.
    #[serde(default)]
    pub preceding: usize,
    /// Answers to the questions in their order: numbers of choices, from 1. `None`: a rule decides
    /// all.
    #[serde(default)]
    pub answers: Option<Vec<usize>>,
    /// The host that is meant, in a graph of several; null: that of the last mark,
    /// else the first.
    #[serde(default)]
    pub host: Option<String>,
}
