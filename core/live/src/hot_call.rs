// SPDX-License-Identifier: MIT
//! A call that a thread makes again and again: what it is about, and how often it is made.
//!
//! In: a thread's report whose first flag is a system call. Out: the flag's `descriptors` and
//! `calls_per_second`. Blind spots: the rate of other calls than reads and writes of files.

use std::time::{Duration, Instant};

use flagfinder_code::AddressSpace;
use flagfinder_linux::syscalls;
use flagfinder_waits::hot_call::{told, HotCall};
use flagfinder_waits::{proc, Owners};
use serde_json::{json, Value};

use crate::report::{number, ThreadReport};

/// How long calls are counted.
const COUNTED: Duration = Duration::from_millis(50);

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
    let Some(call) = call(&flag["call"]) else {
        return;
    };
    // A descriptor that the loop opens itself is not open for long.
    flag["descriptors"] = match flag["call"]["path"].is_null() {
        true => json!(told(pid, &call, memory, owners)),
        false => json!([]),
    };
    flag["calls_per_second"] = json!(calls_per_second(pid, thread.tid, call.number));
}

/// As a flag has it.
pub(crate) fn call(asked: &Value) -> Option<HotCall> {
    let mut args = [0; 6];
    for (arg, text) in args.iter_mut().zip(asked["args"].as_array()?) {
        *arg = number(text)?;
    }
    let found = asked["found"].as_array().into_iter().flatten();
    Some(HotCall {
        number: u32::try_from(asked["number"].as_u64()?).ok()?,
        args,
        result: asked["result"].as_i64(),
        found: found
            .filter_map(|one| serde_json::from_value(one.clone()).ok())
            .collect(),
    })
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
