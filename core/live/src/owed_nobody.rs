// SPDX-License-Identifier: MIT
//! Why nobody owes a write, as far as that is known.

use flagfinder_code::{writers, Frame, Names};

use crate::others::Process;
use crate::owed_look::{Seen, Target};
use crate::sharers;

/// Other processes that are told.
const TOLD: usize = 8;

/// Why nobody owes it, as far as that is known.
pub(crate) fn nobody(
    process: &Process,
    seen: &[Seen],
    target: &Target,
    refused: Option<&str>,
) -> String {
    let names = process.names;
    let mut reasons = Vec::new();
    match refused {
        Some(why) => reasons.push(why.to_owned()),
        None if seen.is_empty() => reasons.push("the process has no other thread".into()),
        None => {}
    }
    if !process.is_dead {
        let pids = sharers::sharers(process.pid, names, target.address);
        if !pids.is_empty() {
            let pids = pids.iter().take(TOLD).map(|(pid, _)| pid.to_string());
            let pids: Vec<String> = pids.collect();
            reasons.push(format!(
                "process {} maps this memory, too, and may write it",
                pids.join(", ")
            ));
        }
    }
    if target.is_global {
        let found = writers(names, process.memory, target.address, target.bytes);
        let stores = found.stores.iter();
        let stores = stores.filter(|s| {
            target
                .value(s)
                .is_none_or(|value| Some(value) != target.now)
        });
        let mut functions: Vec<(String, bool)> = stores
            .map(|store| function(names, seen, store.pc))
            .collect();
        functions.dedup();
        let list = |open: bool| {
            let some = functions.iter().filter(|f| f.1 == open).take(3);
            some.map(|f| f.0.as_str()).collect::<Vec<_>>().join(", ")
        };
        let (open, closed) = (list(true), list(false));
        if !open.is_empty() {
            reasons.push(format!(
                "{open}, which writes it, is on a thread's stack, but past the store"
            ));
        }
        match (functions.is_empty(), closed.is_empty()) {
            (true, _) if found.left_out.is_empty() => {
                reasons.push("no store to its address was found in the program's code".into());
            }
            (true, _) => reasons.push(format!(
                "no store to its address was found in the program's code; {} was too large to be searched",
                found.left_out.join(", ")
            )),
            (_, false) => reasons.push(format!(
                "the function that writes it, {closed}, is on no thread's stack"
            )),
            (_, true) => {}
        }
    } else if reasons.is_empty() {
        reasons.push(
            "no store to it is ahead of any thread, as far as their code could be followed".into(),
        );
    }
    reasons.join("; ")
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
