// SPDX-License-Identifier: MIT
//! A call that a thread makes again and again: the descriptor, its file, why the call comes back
//! at once, who else holds the file, and how often it is made.
//!
//! In: a thread's report whose first flag is a system call. Out: the flag's `descriptors` and
//! `calls_per_second`. Blind spots: the rate of other calls than reads and writes of files; which
//! descriptor of a poll was ready, if the program rebuilds its array in another place.

use std::fs;
use std::time::{Duration, Instant};

use flagfinder_code::AddressSpace;
use flagfinder_linux::descriptors::{named, watches, Named};
use flagfinder_linux::syscalls::{self, Role};
use flagfinder_waits::descriptor::{describe, Descriptor, EPOLL};
use flagfinder_waits::ready::{because, Asked, Because, Does};
use flagfinder_waits::{inherited, Inherited, Owners};
use serde::Serialize;
use serde_json::{json, Value};

use crate::prove::number;
use crate::report::ThreadReport;

/// Descriptors of one call that are told.
const TOLD: usize = 4;
/// Entries of a poll, or descriptors in an epoll descriptor, that are looked at.
const MOST: u64 = 64;
/// How long calls are counted.
const COUNTED: Duration = Duration::from_millis(50);

/// A descriptor that a call is about.
#[derive(Debug, Serialize)]
struct Told {
    fd: i32,
    target: String,
    what: String,
    peers: Vec<String>,
    /// The epoll descriptor that it is in.
    via: Option<i32>,
    /// Null: it is not known why the call comes back.
    because: Option<Because>,
    /// The same in words.
    why: Option<String>,
    inherited_from: Option<Inherited>,
}

/// One that the call is about, before it was looked at.
struct One {
    fd: i32,
    via: Option<i32>,
    asked: Asked,
}

/// Adds what is known of the call, if the thread's first flag is one.
pub(crate) fn tell(
    pid: u32,
    thread: &mut ThreadReport,
    memory: &dyn AddressSpace,
    owners: &mut Owners,
) {
    let Some(flag) = thread.flags.get_mut(0).filter(|f| f["kind"] == "syscall") else {
        return;
    };
    let Some((call, args)) = call(&flag["call"]) else {
        return;
    };
    let result = flag["call"]["result"].as_i64();
    let mut told: Vec<Told> = Vec::new();
    for one in ones(pid, call, &args, result, &flag["call"]["found"], memory) {
        let reason = because(pid, one.fd, &one.asked);
        let (because, why) = reason.unzip();
        let Descriptor {
            target,
            what,
            peers,
            ..
        } = describe(pid, one.fd, owners);
        told.push(Told {
            fd: one.fd,
            target,
            what,
            peers,
            via: one.via,
            because,
            why,
            inherited_from: inherited(pid, one.fd),
        });
    }
    // What is not ready, or not known to be, tells nothing beside what is.
    let is_ready = |one: &Told| one.because.is_some_and(|b| b != Because::NotReady);
    if told.iter().any(is_ready) {
        told.retain(is_ready);
    }
    told.truncate(TOLD);
    flag["descriptors"] = json!(told);
    flag["calls_per_second"] = json!(calls_per_second(pid, thread.tid, call));
}

fn call(asked: &Value) -> Option<(u32, [u64; 6])> {
    let number_of = asked["number"].as_u64()?;
    let mut args = [0; 6];
    for (arg, text) in args.iter_mut().zip(asked["args"].as_array()?) {
        *arg = number(text)?;
    }
    Some((u32::try_from(number_of).ok()?, args))
}

fn ones(
    pid: u32,
    call: u32,
    args: &[u64; 6],
    result: Option<i64>,
    found: &Value,
    memory: &dyn AddressSpace,
) -> Vec<One> {
    let does = match syscalls::role(call, args) {
        Role::Poll => Does::Asks,
        _ if syscalls::consumes(call) && !syscalls::gives(call) => Does::Takes,
        _ => Does::Other,
    };
    let asked = |events, found| Asked {
        does,
        result,
        events,
        found,
    };
    let plain = |fd| One {
        fd,
        via: None,
        asked: asked(libc::POLLIN, None),
    };
    match named(call, args) {
        Some(Named::One(fd)) => {
            let link = fs::read_link(format!("/proc/{pid}/fd/{fd}"));
            if !link.is_ok_and(|link| link.as_os_str() == EPOLL) {
                return vec![plain(fd)];
            }
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
                let seen = found.as_array().into_iter().flatten();
                let mut seen = seen.filter(|one| one["entry"].as_u64() == Some(entry));
                let seen = seen.next().unwrap_or(&Value::Null);
                let place = address.checked_add(entry * 8)?;
                let now = memory.number(place, 4).map(|fd| fd as u32 as i32);
                let fd = seen["fd"].as_i64().map(|fd| fd as i32).or(now)?;
                let events = memory.number(place + 4, 2).unwrap_or(0) as u16 as i16;
                let bits = seen["events"].as_u64().map(|bits| bits as u16 as i16);
                // What was seen of one entry says that the others were not ready.
                let none_seen = found.as_array().is_none_or(Vec::is_empty);
                (fd >= 0 && (bits.is_some() || none_seen)).then(|| One {
                    fd,
                    via: None,
                    asked: asked(events, bits),
                })
            })
            .collect(),
        Some(Named::Sets { .. }) => {
            let list = found.as_array().into_iter().flatten();
            let one = |found: &Value| {
                let fd = i32::try_from(found["fd"].as_i64()?).ok()?;
                let events = match found["set"].as_str() {
                    Some("write") => libc::POLLOUT,
                    Some("except") => libc::POLLPRI,
                    _ => libc::POLLIN,
                };
                Some(One {
                    fd,
                    via: None,
                    asked: asked(events, None),
                })
            };
            list.filter_map(one).collect()
        }
        None => Vec::new(),
    }
}

/// How often the thread reads, or writes, a second, whatever it reads; `None`: the kernel does not
/// count such calls.
fn calls_per_second(pid: u32, tid: u32, call: u32) -> Option<u64> {
    let counter = match i64::from(call) {
        libc::SYS_read | libc::SYS_readv | libc::SYS_pread64 | libc::SYS_preadv => "syscr:",
        libc::SYS_write | libc::SYS_writev | libc::SYS_pwrite64 | libc::SYS_pwritev => "syscw:",
        _ => return None,
    };
    let count = || {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/io")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(counter))?;
        line.trim().parse::<u64>().ok()
    };
    let (begin, before) = (Instant::now(), count()?);
    std::thread::sleep(COUNTED);
    let made = count()?.checked_sub(before).filter(|made| *made > 0)?;
    Some((made as f64 / begin.elapsed().as_secs_f64()).round() as u64)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::report::Class;

    /// Entries of a poll, as the program has them in memory.
    struct Array(Vec<u8>);

    const AT: u64 = 0x1000;

    impl AddressSpace for Array {
        fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
            let from = address.checked_sub(AT).map_or(usize::MAX, |at| at as usize);
            let bytes = self.0.get(from..).unwrap_or_default();
            let got = bytes.len().min(buffer.len());
            buffer[..got].copy_from_slice(&bytes[..got]);
            got
        }
    }

    fn told(call: Value, memory: &Array) -> Value {
        let mut thread = ThreadReport::blank(std::process::id(), Class::RepeatedYield);
        thread.flags = json!([{ "kind": "syscall", "call": call }]);
        tell(
            std::process::id(),
            &mut thread,
            memory,
            &mut Owners::default(),
        );
        thread.flags[0].clone()
    }

    #[test]
    fn the_entry_that_was_found_ready_is_told_with_its_file() {
        let file = fs::File::open("/dev/null").expect("there is one");
        let mut array = Vec::new();
        for fd in [100_000, file.as_raw_fd()] {
            array.extend(fd.to_ne_bytes());
            array.extend([1u8, 0, 1, 0]);
        }
        let found = json!([{ "fd": null, "entry": 1, "events": 1, "set": null }]);
        let args = ["0x1000", "0x2", "0x0", "0x0", "0x0", "0x0"];
        let call = json!({
            "number": libc::SYS_poll, "args": args, "result": 1, "found": found
        });
        let flag = told(call, &Array(array));
        let told = flag["descriptors"].as_array().expect("a list");
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0]["fd"], file.as_raw_fd());
        assert_eq!(told[0]["target"], "/dev/null");
        assert_eq!(told[0]["because"], "always-ready");
        assert!(flag["calls_per_second"].is_null(), "polls are not counted");
    }

    #[test]
    fn without_what_was_found_the_kernel_is_asked() {
        let array = [100_000i32.to_ne_bytes(), [1, 0, 0, 0]].concat();
        let args = ["0x1000", "0x1", "0x0", "0x0", "0x0", "0x0"];
        let call = json!({ "number": libc::SYS_poll, "args": args, "result": 1, "found": [] });
        let flag = told(call, &Array(array));
        assert_eq!(flag["descriptors"][0]["because"], "not-open");
    }
}
