// SPDX-License-Identifier: MIT
//! What a blocked thread waits for.

use std::collections::BTreeMap;

use flagfinder_code::{AddressSpace, Code, Names};
use flagfinder_linux::syscalls;
use flagfinder_linux::timeout::shown;
use serde::Serialize;

use crate::futex::{self, Futex};
use crate::stack::Stack;
use flagfinder_waits::call;
use flagfinder_waits::descriptor::{self, Descriptor};
use flagfinder_waits::proc::Call;
use flagfinder_waits::Owners;

#[derive(Clone, Debug, Serialize)]
pub struct Wait {
    /// One line for people.
    pub summary: String,
    /// Name of the system call; null when the thread is not in one.
    pub syscall: Option<String>,
    /// Its arguments, as hex strings.
    pub args: Vec<String>,
    /// ns; null: without a limit. A limit that is a point in time is left out.
    pub timeout: Option<u64>,
    pub descriptors: Vec<Descriptor>,
    pub futex: Option<Futex>,
    /// The function of the kernel that it sleeps in; empty when that is not told.
    pub kernel: String,
    /// Calls that are open, innermost first, found by scanning the stack.
    pub stack: Vec<Code>,
}

/// What all waits of one process have in common.
pub struct Describer<'a> {
    /// `None`: the process is dead, and nobody can be asked about its descriptors.
    pub pid: Option<u32>,
    pub memory: &'a dyn AddressSpace,
    pub names: &'a Names,
    /// By the id that the process itself sees.
    pub threads: BTreeMap<u32, u32>,
    pub owners: Owners,
}

impl Describer<'_> {
    pub fn wait(&mut self, call: Option<Call>, kernel: &str) -> Wait {
        let Some(call) = call else {
            return Wait {
                summary: "in no system call that could be told".into(),
                syscall: None,
                args: Vec::new(),
                timeout: None,
                descriptors: Vec::new(),
                futex: None,
                kernel: kernel.into(),
                stack: Vec::new(),
            };
        };
        let descriptors: Vec<Descriptor> = call::descriptors(&call, self.memory)
            .into_iter()
            .map(|fd| match self.pid {
                Some(pid) => descriptor::describe(pid, fd, &mut self.owners),
                None => Descriptor::unknown(fd),
            })
            .collect();
        let futex = futex::describe(&call, self.memory, self.names, &self.threads);
        let timeout = call::timeout(&call, self.memory);
        let name = syscalls::name(call.number);
        let mut summary = match (&futex, &descriptors[..]) {
            (Some(futex), _) => futex_text(futex),
            (None, []) => self.other_text(&call, &name),
            (None, [one]) => format!("{name} on fd {}, {}", one.fd, what(one)),
            (None, many) => {
                let list: Vec<String> = many.iter().take(4).map(|d| d.fd.to_string()).collect();
                let dots = if many.len() > 4 { ", .." } else { "" };
                format!(
                    "{name} on {} descriptors: {}{dots}",
                    many.len(),
                    list.join(", ")
                )
            }
        };
        if let Some(timeout) = timeout.filter(|t| !t.absolute) {
            summary += &format!(", at most {}", shown(timeout.time));
        }
        Wait {
            summary,
            syscall: Some(name),
            args: call.args.iter().map(|a| format!("{a:#x}")).collect(),
            timeout: timeout
                .filter(|t| !t.absolute)
                .map(|t| t.time.as_nanos() as u64),
            descriptors,
            futex,
            kernel: kernel.into(),
            stack: Stack::of(&call, self.memory, self.names).codes(self.names),
        }
    }

    fn other_text(&self, call: &Call, name: &str) -> String {
        if i64::from(call.number) == libc::SYS_wait4 && call.args[0] as i32 > 0 {
            return format!("wait4 for process {}", call.args[0] as i32);
        }
        name.into()
    }
}

fn what(descriptor: &Descriptor) -> String {
    let peers = descriptor.peers.join(", ");
    match (descriptor.watches.len(), peers.is_empty()) {
        (0, true) => descriptor.what.clone(),
        (0, false) => format!("{}; other end: {peers}", descriptor.what),
        (count, _) => format!("{} of {count} descriptors", descriptor.what),
    }
}

fn futex_text(futex: &Futex) -> String {
    match (futex.kind, futex.owner) {
        ("thread", Some(tid)) => format!("futex: waits for thread {tid} to end"),
        (kind, Some(tid)) => format!("futex: {kind} {}, held by thread {tid}", futex.name),
        (kind, None) => format!("futex: {kind} {}", futex.name),
    }
}
