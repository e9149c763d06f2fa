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

use crate::call::descriptors;
use crate::descriptor::{describe, is_epoll, Descriptor};
use crate::inherited::{inherited, Inherited};
use crate::proc::Call;
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
    /// It is a socket that listens.
    #[serde(skip)]
    pub takes_clients: bool,
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
            takes_clients,
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
            takes_clients,
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
    told.sort_by_key(|one| !one.takes_clients);
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
        takes_clients: false,
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

/// What an epoll descriptor found, where it is known by its number, as most programs do it. The
/// kernel gives no more of it to a program.
fn told_by_epoll<'m>(
    call: &HotCall,
    memory: &'m dyn AddressSpace,
) -> impl Iterator<Item = i32> + 'm {
    /// Bytes of `struct epoll_event`, and where it holds what the program knows it by.
    const EVENT: u64 = 12;
    const DATA: u64 = 4;
    /// A higher number is a pointer, or something else.
    const HIGHEST: u64 = 1 << 16;
    let waits = [
        libc::SYS_epoll_wait,
        libc::SYS_epoll_pwait,
        libc::SYS_epoll_pwait2,
    ];
    let found = call
        .result
        .filter(|_| waits.contains(&i64::from(call.number)));
    let events = call.args[1];
    (0..found.unwrap_or(0).clamp(0, MOST as i64) as u64).filter_map(move |number| {
        let at = events.checked_add(number * EVENT + DATA)?;
        let fd = memory.number(at, 4).filter(|fd| *fd < HIGHEST)?;
        Some(fd as i32)
    })
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
                let told = told_by_epoll(call, memory);
                let all = told.map(|one| One {
                    via: Some(fd),
                    ..plain(one)
                });
                return all.chain([plain(fd)]).collect();
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
        // What the call was asked stands in its sets while the thread is in it.
        Some(Named::Sets { .. }) if found.is_empty() => {
            let (number, args) = (*number, *args);
            let call = Call {
                number,
                args,
                sp: 0,
                pc: 0,
            };
            let all = descriptors(&call, memory).into_iter();
            all.take(MOST as usize).map(plain).collect()
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Events as `epoll_wait` wrote them.
    struct Events(Vec<u8>);

    const AT: u64 = 0x1000;

    impl AddressSpace for Events {
        fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
            let from = address.checked_sub(AT).map_or(usize::MAX, |at| at as usize);
            let bytes = self.0.get(from..).unwrap_or_default();
            let got = bytes.len().min(buffer.len());
            buffer[..got].copy_from_slice(&bytes[..got]);
            got
        }
    }

    #[test]
    fn of_a_process_that_is_gone_its_memory_tells_what_epoll_found() {
        let event = |data: u64| [&1u32.to_le_bytes()[..], &data.to_le_bytes()[..]].concat();
        let memory = Events([event(0xffff_0000_0000_0005), event(0x55d0_1234_5678)].concat());
        let told = |result| {
            let call = HotCall {
                number: libc::SYS_epoll_wait as u32,
                args: [3, AT, 8, 0, 0, 0],
                result: Some(result),
                found: Vec::new(),
            };
            let told = told(None, &call, &memory, &mut Owners::default());
            told.iter().map(|one| (one.fd, one.via)).collect::<Vec<_>>()
        };
        assert_eq!(
            told(2),
            [(5, Some(3)), (3, None)],
            "a pointer is no descriptor"
        );
        assert_eq!(told(0), [(3, None)]);
    }
}
