// SPDX-License-Identifier: MIT
//! What `flagfinder spin` hands on: the `flagfinder.spin/1` report.

use std::time::Duration;

use flagfinder_code::Names;
use flagfinder_flags::VirtualMachine;
use serde::{Deserialize, Serialize};
use serde_json::{json, Value};

use crate::wait::Wait;

/// The classes of hang (Argus, section 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Class {
    /// It repeats a look at something, whether it gives the processor away in between or not.
    RepeatedYield,
    /// It uses the processor, and polls nothing that was found.
    LongRunning,
    /// It is blocked in the kernel.
    LongWait,
}

/// Where a thread's instructions were seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Via {
    /// In a copy of it.
    Replica,
    /// In the thread itself, which was single-stepped.
    InPlace,
}

#[derive(Clone, Debug, Serialize)]
pub struct ThreadReport {
    pub tid: u32,
    pub name: String,
    pub class: Class,
    /// Share of the sample on a processor.
    pub cpu: f64,
    /// The same with the time it waited for one.
    pub wants: f64,
    /// Times that it went to sleep, a second.
    pub sleeps_per_second: f64,
    /// Verdict of the flag search; null when it was not stepped.
    pub verdict: Option<String>,
    pub reason: String,
    #[serde(rename = "loop")]
    pub spin_loop: Value,
    /// As in `flagfinder.diff/1`.
    pub flags: Value,
    pub considered: Value,
    pub groups: Value,
    pub notes: Value,
    pub explain: Value,
    pub wait: Option<Wait>,
    /// Its loop was seen to make progress: it is handed data, woken by others, or does something
    /// else each time.
    #[serde(skip)]
    pub gets_on: bool,
    /// The loop is a virtual machine's, or runs the code that one made.
    #[serde(skip)]
    pub machine: Option<VirtualMachine>,
    /// Addresses of words that keep its loop for as long as they are at their distance from others.
    #[serde(skip)]
    pub apart: Vec<u64>,
    /// Pages that belong to one moment in a copy of it: it writes them, or others do.
    #[serde(skip)]
    pub held: Vec<u64>,
    /// Pairs of words: a copy in which the first was changed moved the second on.
    #[serde(skip)]
    pub moves: Vec<(u64, u64)>,
    /// Addresses of words that its loop tests only within a call that polls in vain.
    #[serde(skip)]
    pub within_poll: Vec<u64>,
    /// It waits for work of its virtual machine.
    #[serde(skip)]
    pub serves: bool,
    /// Words by whose values its copy left the loop only as an exception does.
    #[serde(skip)]
    pub thrown: Vec<u64>,
    /// An answer that its copy was given is not known to be the true one.
    #[serde(skip)]
    pub is_assumed: bool,
    /// Why its copy went no further: `it comes to read, whose answer is not known`.
    #[serde(skip)]
    pub halted: Option<String>,
    /// Instructions that it was stepped over.
    pub steps: u64,
    /// For how long it was kept from running.
    pub pause_ms: f64,
    /// Null: none were looked at.
    pub via: Option<Via>,
    /// What speaks for the copy; or why the thread was stepped in place.
    pub via_reason: Option<String>,
}

impl ThreadReport {
    pub(crate) fn pause(&self) -> Duration {
        Duration::from_secs_f64(self.pause_ms.max(0.0) / 1000.0)
    }

    /// Of a thread of which nothing is known yet.
    pub fn blank(tid: u32, class: Class) -> ThreadReport {
        ThreadReport {
            tid,
            name: String::new(),
            class,
            cpu: 0.0,
            wants: 0.0,
            sleeps_per_second: 0.0,
            verdict: None,
            reason: String::new(),
            spin_loop: Value::Null,
            flags: json!([]),
            considered: json!([]),
            groups: json!([]),
            notes: json!([]),
            explain: json!([]),
            wait: None,
            gets_on: false,
            machine: None,
            apart: Vec::new(),
            held: Vec::new(),
            moves: Vec::new(),
            within_poll: Vec::new(),
            serves: false,
            thrown: Vec::new(),
            is_assumed: false,
            halted: None,
            steps: 0,
            pause_ms: 0.0,
            via: None,
            via_reason: None,
        }
    }

    pub fn has_flag(&self) -> bool {
        self.flags.as_array().is_some_and(|flags| !flags.is_empty())
    }
    pub fn confidence(&self) -> f64 {
        self.flags[0]["confidence"].as_f64().unwrap_or(0.0)
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct SpinReport {
    pub schema: &'static str,
    /// `live`, or `core` for a process that left a core file.
    pub source: &'static str,
    pub pid: u32,
    pub program: String,
    /// `ticks since boot` of its start: with the pid, which process this was.
    pub started: u64,
    /// The longest pause that was allowed, each thread.
    pub budget_ms: u64,
    pub threads: Vec<ThreadReport>,
    pub notes: Vec<String>,
}

impl SpinReport {
    pub const SCHEMA: &'static str = "flagfinder.spin/1";
}

/// A number as reports have it.
pub(crate) fn number(value: &Value) -> Option<u64> {
    u64::from_str_radix(value.as_str()?.strip_prefix("0x")?, 16).ok()
}

/// Run-time address of a place in code, as reports have it.
pub(crate) fn code_address(names: &Names, code: &Value) -> Option<u64> {
    let offset = number(&code["offset"])?;
    let Some(name) = code["module"].as_str() else {
        return Some(offset);
    };
    let modules = &names.input().modules;
    let module = modules
        .iter()
        .find(|module| module.path == name || *module.identity.name == *name)?;
    Some(module.base.wrapping_add(offset))
}
