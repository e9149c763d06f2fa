// SPDX-License-Identifier: MIT
//! Why nobody owes a write, as far as that is known.

use flagfinder_code::{field_writers, writers, Frame, Names, Store, Writers};

use crate::others::Process;
use crate::owed_look::{Seen, Target};
use crate::sharers;

/// Most other processes that are named.
const TOLD: usize = 8;
/// Most functions that are named.
const FUNCTIONS: usize = 3;
/// If more functions store at a field's distance, most of them store to another object's field.
const AS_GOOD_AS_ANY: usize = 8;

/// Why nobody owes it, as far as that is known.
pub(crate) fn nobody(
    process: &Process,
    seen: &[Seen],
    target: &Target,
    refused: Option<&str>,
) -> String {
    let place = process.names.mapping_place(target.address);
    if place.is_some_and(|(file, _)| is_shared_with_kernel(file)) {
        return "the kernel writes there, as something that it was asked for is done".into();
    }
    let mut reasons = Vec::new();
    match refused {
        Some(why) => reasons.push(why.to_owned()),
        None if seen.is_empty() => reasons.push("the process has no other thread".into()),
        None => {}
    }
    if !process.is_dead {
        let pids = sharers::sharers(process.pid, process.names, target.address);
        if !pids.is_empty() {
            let pids = pids.iter().take(TOLD).map(|(pid, _)| pid.to_string());
            let pids: Vec<String> = pids.collect();
            reasons.push(format!(
                "process {} maps this memory, too, and may write it",
                pids.join(", ")
            ));
        }
    }
    reasons.extend(by_code(process, seen, target, reasons.is_empty()));
    reasons.join("; ")
}

/// By what the memory is mapped from: rings of requests, of events, of packets.
fn is_shared_with_kernel(file: &str) -> bool {
    [
        "/[aio]",
        "anon_inode:[io_uring]",
        "anon_inode:[perf_event]",
        "socket:[",
    ]
    .iter()
    .any(|kind| file.starts_with(kind))
}

/// The reasons in the program's code; `only`: there is no other reason.
fn by_code(process: &Process, seen: &[Seen], target: &Target, only: bool) -> Vec<String> {
    let names = process.names;
    let field = target.field.zip(target.module.as_deref());
    let (found, what) = match field {
        _ if target.is_global => {
            let found = writers(names, process.memory, target.address, target.bytes);
            (found, "writes it".to_owned())
        }
        Some((field, module)) if !target.of_library => {
            let found = field_writers(names, process.memory, module, field);
            let what = format!("writes such a field (+{:#x}, {} bytes)", field.0, field.1);
            (found, what)
        }
        _ => (Writers::default(), String::new()),
    };
    let functions = functions(names, seen, target, &found.stores);
    if target.is_global && functions.is_empty() {
        let mut reason = "no store to its address was found in its module's code".to_owned();
        if found.is_left_out {
            reason += ", a part of which is too large to be searched";
        }
        return vec![reason];
    }
    if functions.is_empty() || !target.is_global && functions.len() > AS_GOOD_AS_ANY {
        let reason =
            "no store to it is ahead of any thread, as far as their code could be followed";
        return only.then(|| reason.to_owned()).into_iter().collect();
    }
    let list = |open: bool| {
        let some = functions.iter().filter(|f| f.1 == open).take(FUNCTIONS);
        some.map(|f| f.0.as_str()).collect::<Vec<_>>().join(", ")
    };
    let (open, closed) = (list(true), list(false));
    let mut reasons = Vec::new();
    if !open.is_empty() {
        reasons.push(format!(
            "{open}, which {what}, is on a thread's stack, but past the store"
        ));
    }
    if !closed.is_empty() {
        reasons.push(format!(
            "the function that {what}, {closed}, is on no thread's stack"
        ));
    }
    reasons
}

/// The functions that store another value than the word holds, and whether a call of each is open.
fn functions(
    names: &Names,
    seen: &[Seen],
    target: &Target,
    stores: &[Store],
) -> Vec<(String, bool)> {
    let changes = |store: &&Store| {
        let value = target.value(store);
        value.is_none_or(|value| Some(value) != target.now)
    };
    let stores = stores.iter().filter(changes);
    let mut functions: Vec<(String, bool)> = stores
        .map(|store| function(names, seen, store.pc))
        .collect();
    functions.dedup();
    functions
}

/// The name of the function at `pc`, and whether a call of it is open.
fn function(names: &Names, seen: &[Seen], pc: u64) -> (String, bool) {
    let code = names.code(pc);
    let symbol = code.symbol.as_deref().and_then(|s| s.split("+0x").next());
    let name = symbol.map_or_else(|| code.to_string(), str::to_owned);
    let extent = names.function(pc);
    let inside = |frame: &Frame| {
        extent.is_some_and(|(start, end)| (start..end).contains(&frame.pc.wrapping_sub(1)))
    };
    let open = seen.iter().any(|seen| seen.frames.iter().any(inside));
    (name, open)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_of_the_kernel_are_told_by_what_is_mapped() {
        for file in ["/[aio] (deleted)", "anon_inode:[io_uring]", "socket:[4711]"] {
            assert!(is_shared_with_kernel(file), "{file}");
        }
        for file in [
            "",
            "/dev/shm/socket:[1]",
            "anon_inode:[eventfd]",
            "/memfd:a",
        ] {
            assert!(!is_shared_with_kernel(file), "{file}");
        }
    }
}
