// SPDX-License-Identifier: MIT
//! A word that a thread polls, and who owes the write, as `spin` found it out.

use serde_json::Value;

use super::held::{others, sharers};
use super::obstacle::{Debtor, End, Obstacle, Who};
use super::process::Process;
use super::report::{Kind, Known, WaitsFor};
use crate::proc::Call;
use crate::prove::number;
use crate::report::ThreadReport;

/// Flags of one condition any of which may end the loop are left to `spin` to order: the first is
/// followed.
pub fn obstacles(process: &Process, thread: &ThreadReport, call: Option<Call>) -> Vec<Obstacle> {
    let flag = &thread.flags[0];
    let name = flag["name"].as_str().unwrap_or("a word").to_owned();
    if flag["kind"] == "syscall" {
        let in_call = call.map(|call| flagfinder_linux::syscalls::name(call.number));
        let what = match in_call {
            Some(call) => format!("it asks again and again with {name}, now in {call}"),
            None => format!("it asks again and again with {name}"),
        };
        return vec![Obstacle::ends(Kind::Call, name, End::unknown(what))];
    }
    let waits_for = WaitsFor {
        kind: match thread.verdict.as_deref() {
            Some("lock") => Kind::Lock,
            _ => Kind::Flag,
        },
        name,
        address: flag["address"]["spin"].as_str().map(str::to_owned),
    };
    let owed = flag["owed"].as_array().map_or(&[][..], |list| &list[..]);
    let debtors: Vec<Debtor> = owed
        .iter()
        .filter_map(|item| debtor(process.pid, item))
        .collect();
    if !debtors.is_empty() {
        return vec![Obstacle {
            waits_for,
            ..Obstacle::owed(Kind::Flag, "", debtors)
        }];
    }
    if let Some(nobody) = flag["owed_by_nobody"].as_str() {
        let ended = Obstacle::ends(Kind::Flag, "", End::unknown(nobody));
        return vec![Obstacle { waits_for, ..ended }];
    }
    let address = number(&flag["address"]["spin"]);
    let sharers = match (&process.inside, address) {
        (Some(inside), Some(address)) => sharers(process.pid, inside, address),
        _ => Vec::new(),
    };
    vec![others(process, thread.tid, sharers, waits_for)]
}

fn debtor(pid: u32, item: &Value) -> Option<Debtor> {
    let number = |field: &str| item[field].as_u64().and_then(|n| u32::try_from(n).ok());
    let tid = number("tid")?;
    let value = match &item["value"] {
        Value::String(text) => format!(" {text}"),
        _ => String::new(),
    };
    let after = item["after"]
        .as_str()
        .map_or(String::new(), |after| format!(", after {after}"));
    let (known, how) = match item["known"].as_str() {
        Some("seen") => (Known::Seen, "it wrote the word before"),
        Some("proved") => (Known::Proved, "a copy of it writes"),
        Some("by-code") => (Known::ByCode, "its code writes"),
        _ => (Known::Assumed, "it may write"),
    };
    Some(Debtor {
        who: Who::Thread(number("pid").unwrap_or(pid), tid),
        known,
        reason: format!("{how}{value} there{after}"),
        code: code(&item["code"]),
    })
}

/// As the report of `spin` has it.
fn code(item: &Value) -> Option<flagfinder_code::Code> {
    let text = |field: &str| item[field].as_str().map(str::to_owned);
    let inlined = item["inlined"].as_array().into_iter().flatten();
    Some(flagfinder_code::Code {
        module: text("module"),
        offset: number(&item["offset"])?,
        symbol: text("symbol"),
        source: text("source"),
        near: text("near"),
        inlined: inlined
            .filter_map(|n| n.as_str().map(str::to_owned))
            .collect(),
        build_id: text("build_id"),
    })
}
