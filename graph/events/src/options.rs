// SPDX-License-Identifier: MIT
//! What to record: the request, and whether it can be met.

use std::path::PathBuf;

use flagfinder_linux::clock;
use serde::Deserialize;

use crate::facts::{Before, Info};
use crate::names::NamePatterns;
use crate::protocol;
use crate::room;
use crate::{Failure, Result};

const SMALLEST_RING: u64 = 1 << 16;
const LARGEST_RING: u64 = 1 << 31;

/// Which system calls are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Syscalls {
    /// No system calls.
    Off,
    /// The call that a thread blocks in, and the one a waker is in.
    #[default]
    Lazy,
    /// Also every call of the recorded processes.
    Target,
}

/// Which call sites a stack keeps (Uscope, fig. 4): the innermost in the program, all in the
/// program, one of each module, all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StackMode {
    /// No stacks.
    #[default]
    Off,
    /// The innermost one in the program.
    Application,
    /// Those in the program.
    ApplicationAll,
    /// The innermost one of each file of code.
    Library,
    /// All that are found.
    All,
}

/// What to record, as `flagfinder events record` asks for it in JSON.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Options {
    pub(crate) output: PathBuf,
    /// Their descendants too.
    #[serde(default)]
    pub(crate) pids: Vec<u32>,
    /// Processes that are recorded in the same way, but for which the recording does not last.
    #[serde(default)]
    pub(crate) beside: Vec<u32>,
    /// Scheduling of all processes.
    #[serde(default)]
    pub(crate) everything: bool,
    /// Only of threads whose names fit one of these patterns (`*` any letters, `?` one), unless
    /// there are none.
    #[serde(default)]
    pub(crate) threads: Vec<String>,
    #[serde(default)]
    pub(crate) syscalls: Syscalls,
    #[serde(default)]
    pub(crate) stacks: StackMode,
    /// Call sites kept of one stack, at most [`protocol::STACK_MOST`] - 1.
    #[serde(default)]
    pub(crate) stack_budget: u32,
    /// Bytes of each stack that are copied, in which callers are found by unwind tables; 0: only
    /// words that lie in code are recorded.
    #[serde(default)]
    pub(crate) stack_copy: u64,
    /// Size of the ring between kernel and recorder.
    pub(crate) buffer_bytes: u64,
    /// Of the file on the disk: the oldest events are dropped.
    #[serde(default)]
    pub(crate) size_bytes: Option<u64>,
    /// Marks the moment when the first thread of `pids` has not been back at its event wait for so
    /// long.
    #[serde(default)]
    pub(crate) mark_on_hang_ns: Option<u64>,
    #[serde(default)]
    pub(crate) command: Vec<String>,
    /// What is sent and received over TCP and UDP.
    #[serde(default)]
    pub(crate) network: bool,
    /// What the file calls this host; `None`: what it calls itself.
    #[serde(default)]
    pub(crate) host: Option<String>,
    /// How many processes are followed at once; `None`: as many as `bpf/events.bpf.c` has room for.
    #[serde(default)]
    pub(crate) most_processes: Option<u32>,
    /// Records switches as on a kernel whose `sched_switch` does not tell the state, for tests.
    #[serde(default)]
    pub(crate) stateless_switches: bool,
}

fn name_of(value: impl std::fmt::Debug) -> String {
    let mut text = String::new();
    for letter in format!("{value:?}").chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('-');
        }
        text.extend(letter.to_lowercase());
    }
    text
}

pub(crate) fn info(options: &Options, contexts: bool) -> Info {
    let told = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/kernel/{name}"));
        text.unwrap_or_default().trim().to_owned()
    };
    Info {
        recorder: format!("flagfinder {}", env!("CARGO_PKG_VERSION")),
        command: options.command.clone(),
        pids: [&options.pids[..], &options.beside[..]].concat(),
        everything: options.everything,
        thread_names: options.threads.clone(),
        syscalls: name_of(options.syscalls),
        stacks: name_of(options.stacks),
        stack_budget: options.stack_budget,
        stack_copy: options.stack_copy,
        contexts,
        cpus: std::thread::available_parallelism().map_or(0, |n| n.get() as u32),
        host: options.host.clone().unwrap_or_else(|| told("hostname")),
        boot_id: told("random/boot_id"),
        network: options.network,
        kernel: told("osrelease"),
        buffer_bytes: options.buffer_bytes,
        size_bytes: options.size_bytes,
        before: Before::default(),
        started: clock::kernel(),
        started_unix_ns: clock::wall(),
    }
}

/// Whether this can be recorded; then, which names threads must have.
pub(crate) fn check(options: &Options) -> Result<NamePatterns> {
    let usage = |what: &str, found: String, fix: &str| {
        Err(Failure::usage(what, found, fix, "Everything else stands."))
    };
    let bytes = options.buffer_bytes;
    if !bytes.is_power_of_two() || !(SMALLEST_RING..=LARGEST_RING).contains(&bytes) {
        let found = format!("{bytes} bytes were asked for");
        return usage(
            "The buffer can't have this size",
            found,
            "Give a power of two from 64K to 2G, as in --buffer 128M.",
        );
    }
    if let Some(size) = options.size_bytes.filter(|size| *size < room::SMALLEST) {
        return usage(
            "The file can't be kept that small",
            format!("{size} bytes were asked for"),
            "Give 1M or more, as in --size 2G.",
        );
    }
    if options.stack_budget as usize >= protocol::STACK_MOST {
        let found = format!("a budget of {}", options.stack_budget);
        return usage(
            "Stacks can't be that deep",
            found,
            "Give --stack-budget 31 or less.",
        );
    }
    if options.stack_copy > protocol::COPY_MOST as u64 {
        let found = format!("{} bytes of each", options.stack_copy);
        return usage(
            "Stacks can't be copied that far",
            found,
            "Give --stack-copy 16K or less.",
        );
    }
    if options.pids.is_empty() && !options.everything {
        return usage(
            "There is nothing to record",
            "no process, and not --all".into(),
            "Write `-- PROGRAM`, --pid PID or --all.",
        );
    }
    if options.mark_on_hang_ns.is_some() && options.pids.is_empty() {
        return usage(
            "There is no main thread to watch for hangs",
            "no process was named".into(),
            "Write `-- PROGRAM` or --pid PID.",
        );
    }
    if options.mark_on_hang_ns.is_some() && options.syscalls == Syscalls::Off {
        return usage(
            "A hang can't be noticed",
            "calls that threads block in are not recorded".into(),
            "Leave out --syscalls off.",
        );
    }
    for pid in options.pids.iter().chain(&options.beside) {
        if !std::path::Path::new(&format!("/proc/{pid}")).exists() {
            return usage(
                "There is no such process",
                format!("pid {pid}"),
                "Check the process id.",
            );
        }
    }
    let names = NamePatterns::new(&options.threads);
    names.map_or_else(
        || {
            usage(
                "The patterns of thread names are too long",
                format!("{} patterns", options.threads.len()),
                "Keep to 64 letters in all, where each pattern counts one more; names have at most \
                 15.",
            )
        },
        Ok,
    )
}
