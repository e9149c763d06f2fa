// SPDX-License-Identifier: MIT
//! A call that a thread makes again and again: what it is about, and how often it is made.
//!
//! In: a thread's report whose first flag is a system call. Out: the flag's `descriptors` and
//! `calls_per_second`, of a living process. A poll that finds nothing is no flag where one of its
//! descriptors is a socket that listens: a server waits for clients. Blind spots: the rate of other
//! calls than reads and writes of files; a client that listens, too, for something else.

use std::time::{Duration, Instant};

use flagfinder_code::AddressSpace;
use flagfinder_flags::{AskedCall, Rule, Standing};
use flagfinder_linux::syscalls::{self, Role};
use flagfinder_waits::hot_call::{told, Found, HotCall, Told};
use flagfinder_waits::{proc, Owners};

use crate::report::ThreadReport;

/// How long calls are counted.
const COUNTED: Duration = Duration::from_millis(50);

/// Adds what is known of the call, if the thread's first flag is one.
pub(crate) fn tell(
    pid: Option<u32>,
    thread: &mut ThreadReport,
    memory: &dyn AddressSpace,
    owners: &mut Owners,
) {
    let Some(first) = thread.flags.first_mut().filter(|first| !first.is_word()) else {
        return;
    };
    let Some(made) = &first.flag.call else {
        return;
    };
    let call = call(made);
    // A descriptor that the loop opens itself is not open for long.
    let descriptors = match made.path {
        None => told(pid, &call, memory, owners),
        Some(_) => Vec::new(),
    };
    let counted = made.per_second;
    if let Some(clients) = clients(&call, &descriptors).filter(|_| Rule::ForClients.is_on()) {
        let why = format!("it waits for clients: {} listens", clients.what);
        first.doubt(Standing::Unsure, first.flag.confidence, why);
        first.flag.standing = Standing::Unsure;
    }
    first.descriptors = Some(descriptors);
    let count = |pid| calls_per_second(pid, thread.tid, call.number);
    first.calls_per_second = pid.map(|pid| counted.or_else(|| count(pid)));
}

/// The socket at which clients come that a poll found nothing from.
fn clients<'a>(call: &HotCall, descriptors: &'a [Told]) -> Option<&'a Told> {
    let is_poll = syscalls::role(call.number, &call.args) == Role::Poll;
    let in_vain = is_poll && call.result == Some(0);
    let mut all = descriptors.iter();
    all.find(|one| in_vain && one.takes_clients)
}

/// As a flag has it.
pub(crate) fn call(asked: &AskedCall) -> HotCall {
    let found = asked.found.iter().map(|one| Found {
        entry: one.entry,
        fd: one.fd,
        events: one.events,
        set: one.set.clone(),
    });
    HotCall {
        number: asked.number,
        args: asked.args,
        result: asked.result,
        found: found.collect(),
    }
}

/// How often the thread reads, or writes, a second, whatever it reads; `None`: the kernel does not
/// count such calls.
fn calls_per_second(pid: u32, tid: u32, call: u32) -> Option<u64> {
    let count = || {
        let made = proc::transfers(pid, tid)?;
        let reads = syscalls::is_read(call).then_some(made.reads);
        reads.or(syscalls::is_write(call).then_some(made.writes))
    };
    let (begin, before) = (Instant::now(), count()?);
    std::thread::sleep(COUNTED);
    let made = count()?.checked_sub(before).filter(|made| *made > 0)?;
    Some((made as f64 / begin.elapsed().as_secs_f64()).round() as u64)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsRawFd;

    use flagfinder_flags as flags;
    use flagfinder_waits::Because;

    use super::*;
    use crate::candidate::Candidate;
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

    fn told(found: Vec<flags::Found>, entries: u64, memory: &Array) -> Candidate {
        told_of(1, found, entries, memory)
    }

    fn told_of(result: i64, found: Vec<flags::Found>, entries: u64, memory: &Array) -> Candidate {
        let mut thread = ThreadReport::blank(std::process::id(), Class::RepeatedYield);
        let mut flag = flags::Flag::new(flags::FlagKind::Syscall, "poll");
        flag.call = Some(AskedCall {
            number: libc::SYS_poll as u32,
            args: [AT, entries, 0, 0, 0, 0],
            result: Some(result),
            found,
            path: None,
            per_second: None,
        });
        flag.standing = Standing::ByCode;
        thread.flags.push(Candidate::new(flag));
        tell(
            Some(std::process::id()),
            &mut thread,
            memory,
            &mut Owners::default(),
        );
        thread.flags.remove(0)
    }

    #[test]
    fn the_entry_that_was_found_ready_is_told_with_its_file() {
        let file = fs::File::open("/dev/null").expect("there is one");
        let mut array = Vec::new();
        for fd in [100_000, file.as_raw_fd()] {
            array.extend(fd.to_ne_bytes());
            array.extend([1u8, 0, 1, 0]);
        }
        let found = flags::Found {
            fd: None,
            entry: Some(1),
            events: Some(1),
            set: None,
        };
        let flag = told(vec![found], 2, &Array(array));
        let told = flag.descriptors.expect("a list");
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0].fd, file.as_raw_fd());
        assert_eq!(told[0].target, "/dev/null");
        assert_eq!(told[0].because, Some(Because::AlwaysReady));
        assert_eq!(flag.calls_per_second, Some(None), "polls are not counted");
    }

    #[test]
    fn a_poll_in_vain_for_clients_is_no_flag() {
        let listens = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let client = std::net::TcpStream::connect(listens.local_addr().expect("it")).expect("it");
        let standing = |descriptor: &dyn AsRawFd, result| {
            let entry = [&descriptor.as_raw_fd().to_ne_bytes()[..], &[1, 0, 0, 0]].concat();
            told_of(result, Vec::new(), 1, &Array(entry)).flag.standing
        };
        assert_eq!(standing(&listens, 0), Standing::Unsure);
        assert_eq!(standing(&listens, 1), Standing::ByCode);
        assert_eq!(standing(&client, 0), Standing::ByCode);
    }

    #[test]
    fn without_what_was_found_the_kernel_is_asked() {
        let array = [100_000i32.to_ne_bytes(), [1, 0, 0, 0]].concat();
        let flag = told(Vec::new(), 1, &Array(array));
        let told = flag.descriptors.expect("a list");
        assert_eq!(told[0].because, Some(Because::NotOpen));
    }
}
