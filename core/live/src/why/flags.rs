// SPDX-License-Identifier: MIT
//! A word that a thread polls, and who owes the write, as `spin` found it out.

use flagfinder_flags::{AskedCall, Standing, Verdict};
use flagfinder_waits::hot_call::Told;
use flagfinder_waits::{Because, Sure};

use super::asked::{Asked, AskedOf};
use super::held::{others, sharers};
use super::in_core;
use super::obstacle::{nobody_left, Debtor, End, Obstacle, Side, State, Who};
use super::process::{Process, Processes};
use super::report::{Kind, Known, RootKind, WaitsFor};
use super::{children, files, go, locked};
use crate::candidate::{self, Candidate, Owed};
use crate::report::ThreadReport;
use flagfinder_linux::proc::Stat;
use flagfinder_waits::call;
use flagfinder_waits::proc::Call;

/// Flags of one condition any of which may end the loop are left to `spin` to order: the first is
/// followed.
pub fn obstacles(processes: &mut Processes, pid: u32, thread: &ThreadReport) -> Vec<Obstacle> {
    let Some(flag) = thread.flags.first() else {
        return Vec::new();
    };
    if !flag.is_word() {
        return repeated(processes, pid, thread.tid, flag);
    }
    // Of two things that can't be told apart, those who owe either are followed.
    let as_good = |rank| thread.flags.iter().find(|other| other.flag.rank == rank);
    let other = flag.as_good.and_then(as_good);
    match other.filter(|other| !other.is_word()) {
        None => vec![word(processes, pid, thread, flag, other)],
        Some(call) => {
            let mut all = vec![word(processes, pid, thread, flag, None)];
            all.extend(repeated(processes, pid, thread.tid, call));
            all
        }
    }
}

/// A call whose answer the loop waits for.
fn repeated(processes: &mut Processes, pid: u32, tid: u32, flag: &Candidate) -> Vec<Obstacle> {
    let (name, call) = (flag.flag.name.clone(), flag.flag.symbol.as_deref());
    if processes.get(pid).is_some_and(|process| process.is_dead) {
        return vec![in_core::asks(&name)];
    }
    let made = flag.flag.call.as_ref();
    let refused = call.zip(made).and_then(|(call, made)| {
        let (result, fd) = (made.result.unwrap_or(0), made.args[0] as i32);
        locked::refused(pid, call, result, fd, made.path.as_deref())
    });
    let descriptors = flag.descriptors.as_deref().unwrap_or_default();
    let known = refused.or_else(|| ready(&name, call, descriptors));
    let mut all = known.map_or_else(
        || asked(processes, pid, tid, (&name, call), made),
        |obstacle| vec![obstacle],
    );
    // That the calls fail was seen. That the thread waits until they do not, was not: it may work,
    // and try that by the way.
    if flag.flag.standing == Standing::Counted {
        all.iter_mut().for_each(Obstacle::doubt);
    }
    all
}

/// The first word, and the one that is as good.
fn word(
    processes: &mut Processes,
    pid: u32,
    thread: &ThreadReport,
    flag: &Candidate,
    other: Option<&Candidate>,
) -> Obstacle {
    let name = flag.flag.name.clone();
    let Some(process) = processes.get(pid) else {
        let end = End::unknown("its process has ended meanwhile");
        return Obstacle::ends(Kind::Flag, name, end);
    };
    let name = match other {
        Some(other) => format!("{name} or {}", other.flag.name),
        None => name,
    };
    let waits_for = WaitsFor {
        kind: match thread.verdict {
            Some(Verdict::Lock) => Kind::Lock,
            _ => Kind::Flag,
        },
        name,
        address: flag.address().map(|address| format!("{address:#x}")),
        statement: None,
    };
    let owed = std::iter::once(flag).chain(other);
    let mut debtors: Vec<Debtor> = owed.flat_map(|flag| flag.owed()).map(debtor).collect();
    doubt(&mut debtors);
    if !debtors.is_empty() {
        return Obstacle {
            waits_for,
            ..Obstacle::owed(Kind::Flag, "", debtors)
        };
    }
    let sharers = match (&process.inside, flag.address()) {
        (Some(inside), Some(address)) => sharers(process.pid, inside, address),
        _ => Vec::new(),
    };
    let nobody = flag
        .trial
        .as_ref()
        .and_then(|trial| trial.owed_by_nobody.as_deref());
    // Any thread may call the library's counterpart of what this one waits in.
    let reader = flag.flag.readers.first();
    let of_library = reader.is_some_and(flagfinder_code::Code::is_standard_library);
    let by_any = of_library && process.tids().len() > 1;
    if let Some(nobody) = nobody.filter(|_| !by_any) {
        let stopped = stopped(process, thread.tid, &sharers, nobody);
        let tasks = go::also_blocked(process);
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
    others(process, thread.tid, &sharers, None, waits_for)
}

/// Stopped threads, if nobody is known to owe the write: a copy can't tell what they would do next.
fn stopped(process: &Process, waiting: u32, sharers: &[(u32, u64)], nobody: &str) -> Vec<Debtor> {
    let is_stopped = |state: char| matches!(state, 't' | 'T');
    let threads = process.activities.iter();
    let threads = threads.filter(|one| one.tid != waiting && is_stopped(one.state));
    let state = |pid: u32| Stat::of_thread(pid, pid).map(|stat| stat.state());
    let processes = sharers.iter().map(|(pid, _)| pid);
    let processes = processes.filter(|pid| state(**pid).is_some_and(is_stopped));
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
        effect: None,
        supposed: Vec::new(),
    };
    let mut debtors: Vec<Debtor> = asked.owed.iter().map(debtor).collect();
    doubt(&mut debtors);
    let obstacle = match debtors.is_empty() {
        true => Obstacle {
            known: Known::ByCode,
            ..Obstacle::ends(Kind::Flag, "", End::unknown(&asked.nobody))
        },
        false => Obstacle::owed(Kind::Flag, "", debtors),
    };
    obstacle.named_by(asked)
}

/// What a thread is blocked in by its source, which names what the machine's code calls a word.
/// Where the call has a time limit, that ends it.
pub fn blocked_in_source(pid: u32, asked: &Asked, state: State) -> State {
    let State::Waits(mut obstacles) = state else {
        return state;
    };
    // A limit of time says nothing of what the statement waits for.
    let is_it = |one: &&mut Obstacle| one.waits_for.kind != Kind::Timer;
    let mut found = obstacles.iter_mut().filter(is_it);
    let (Some(obstacle), None) = (found.next(), found.next()) else {
        return State::Waits(obstacles);
    };
    let is_seen = obstacle.debtors.iter().any(|one| one.known == Known::Seen);
    if !asked.owed.is_empty() && !is_seen {
        *obstacle = Obstacle {
            waits_for: obstacle.waits_for.clone(),
            ..in_source(pid, asked)
        };
    }
    let own = obstacle.waits_for.clone();
    let mut named = obstacle.clone().named_by(asked);
    // A lock of the machine's code has a name of its own.
    if own.kind == Kind::Lock && asked.owed.is_empty() {
        let alone = asked.statement.as_ref();
        named.waits_for.name = format!("{}, in {}", own.name, asked.name);
        named.waits_for.statement = alone.map(|name| format!("{}, in {name}", own.name));
    }
    if named.by_elimination {
        named.otherwise = nobody_left(pid, &named.waits_for.name);
    }
    *obstacle = named;
    State::Waits(obstacles)
}

/// What a task of a thread's event loop waits for, where nothing but the loop itself, or the limit
/// of its call, wakes the thread; or a new client, where that is no help.
pub fn blocked_in_task(pid: u32, asked: &Asked, state: State) -> State {
    let (State::Waits(obstacles), Some(kind)) = (&state, asked.of_task) else {
        return state;
    };
    let is_own = |one: &Obstacle| {
        let is_own = match one.otherwise.kind {
            RootKind::Timer | RootKind::Deadlock => true,
            _ => asked.is_locked && matches!(one.side, Some(Side::Listens(_))),
        };
        one.debtors.is_empty() && is_own
    };
    // Other threads of the process may wake the loop. Whether they will is not known.
    let is_inside = |one: &Obstacle| {
        let is_inside = |one: &Debtor| match one.who {
            Who::Thread(of, _) | Who::AnyOf(of, _) | Who::Process(of, _) => of == pid,
        };
        !one.debtors.is_empty() && one.debtors.iter().all(is_inside)
    };
    if !obstacles.iter().all(|one| is_own(one) || is_inside(one)) {
        return state;
    }
    let is_alone = obstacles.iter().all(is_own);
    let mut timers = obstacles
        .iter()
        .filter(|one| one.otherwise.kind == RootKind::Timer);
    let end = match kind {
        _ if !is_alone => End::unknown(&asked.nobody),
        RootKind::Timer => End::outside(kind, &asked.nobody),
        RootKind::Input => End::idle(kind, &asked.nobody),
        RootKind::Deadlock if timers.next().is_none() => End::fault(kind, &asked.nobody),
        _ => End::unknown(&asked.nobody),
    };
    let obstacle = Obstacle::ends(Kind::Flag, "", end).named_by(asked);
    State::Waits(vec![Obstacle {
        known: Known::ByCode,
        ..obstacle
    }])
}

/// A call that comes back at once because something is wrong with its file; `None`: what it asks
/// for may still come.
fn ready(name: &str, call: Option<&str>, descriptors: &[Told]) -> Option<Obstacle> {
    let kind = |one: &Told| match one.because? {
        Because::NoWriter | Because::NoReader | Because::PeerClosed | Because::NotOpen => {
            Some(RootKind::Ended)
        }
        Because::EndOfFile | Because::AlwaysReady | Because::Error => Some(RootKind::Input),
        Because::Data | Because::Room | Because::NotReady => None,
    };
    let (one, kind) = descriptors.iter().find_map(|one| Some((one, kind(one)?)))?;
    let file = match one.because {
        Some(Because::NotOpen) => String::new(),
        _ => format!(" ({})", one.what),
    };
    let from = one.inherited_from.as_ref().map_or(String::new(), |from| {
        let (name, pid) = (&from.name, from.pid);
        match from.known {
            Sure::Seen => format!(", inherited from {name} ({pid})"),
            Sure::Assumed => format!(", probably set by {name} ({pid}), which started it"),
        }
    });
    let what = format!(
        "{} comes back at once, again and again: {} on fd {}{file}{from}",
        call.unwrap_or("the call"),
        one.why.as_deref().unwrap_or_default(),
        one.fd
    );
    Some(Obstacle::ends(Kind::Call, name, End::fault(kind, what)))
}

/// A call that is made again and again: `read on fd 3 returns error 11`.
fn asked(
    processes: &mut Processes,
    pid: u32,
    tid: u32,
    (name, call): (&str, Option<&str>),
    made: Option<&AskedCall>,
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
        _ => match made.map_or(Vec::new(), |made| polled(processes, pid, made)) {
            none if none.is_empty() => {
                let often = made.and_then(|made| made.per_second);
                let often =
                    often.map_or(String::new(), |often| format!(", {often} times a second"));
                let what = format!("it asks again and again: {name}{often}");
                vec![Obstacle::ends(Kind::Call, name, End::unknown(what))]
            }
            descriptors => files::each(processes, pid, tid, &descriptors, call),
        },
    }
}

/// The descriptors that a call asks about.
fn polled(processes: &mut Processes, pid: u32, made: &AskedCall) -> Vec<i32> {
    // What the loop opens itself is soon closed.
    if made.path.is_some() {
        return Vec::new();
    }
    let inside = processes
        .get(pid)
        .and_then(|process| process.inside.as_ref());
    let Some(inside) = inside else {
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
        debtor.reason += "; other threads may end the wait as well";
    }
}

/// A thread that owes what is polled, or slept at.
pub fn debtor(owed: &Owed) -> Debtor {
    let value = owed
        .value
        .map_or(String::new(), |value| format!(" {value:#x}"));
    let after = owed
        .after
        .as_ref()
        .map_or(String::new(), |after| format!(", after {after}"));
    let (known, how) = match owed.known {
        candidate::Known::Proved => (Known::Proved, "a copy of it writes"),
        candidate::Known::ByCode => (Known::ByCode, "its code writes"),
    };
    Debtor {
        who: Who::Thread(owed.pid, owed.tid),
        known,
        reason: format!("{how}{value} there{after}"),
        code: owed.code.clone(),
        effect: None,
        supposed: owed.supposed.clone(),
    }
}

#[cfg(test)]
mod tests {
    use flagfinder_waits::Inherited;

    use super::*;

    #[test]
    fn the_owing_thread_is_told_with_what_it_writes() {
        let code = flagfinder_code::Code {
            offset: 0x12,
            ..Default::default()
        };
        let owed = Owed {
            value: Some(1),
            after: Some("read on fd 3".into()),
            supposed: Vec::new(),
            code: Some(code),
            ..by_code(9)
        };
        let debtor = debtor(&owed);
        assert_eq!(debtor.who, Who::Thread(1, 9));
        assert_eq!(debtor.known, Known::ByCode);
        assert_eq!(
            debtor.reason,
            "its code writes 0x1 there, after read on fd 3"
        );
        assert_eq!(debtor.code.map(|code| code.offset), Some(0x12));
    }

    #[test]
    fn a_file_that_is_at_its_end_is_told_with_who_passed_it() {
        let from = Inherited {
            pid: 7,
            name: "xargs".into(),
            fd: Some(0),
            known: Sure::Seen,
        };
        let of = |because| Told {
            takes_clients: false,
            fd: 0,
            target: String::new(),
            what: "/dev/null".into(),
            peers: Vec::new(),
            via: None,
            because: Some(because),
            why: Some("each read gets end of file".into()),
            inherited_from: Some(from.clone()),
        };
        let end = |because| {
            let found = ready("read on fd 0 returns 0", Some("read"), &[of(because)]);
            found.map(|obstacle| obstacle.otherwise)
        };
        let found = end(Because::EndOfFile).expect("it is wrong in itself");
        assert_eq!(found.kind, RootKind::Input);
        assert_eq!(
            found.what,
            "read comes back at once, again and again: each read gets end of file on fd 0 \
             (/dev/null), inherited from xargs (7)"
        );
        assert_eq!(
            end(Because::NoWriter).map(|end| end.kind),
            Some(RootKind::Ended)
        );
        for may_come in [Because::NotReady, Because::Data, Because::Room] {
            assert!(end(may_come).is_none(), "{may_come:?}");
        }
    }

    fn by_code(tid: u32) -> Owed {
        Owed {
            value: None,
            after: None,
            supposed: Vec::new(),
            ..crate::candidate::tests::debtor(tid, candidate::Known::ByCode)
        }
    }

    #[test]
    fn none_of_several_threads_with_a_store_ahead_is_known_to_owe() {
        let of = |tid: u32| debtor(&by_code(tid));
        let mut several = [2, 3].map(of);
        doubt(&mut several);
        assert!(several.iter().all(|one| one.known == Known::Assumed));
        let mut alone = [of(2)];
        doubt(&mut alone);
        assert_eq!(alone[0].known, Known::ByCode);
    }
}
