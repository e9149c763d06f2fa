// SPDX-License-Identifier: MIT
//! A word that a thread polls, and who owes the write, as `spin` found it out.

use serde_json::Value;

use super::asked::{Asked, AskedOf};
use super::held::{others, sharers};
use super::in_core;
use super::obstacle::{Debtor, End, Obstacle, State, Who};
use super::process::{Process, Processes};
use super::report::{Kind, Known, RootKind, WaitsFor};
use super::{children, files, goroutines, locked};
use crate::hot_call;
use crate::report::{number, ThreadReport};
use flagfinder_linux::proc::Stat;
use flagfinder_waits::call;
use flagfinder_waits::proc::Call;

/// Flags of one condition any of which may end the loop are left to `spin` to order: the first is
/// followed.
pub fn obstacles(processes: &mut Processes, pid: u32, thread: &ThreadReport) -> Vec<Obstacle> {
    let flag = &thread.flags[0];
    if flag["kind"] == "syscall" {
        return repeated(processes, pid, thread.tid, flag);
    }
    // Of two things that can't be told apart, those who owe either are followed.
    let as_good = flag["as_good"].as_u64();
    let other = as_good.map(|rank| &thread.flags[rank as usize - 1]);
    match other.filter(|other| other["kind"] == "syscall") {
        None => vec![word(processes, pid, thread, other)],
        Some(call) => {
            let mut all = vec![word(processes, pid, thread, None)];
            all.extend(repeated(processes, pid, thread.tid, call));
            all
        }
    }
}

/// A call whose answer the loop waits for.
fn repeated(processes: &mut Processes, pid: u32, tid: u32, flag: &Value) -> Vec<Obstacle> {
    let name = flag["name"].as_str().unwrap_or("a call").to_owned();
    let call = flag["symbol"].as_str();
    if processes.get(pid).is_some_and(|process| process.is_dead) {
        return vec![in_core::asks(&name)];
    }
    let result = flag["call"]["result"].as_i64().unwrap_or(0);
    let path = flag["call"]["path"].as_str();
    let fd = number(&flag["call"]["args"][0]).unwrap_or(0) as i32;
    let refused = call.and_then(|call| locked::refused(pid, call, result, fd, path));
    let known = refused.or_else(|| ready(&name, call, &flag["descriptors"]));
    known.map_or_else(
        || asked(processes, pid, tid, (&name, call), &flag["call"]),
        |obstacle| vec![obstacle],
    )
}

/// The first word, and the one that is as good.
fn word(
    processes: &mut Processes,
    pid: u32,
    thread: &ThreadReport,
    other: Option<&Value>,
) -> Obstacle {
    let flag = &thread.flags[0];
    let name = flag["name"].as_str().unwrap_or("a word").to_owned();
    let Some(process) = processes.get(pid) else {
        let end = End::unknown("its process has ended meanwhile");
        return Obstacle::ends(Kind::Flag, name, end);
    };
    let name = match other.and_then(|other| other["name"].as_str()) {
        Some(other) => format!("{name} or {other}"),
        None => name,
    };
    let waits_for = WaitsFor {
        kind: match thread.verdict.as_deref() {
            Some("lock") => Kind::Lock,
            _ => Kind::Flag,
        },
        name,
        address: flag["address"]["spin"].as_str().map(str::to_owned),
    };
    let owed = std::iter::once(flag).chain(other);
    let mut debtors: Vec<Debtor> = owed
        .filter_map(|flag| flag["owed"].as_array())
        .flatten()
        .filter_map(|item| debtor(process.pid, item))
        .collect();
    doubt(&mut debtors);
    if !debtors.is_empty() {
        return Obstacle {
            waits_for,
            ..Obstacle::owed(Kind::Flag, "", debtors)
        };
    }
    let address = number(&flag["address"]["spin"]);
    let sharers = match (&process.inside, address) {
        (Some(inside), Some(address)) => sharers(process.pid, inside, address),
        _ => Vec::new(),
    };
    let nobody = flag["owed_by_nobody"].as_str();
    // Any thread may call the library's counterpart of what this one waits in.
    let of_library = code(&flag["readers"][0]).is_some_and(|code| code.is_standard_library());
    let by_any = of_library && process.tids().len() > 1;
    if let Some(nobody) = nobody.filter(|_| !by_any) {
        let stopped = stopped(process, thread.tid, &sharers, nobody);
        let tasks = goroutines::also_blocked(process);
        let tasks = tasks.map_or(String::new(), |tasks| format!("; blocked: {tasks}"));
        let end = match stopped.is_empty() {
            true => Obstacle::ends(Kind::Flag, "", End::unknown(format!("{nobody}{tasks}"))),
            false => Obstacle::owed(Kind::Flag, "", stopped),
        };
        return Obstacle {
            waits_for,
            by_elimination: !end.debtors.is_empty(),
            ..end
        };
    }
    others(process, thread.tid, sharers, waits_for)
}

/// Stopped threads, if nobody is known to owe the write: a copy can't tell what they would do next.
fn stopped(process: &Process, waiting: u32, sharers: &[u32], nobody: &str) -> Vec<Debtor> {
    let is_stopped = |state: char| matches!(state, 't' | 'T');
    let threads = process.activities.iter();
    let threads = threads.filter(|one| one.tid != waiting && is_stopped(one.state));
    let state = |pid: u32| Stat::of_thread(pid, pid).map(|stat| stat.state());
    let processes = sharers
        .iter()
        .filter(|pid| state(**pid).is_some_and(is_stopped));
    let threads = threads.map(|one| Who::Thread(process.pid, one.tid));
    let processes = processes.map(|pid| Who::Process(*pid, None));
    let reason = format!("it is stopped, and nobody else is known to write the word: {nobody}");
    let debtor = |who| Debtor::assumed(who, reason.clone());
    threads.chain(processes).map(debtor).collect()
}

/// What a thread's source asks.
pub fn in_source(pid: u32, asked: &Asked) -> Obstacle {
    let debtor = |of: &AskedOf| Debtor {
        who: Who::Thread(pid, of.tid),
        known: Known::ByCode,
        reason: of.reason.clone(),
        code: None,
    };
    let mut debtors: Vec<Debtor> = asked.owed.iter().map(debtor).collect();
    doubt(&mut debtors);
    if debtors.is_empty() {
        let known = Known::ByCode;
        let nobody = Obstacle::ends(Kind::Flag, &asked.name, End::unknown(&asked.nobody));
        return Obstacle { known, ..nobody };
    }
    Obstacle::owed(Kind::Flag, &asked.name, debtors)
}

/// What a thread is blocked in by its source, which names what the machine's code calls a word.
/// Where the call has a time limit, that ends it.
pub fn blocked_in_source(pid: u32, asked: &Asked, state: State) -> State {
    let State::Waits(mut obstacles) = state else {
        return state;
    };
    let [obstacle] = &mut obstacles[..] else {
        return State::Waits(obstacles);
    };
    let is_seen = obstacle.debtors.iter().any(|one| one.known == Known::Seen);
    if !asked.owed.is_empty() && !is_seen {
        *obstacle = Obstacle {
            waits_for: obstacle.waits_for.clone(),
            ..in_source(pid, asked)
        };
    }
    // A lock of the machine's code has a name of its own.
    obstacle.waits_for.name = match obstacle.waits_for.kind {
        Kind::Lock if asked.owed.is_empty() => {
            format!("{}, in {}", obstacle.waits_for.name, asked.name)
        }
        _ => asked.name.clone(),
    };
    State::Waits(obstacles)
}

/// What a task of a thread's event loop waits for, where nothing but the loop itself, or the limit
/// of its call, wakes the thread.
pub fn blocked_in_task(asked: &Asked, state: State) -> State {
    let (State::Waits(obstacles), Some(kind)) = (&state, asked.of_task) else {
        return state;
    };
    let is_own = |one: &Obstacle| {
        let kind = one.otherwise.kind;
        one.debtors.is_empty() && matches!(kind, RootKind::Timer | RootKind::Deadlock)
    };
    if !obstacles.iter().all(is_own) {
        return state;
    }
    let mut timers = obstacles
        .iter()
        .filter(|one| one.otherwise.kind == RootKind::Timer);
    let end = match kind {
        RootKind::Timer => End::outside(kind, &asked.nobody),
        RootKind::Input => End::idle(kind, &asked.nobody),
        RootKind::Deadlock if timers.next().is_none() => End::fault(kind, &asked.nobody),
        _ => End::unknown(&asked.nobody),
    };
    let obstacle = Obstacle::ends(Kind::Flag, &asked.name, end);
    State::Waits(vec![Obstacle {
        known: Known::ByCode,
        ..obstacle
    }])
}

/// A call that comes back at once because something is wrong with its file; `None`: what it asks
/// for may still come.
fn ready(name: &str, call: Option<&str>, descriptors: &Value) -> Option<Obstacle> {
    let list = descriptors.as_array()?;
    let kind = |one: &Value| match one["because"].as_str()? {
        "no-writer" | "no-reader" | "peer-closed" | "not-open" => Some(RootKind::Ended),
        "end-of-file" | "always-ready" | "error" => Some(RootKind::Input),
        _ => None,
    };
    let (one, kind) = list.iter().find_map(|one| Some((one, kind(one)?)))?;
    let file = match one["because"] == "not-open" {
        true => String::new(),
        false => format!(" ({})", one["what"].as_str().unwrap_or_default()),
    };
    let from = &one["inherited_from"];
    let from = match (from["name"].as_str(), from["pid"].as_u64()) {
        (Some(name), Some(pid)) if from["known"] == "seen" => {
            format!(", inherited from {name} ({pid})")
        }
        (Some(name), Some(pid)) => format!(", probably set by {name} ({pid}), which started it"),
        _ => String::new(),
    };
    let what = format!(
        "{} comes back at once, again and again: {} on fd {}{file}{from}",
        call.unwrap_or("the call"),
        one["why"].as_str().unwrap_or_default(),
        one["fd"]
    );
    Some(Obstacle::ends(Kind::Call, name, End::fault(kind, what)))
}

/// A call that is made again and again: `read on fd 3 returns error 11`.
fn asked(
    processes: &mut Processes,
    pid: u32,
    tid: u32,
    (name, call): (&str, Option<&str>),
    made: &Value,
) -> Vec<Obstacle> {
    let call = call.unwrap_or(name);
    let rest = name
        .strip_prefix(call)
        .and_then(|rest| rest.strip_prefix(" on fd "));
    let number = rest.and_then(|rest| rest.split(' ').next()?.parse().ok());
    match (call, number) {
        // These calls wait for no disk. Who is to change the file is not known.
        ("fstat" | "newfstatat" | "lseek", Some(fd)) => {
            let path = flagfinder_linux::proc::link(pid, fd).unwrap_or_default();
            let what = format!("it asks again and again: {name}; the file is {path}");
            vec![Obstacle::ends(Kind::Call, name, End::unknown(what))]
        }
        (_, Some(fd)) => files::obstacles(processes, pid, tid, fd, call),
        ("wait4" | "waitid" | "waitpid", _) => children::ends(pid, None),
        _ if !polled(processes, pid, made).is_empty() => {
            let descriptors = polled(processes, pid, made);
            files::each(processes, pid, tid, &descriptors, call)
        }
        _ => {
            let what = format!("it asks again and again: {name}");
            vec![Obstacle::ends(Kind::Call, name, End::unknown(what))]
        }
    }
}

/// The descriptors that a call asks about.
fn polled(processes: &mut Processes, pid: u32, made: &Value) -> Vec<i32> {
    let inside = processes
        .get(pid)
        .and_then(|process| process.inside.as_ref());
    let (Some(inside), Some(made)) = (inside, hot_call::call(made)) else {
        return Vec::new();
    };
    let call = Call {
        number: made.number,
        args: made.args,
        sp: 0,
        pc: 0,
    };
    call::descriptors(&call, &*inside.memory)
}

/// Threads that run one function all have its stores ahead: which of them owes is not known.
fn doubt(debtors: &mut [Debtor]) {
    let is_one_of_several = debtors.len() > 1 && debtors.iter().all(|d| d.known == Known::ByCode);
    for debtor in debtors.iter_mut().filter(|_| is_one_of_several) {
        debtor.known = Known::Assumed;
        debtor.reason += "; other threads have such a store ahead as well";
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_owing_thread_is_read_from_the_report_of_spin() {
        let code = json!({"module": "app", "offset": "0x12", "symbol": "finish+0x2"});
        let item = json!({
            "pid": 7, "tid": 9, "name": "worker", "code": code, "value": "0x1",
            "known": "by-code", "after": "read on fd 3"
        });
        let debtor = debtor(1, &item).expect("it has a thread");
        assert_eq!(debtor.who, Who::Thread(7, 9));
        assert_eq!(debtor.known, Known::ByCode);
        assert_eq!(
            debtor.reason,
            "its code writes 0x1 there, after read on fd 3"
        );
        assert_eq!(debtor.code.map(|code| code.offset), Some(0x12));
        let bare = super::debtor(1, &json!({"tid": 9, "code": null, "known": "proved"}));
        assert_eq!(bare.map(|debtor| debtor.who), Some(Who::Thread(1, 9)));
        assert!(super::debtor(1, &json!({"name": "worker"})).is_none());
    }

    #[test]
    fn a_file_that_is_at_its_end_is_told_with_who_passed_it() {
        let from = json!({"pid": 7, "name": "xargs", "fd": 0, "known": "seen"});
        let mut one = json!({
            "fd": 0, "what": "/dev/null", "because": "end-of-file",
            "why": "each read gets end of file", "inherited_from": from
        });
        let end = |one: &Value| {
            let found = ready("read on fd 0 returns 0", Some("read"), &json!([one]));
            found.map(|obstacle| obstacle.otherwise)
        };
        let found = end(&one).expect("it is wrong in itself");
        assert_eq!(found.kind, RootKind::Input);
        assert_eq!(
            found.what,
            "read comes back at once, again and again: each read gets end of file on fd 0 \
             (/dev/null), inherited from xargs (7)"
        );
        one["because"] = json!("no-writer");
        assert_eq!(end(&one).map(|end| end.kind), Some(RootKind::Ended));
        for may_come in ["not-ready", "data", "room"] {
            one["because"] = json!(may_come);
            assert!(end(&one).is_none(), "{may_come}");
        }
    }

    #[test]
    fn none_of_several_threads_with_a_store_ahead_is_known_to_owe() {
        let by_code = |tid: u32| debtor(1, &json!({"tid": tid, "known": "by-code"}));
        let mut several: Vec<Debtor> = [2, 3].into_iter().filter_map(by_code).collect();
        doubt(&mut several);
        assert!(several.iter().all(|one| one.known == Known::Assumed));
        let mut alone: Vec<Debtor> = by_code(2).into_iter().collect();
        doubt(&mut alone);
        assert_eq!(alone[0].known, Known::ByCode);
    }
}
