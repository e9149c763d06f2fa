// SPDX-License-Identifier: MIT
//! What a call is about that comes back at once, again and again: its descriptors, their files, why
//! the call does not wait, and who passed them on.
//!
//! Blind spots: which descriptor of a poll was ready, if the program rebuilds its array in another
//! place.

use std::fs;

use flagfinder_code::AddressSpace;
use flagfinder_linux::descriptors::{named, watches, Named};
use flagfinder_linux::syscalls::{self, Role};
use serde::{Deserialize, Serialize};

use crate::descriptor::{describe, is_epoll, Descriptor};
use crate::inherited::{inherited, Inherited};
use crate::ready::{because, because_of, Asked, Because, Does};
use crate::Owners;

/// Most descriptors of one call that are reported.
const TOLD: usize = 4;
/// Most entries of a poll, or descriptors in an epoll descriptor, that are looked at.
const MOST: u64 = 64;

/// A descriptor that a call is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// Its number in the process.
    pub fd: i32,
    /// See [`Descriptor::target`].
    pub target: String,
    /// See [`Descriptor::what`]; of a process that is gone the target again.
    pub what: String,
    /// See [`Descriptor::peers`]; empty for a process that is gone.
    pub peers: Vec<String>,
    /// The epoll descriptor that it is in.
    pub via: Option<i32>,
    /// Null: it is not known why the call comes back.
    pub because: Option<Because>,
    /// The reason in words.
    pub why: Option<String>,
    /// From whom the process has it; null: it opened it itself, or that is not known.
    pub inherited_from: Option<Inherited>,
}

/// What a call was seen to find ready.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Found {
    /// Of a poll: which entry of its array.
    pub entry: Option<u64>,
    /// The descriptor, where the call names it.
    pub fd: Option<i32>,
    /// POLLIN and so on.
    pub events: Option<u16>,
    /// Of a select: `read`, `write`, `except`.
    pub set: Option<String>,
}

/// A call and its results.
#[derive(Clone, Debug, Default)]
pub struct HotCall {
    /// As x86-64 Linux counts them.
    pub number: u32,
    /// All six argument registers, used or not.
    pub args: [u64; 6],
    /// Negative errno; `None`: it is not known.
    pub result: Option<i64>,
    /// Empty: that was not seen.
    pub found: Vec<Found>,
}

/// A descriptor of the call, before it was looked at.
struct One {
    fd: i32,
    via: Option<i32>,
    asked: Asked,
}

/// The descriptors of a process that the call is about; of those, if any is ready, the ready ones.
/// `pid` is `None` where nobody can be asked.
pub fn told(
    pid: Option<u32>,
    call: &HotCall,
    memory: &dyn AddressSpace,
    owners: &mut Owners,
) -> Vec<Told> {
    let mut told: Vec<Told> = Vec::new();
    for one in ones(pid, call, memory) {
        let why = match pid {
            Some(pid) => because(pid, one.fd, &one.asked),
            None => because_of("", &one.asked),
        };
        let (because, why) = why.unzip();
        let Descriptor {
            target,
            what,
            peers,
            ..
        } = match pid {
            Some(pid) => describe(pid, one.fd, owners),
            None => Descriptor::unknown(one.fd),
        };
        told.push(Told {
            fd: one.fd,
            target,
            what,
            peers,
            via: one.via,
            because,
            why,
            inherited_from: pid.and_then(|pid| inherited(pid, one.fd)),
        });
    }
    // A descriptor that is not ready, or not known to be, says nothing beside one that is.
    let is_ready = |one: &Told| one.because.is_some_and(|b| b != Because::NotReady);
    if told.iter().any(is_ready) {
        told.retain(is_ready);
    }
    told.truncate(TOLD);
    told
}

/// The same of a process that is gone, by what the call gave and what its descriptor linked to.
pub fn recorded(fd: i32, target: &str, call: &HotCall) -> Told {
    let asked = Asked {
        does: does(call.number, &call.args),
        result: call.result,
        ..Asked::default()
    };
    let (because, why) = because_of(target, &asked).unzip();
    Told {
        fd,
        target: target.to_owned(),
        what: target.to_owned(),
        peers: Vec::new(),
        via: None,
        because,
        why,
        inherited_from: None,
    }
}

fn does(number: u32, args: &[u64; 6]) -> Does {
    match syscalls::role(number, args) {
        _ if syscalls::tries_lock(number, args) => Does::Locks,
        Role::Poll => Does::Asks,
        _ if syscalls::consumes(number) && !syscalls::gives(number) => Does::Takes,
        _ => Does::Other,
    }
}

fn ones(pid: Option<u32>, call: &HotCall, memory: &dyn AddressSpace) -> Vec<One> {
    let HotCall {
        number,
        args,
        result,
        found,
    } = call;
    let does = does(*number, args);
    let asked = |events, found| Asked {
        does,
        result: *result,
        events,
        found,
    };
    let plain = |fd| One {
        fd,
        via: None,
        asked: asked(libc::POLLIN, None),
    };
    match named(*number, args) {
        Some(Named::One(fd)) => {
            let Some(pid) = pid.filter(|pid| is_epoll(*pid, fd)) else {
                return vec![plain(fd)];
            };
            let path = format!("/proc/{pid}/fdinfo/{fd}");
            let watched = watches(&fs::read_to_string(path).unwrap_or_default());
            if watched.is_empty() {
                return vec![plain(fd)];
            }
            let inner = watched.iter().take(MOST as usize).map(|watch| One {
                fd: watch.descriptor,
                via: Some(fd),
                // The first bits of EPOLLIN and so on are those of POLLIN.
                asked: asked(watch.events as u16 as i16, None),
            });
            inner.collect()
        }
        Some(Named::Entries { address, count }) => (0..count.min(MOST))
            .filter_map(|entry| {
                let seen = found.iter().find(|one| one.entry == Some(entry));
                let place = address.checked_add(entry * 8)?;
                let now = memory.number(place, 4).map(|fd| fd as u32 as i32);
                let fd = seen.and_then(|one| one.fd).or(now)?;
                let events = memory.number(place + 4, 2).unwrap_or(0) as u16 as i16;
                let bits = seen.and_then(|one| one.events).map(|bits| bits as i16);
                // If one entry was seen to be ready, the others were not.
                (fd >= 0 && (bits.is_some() || found.is_empty())).then(|| One {
                    fd,
                    via: None,
                    asked: asked(events, bits),
                })
            })
            .collect(),
        Some(Named::Sets { .. }) => {
            let one = |found: &Found| {
                let events = match found.set.as_deref() {
                    Some("write") => libc::POLLOUT,
                    Some("except") => libc::POLLPRI,
                    _ => libc::POLLIN,
                };
                Some(One {
                    fd: found.fd?,
                    via: None,
                    asked: asked(events, None),
                })
            };
            found.iter().filter_map(one).collect()
        }
        None => Vec::new(),
    }
}
