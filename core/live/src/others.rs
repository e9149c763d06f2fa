// SPDX-License-Identifier: MIT
//! The other threads of a process, and those among them that owe a write.

use std::time::Duration;

use flagfinder_code::{AddressSpace, Names};
use flagfinder_replica::{Pages, ThreadState};

use crate::report::ThreadReport;

/// Another thread of the process that holds the polling one.
#[derive(Clone, Debug)]
pub(crate) struct Other {
    pub tid: u32,
    pub name: String,
    /// What it is blocked in; `None`: it runs, or may run at any time.
    pub waits: Option<String>,
    pub polls: bool,
}

/// The threads that are asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Others {
    pub list: Vec<Other>,
    /// Why a thread that exists can't be asked.
    pub left_out: Option<String>,
}

impl Other {
    pub fn of(report: &ThreadReport) -> Other {
        Other {
            tid: report.tid,
            name: report.name.clone(),
            waits: report.wait.as_ref().map(|wait| wait.summary.clone()),
            polls: report.has_flag(),
        }
    }
}

/// Where the other threads come from.
pub(crate) struct Process<'a> {
    pub pid: u32,
    pub names: &'a Names,
    pub memory: &'a dyn AddressSpace,
    pub others: &'a Others,
    pub capture: &'a dyn Fn(u32) -> Result<ThreadState, String>,
    /// For the next copy of the thread, the pages that this one used are read at one moment.
    pub learn: &'a dyn Fn(&Pages),
    /// The process left a core file: what its descriptors held is not known.
    pub is_dead: bool,
    /// Time for all copies of other threads.
    pub time: Duration,
}
