// SPDX-License-Identifier: MIT
//! Feeds a watch of this process with arbitrary records of accesses, as a program hands them over
//! that an agent is in: no panic, bounded memory.
//!
//! An input is how many words are watched, whether reads are, how many bytes are fed at once (a
//! byte each), the code that made the accesses ([`CODE`] bytes), the records ([`RECORD`] bytes
//! each). In a record small numbers stand for addresses: of an instruction within the code, of what
//! registers point to within the words.

use std::cell::Cell;
use std::io::Error;
use std::ptr::null;
use std::time::Duration;

use flagfinder_watch::{layouts, Backend, Helper, Request, Watch};
use serde_json::json;

/// Bytes of code in an input.
pub const CODE: usize = 64;
/// `struct ff_watch_hit`.
pub const RECORD: usize = 736;
const WORDS: usize = 4;
/// Numbers below it stand for addresses.
const SMALL: u64 = 256;

/// What is watched, and what accesses it.
type Patient = (Cell<[u64; WORDS]>, Cell<[u8; CODE]>);

/// See the module.
pub fn run(data: &[u8]) {
    thread_local! {
        static PATIENT: &'static Patient = {
            enter().expect("a /proc of its own");
            Box::leak(Box::new((Cell::new([0; WORDS]), Cell::new([0; CODE]))))
        };
    }
    PATIENT.with(|patient| look(patient, data));
}

/// Ids in /proc are those of this pid namespace.
fn enter() -> std::io::Result<()> {
    let private = libc::MS_REC | libc::MS_PRIVATE;
    let (slash, proc) = (c"/".as_ptr(), c"proc".as_ptr());
    // SAFETY: plain system calls, and texts of ours. The mounts are seen by this thread alone.
    let done = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(slash, slash, null(), private, null()) == 0
            && libc::mount(proc, c"/proc".as_ptr(), proc, 0, null()) == 0
    };
    done.then_some(()).ok_or_else(Error::last_os_error)
}

fn look((words, code): &Patient, data: &[u8]) {
    let Some((&[count, reads, each], rest)) = data.split_first_chunk() else {
        return;
    };
    let Some((own, records)) = rest.split_first_chunk::<CODE>() else {
        return;
    };
    code.set(*own);
    words.set([0; WORDS]);
    let (words, code) = (words.as_ptr() as u64, code.as_ptr() as u64);
    let watched = 0..1 + u64::from(count) % WORDS as u64;
    let word = |at: u64| json!({"by": "address", "address": words + 8 * at, "size": 8});
    let request = json!({
        "words": watched.map(word).collect::<Vec<_>>(),
        "reads": reads & 1 != 0,
    });
    let request: Request = serde_json::from_value(request).expect("a request");
    let backend = Backend::Fed(match reads & 2 {
        0 => Helper::Lldb,
        _ => Helper::Frida,
    });
    let mut watch = Watch::open(std::process::id(), &request, backend).expect("a watch");
    watch.armed();
    let records = with_addresses(records, words, code);
    for (part, lost) in records.chunks(usize::from(each) * 8 + 1).zip(0..) {
        watch.feed(part, lost);
        told(&watch.poll(Duration::ZERO).expect("a fed watch").0);
    }
    watch.close_feed();
    told(&watch.finish());
    let _ = (watch.header(), watch.summary());
}

fn told(events: &[flagfinder_watch::Event]) {
    for event in events {
        let line = event.to_json();
        assert!(serde_json::from_str::<serde_json::Value>(&line).is_ok());
    }
}

/// The records with addresses in place of small numbers.
fn with_addresses(records: &[u8], words: u64, code: u64) -> Vec<u8> {
    let layout = &layouts()[0];
    assert_eq!(layout.size, RECORD);
    let at = |name: &str| layout.fields.iter().find(|field| field.0 == name);
    let place = |name: &str| at(name).expect("a field").1;
    let (ip, registers, behind) = (place("ip"), place("registers"), place("syscall"));
    let mut records = records.to_vec();
    for record in records.chunks_exact_mut(RECORD) {
        let mut lead = |at: usize, base: u64| {
            let bytes = record[at..].first_chunk_mut::<8>();
            let bytes = bytes.expect("a whole record");
            let number = u64::from_le_bytes(*bytes);
            if number < SMALL {
                *bytes = (base + number).to_le_bytes();
            }
        };
        lead(ip, code);
        (registers..behind)
            .step_by(8)
            .for_each(|at| lead(at, words));
    }
    records
}
