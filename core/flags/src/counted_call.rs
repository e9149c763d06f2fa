// SPDX-License-Identifier: MIT
//! A call that comes back at once with the same answer again and again, in the calls of a thread
//! alone.
//!
//! In: the calls that a busy thread made one after the other. Out: the call that it makes in vain,
//! as a report with one flag; none if anything it asks is answered anew, if data goes in or out, or
//! if it does much else between two tries. Of its code nothing is known: that of an interpreter, or
//! of a round too long for a copy, tells little. Blind spots: questions whose answer is no failure
//! (`stat` of a file that is to go away); a loop that looks for several things one after the other;
//! a check of each round that ends nothing, beside short work.

use std::time::Duration;

use flagfinder_analysis::is_refusal;
use flagfinder_analysis::runtime::is_runtime_symbol;
use flagfinder_code::Names;
use flagfinder_linux::socket_address;
use flagfinder_linux::syscalls::{self, Role};
use flagfinder_machine::MadeCall;
use rustc_hash::FxHashMap;

use crate::report::{AskedCall, Flag, FlagKind, Report, ThreadName, Threads, Values, Verdict};
use crate::rules::Rule;
use crate::standing::Standing;

/// Fewer tries may be chance.
const LEAST: usize = 8;
/// One thing may be tried in so many places: the two addresses of one host.
const PLACES: usize = 3;
/// Of all questions so many, in a hundred, may be others or be answered differently.
const STRAY: usize = 10;
/// A call that takes longer was waited in.
const AT_ONCE: Duration = Duration::from_millis(1);
/// A round in which the thread does more of its own than this works on something, in time on a
/// processor: unless its calls take this share of that time, at least. On a busy machine both take
/// several times as long, as others empty the caches at each stop.
const OWN_WORK: Duration = Duration::from_micros(50);
const SHARE: f64 = 0.8;
/// Each stop at a call adds to it, at most so much.
const STOP: Duration = Duration::from_micros(12);
/// Errors by which the kind of a file or a socket is told. Nobody waits until they pass.
const OF_KIND: [i32; 8] = [
    libc::ENOTTY,
    libc::ESPIPE,
    libc::ENOSYS,
    libc::EOPNOTSUPP,
    libc::EINVAL,
    libc::ENOTSOCK,
    libc::ENOPROTOOPT,
    libc::ENOTCONN,
];
const SCORE: f64 = 0.7;

/// What a call asks: its number, the descriptor or what else it begins with, and the path.
type Question<'c> = (u32, [u64; 2], &'c [u8]);

/// A question of the thread.
struct Asked<'c> {
    /// Its place among all calls.
    at: usize,
    call: &'c MadeCall,
    question: Question<'c>,
    /// It answers in place of `call.result`.
    result: i64,
    /// Its data come from a file that the thread itself opened a moment before.
    is_own_file: bool,
}

/// The report on a thread that makes one call in vain. `time`: for how long it ran meanwhile.
pub fn find_in_calls(
    calls: &[MadeCall],
    time: Duration,
    names: &Names,
    thread: ThreadName,
) -> Option<Report> {
    if !Rule::CountedCalls.is_on() {
        return None;
    }
    let mut asked = questions(calls);
    // A scheduler in user space polls for all its tasks, whatever these do.
    let is_scheduler = |call: &MadeCall| {
        let symbol = names.code(call.pc).symbol;
        role(call) == Role::Poll && symbol.is_some_and(|symbol| is_runtime_symbol(&symbol))
    };
    asked.retain(|one| !is_scheduler(one.call));
    let tries = in_vain(&asked)?;
    let own_work = own_work(calls, &tries)?;
    let last = tries.last()?;
    let mut flag = flag(last, (tries.len(), calls.len()), own_work, time);
    flag.rank = 1;
    Some(Report {
        reason: format!("the thread makes a call in vain: {}", flag.name),
        threads: Threads {
            normal: None,
            spin: Some(thread),
        },
        flags: vec![flag],
        ..Report::nothing(Verdict::SyscallLoop, "")
    })
}

/// Does the thread ask for something else each time that it makes such a call? Then it gets on.
pub fn asks_anew(calls: &[MadeCall], number: u32) -> bool {
    let of_number = calls.iter().filter(|call| call.number == number);
    let about: Vec<&[u8]> = of_number.map(|call| &*call.about).collect();
    let mut places = about.clone();
    places.sort_unstable();
    places.dedup();
    Rule::CountedCalls.is_on() && about.len() >= LEAST && places.len() * 2 > about.len()
}

/// What the thread does of its own in a round, most times; `None`: it works on something. A round
/// goes from one try to the next about the same.
fn own_work(calls: &[MadeCall], tries: &[&Asked]) -> Option<Duration> {
    let last = tries.last()?;
    let tries = tries.iter().filter(|one| one.question == last.question);
    let at: Vec<usize> = tries.map(|one| one.at).collect();
    let rounds: Vec<&[MadeCall]> = at.windows(2).map(|at| &calls[at[0] + 1..=at[1]]).collect();
    let stop = quantile(calls.iter().map(|call| call.after).collect(), 4).min(STOP);
    let of_round = |round: &&[MadeCall]| -> Duration {
        let own = round.iter().map(|call| call.after.saturating_sub(stop));
        own.sum()
    };
    let own = quantile(rounds.iter().map(of_round).collect(), 2);
    let mostly_calls = |round: &&&[MadeCall]| {
        let in_calls: Duration = round.iter().map(|call| call.ran).sum();
        let between: Duration = round.iter().map(|call| call.after).sum();
        in_calls >= between.mul_f64(SHARE)
    };
    let asks = rounds.iter().filter(mostly_calls).count() * 2 > rounds.len();
    (!rounds.is_empty() && (own <= OWN_WORK || asks)).then_some(own)
}

/// One in so many of them is smaller.
fn quantile(mut times: Vec<Duration>, one_in: usize) -> Duration {
    times.sort_unstable();
    times.get(times.len() / one_in).copied().unwrap_or_default()
}

/// The tries of the call that is made in vain.
fn in_vain<'a, 'c>(asked: &'a [Asked<'c>]) -> Option<Vec<&'a Asked<'c>>> {
    let ready = |one: &Asked| role(one.call) == Role::Poll && one.result > 0;
    // What fails comes first: a loop that serves events polls on its way for more.
    let kinds: [&dyn Fn(&Asked) -> bool; 3] = [
        &|one| one.result < 0 && is_failure(one),
        &is_failure,
        &ready,
    ];
    let of_kind = |kind: &&dyn Fn(&Asked) -> bool| -> Vec<&Asked<'c>> {
        asked.iter().filter(|one| kind(one)).collect()
    };
    let tries = kinds.iter().map(of_kind).find(|tries| !tries.is_empty())?;
    let most = most_frequent(&tries)?;
    let is_try = |one: &&&Asked| (one.call.number, one.result) == most;
    let alike: Vec<&Asked> = tries.iter().filter(is_try).copied().collect();
    let mut places: Vec<Question> = alike.iter().map(|one| one.question).collect();
    places.sort_unstable();
    places.dedup();
    let is_stray = |count: usize, all: usize| count * 100 > all * STRAY;
    let moves = |one: &&Asked| moves_on(one, most.1);
    let is_vain = alike.len() >= LEAST
        && places.len() <= PLACES
        && !is_stray(tries.len() - alike.len(), tries.len())
        && !is_stray(strays(asked, alike.len()), asked.len())
        && asked.iter().filter(moves).count() * 100 <= alike.len() * STRAY;
    is_vain.then_some(alike)
}

fn role(call: &MadeCall) -> Role {
    syscalls::role(call.number, &call.args)
}

/// What the thread asks, without what it says of itself and what makes it a descriptor.
fn questions(calls: &[MadeCall]) -> Vec<Asked<'_>> {
    /// Marks what stands for a descriptor that the thread has just made.
    const MADE: u64 = 1 << 63;
    let mut made: FxHashMap<i64, u64> = FxHashMap::default();
    let mut connecting: FxHashMap<u64, usize> = FxHashMap::default();
    let mut asked: Vec<Asked> = Vec::new();
    for (at, call) in calls.iter().enumerate() {
        let number = i64::from(call.number);
        let opens = syscalls::opens(call.number) && call.result >= 0;
        let makes = syscalls::makes_descriptor(call.number) && call.result >= 0;
        if opens || makes {
            made.insert(call.result, MADE | u64::from(call.number));
        }
        if makes || !matches!(role(call), Role::Work | Role::Poll) {
            continue;
        }
        let own = made.get(&i64::from(call.args[0] as i32)).copied();
        if number == libc::SYS_getsockopt {
            // How it came out to connect is asked later.
            if let Some(begun) = connecting.remove(&call.args[0]) {
                asked[begun].result = call.result;
                continue;
            }
        }
        if number == libc::SYS_connect && call.result == -i64::from(libc::EINPROGRESS) {
            connecting.insert(call.args[0], asked.len());
        }
        let first = match (number, role(call)) {
            // An address of memory, which differs from round to round.
            (libc::SYS_poll | libc::SYS_ppoll, _) => 0,
            _ if !call.about.is_empty() => 0,
            _ => own.unwrap_or(call.args[0]),
        };
        let second = match number {
            libc::SYS_ioctl
            | libc::SYS_fcntl
            | libc::SYS_lseek
            | libc::SYS_flock
            | libc::SYS_kill => call.args[1],
            _ => 0,
        };
        asked.push(Asked {
            at,
            call,
            question: (call.number, [first, second], &call.about),
            result: if opens { 0 } else { call.result },
            is_own_file: own.is_some_and(|by| syscalls::opens((by & !MADE) as u32)),
        });
    }
    asked
}

/// Does the call give nothing of what it was asked for, for now?
fn is_failure(one: &Asked) -> bool {
    let call = one.call;
    let error = i32::try_from(-one.result).unwrap_or(0);
    if error > 0 {
        return error != libc::EINPROGRESS && !OF_KIND.contains(&error) && call.took < AT_ONCE;
    }
    let looks_for_child =
        i64::from(call.number) == libc::SYS_wait4 && call.args[2] & libc::WNOHANG as u64 != 0;
    let takes = syscalls::consumes(call.number) && !syscalls::gives(call.number);
    let nothing = looks_for_child
        || role(call) == Role::Poll
        || takes && !one.is_own_file && call.args[2] != 0;
    one.result == 0 && nothing && call.took < AT_ONCE
}

/// Does the call take data from others, or hand some on? A loop that is refused something may write
/// a log.
fn moves_on(one: &Asked, answer: i64) -> bool {
    let number = one.call.number;
    let logs = is_refusal(answer) && syscalls::gives(number) && !syscalls::gives_at(number);
    syscalls::consumes(number) && one.result > 0 && !one.is_own_file && !logs
}

/// The call and the answer that come most often.
fn most_frequent(tries: &[&Asked]) -> Option<(u32, i64)> {
    let mut counts: FxHashMap<(u32, i64), usize> = FxHashMap::default();
    for one in tries {
        *counts.entry((one.call.number, one.result)).or_default() += 1;
    }
    let most = counts
        .into_iter()
        .max_by_key(|(what, count)| (*count, *what));
    most.map(|(what, _)| what)
}

/// How many questions are not asked in each round, or are not answered as most times.
fn strays(asked: &[Asked], rounds: usize) -> usize {
    let mut answers: FxHashMap<Question, FxHashMap<i64, usize>> = FxHashMap::default();
    // Of its own file it reads one part after the other.
    for one in asked.iter().filter(|one| !one.is_own_file) {
        let counts = answers.entry(one.question).or_default();
        *counts.entry(one.result).or_default() += 1;
    }
    let stray = |counts: &FxHashMap<i64, usize>| {
        let all: usize = counts.values().sum();
        let usual = counts.values().max().copied().unwrap_or(0);
        // Each of several places is tried in one of so many rounds.
        match usual * PLACES + 1 < rounds / 2 {
            true => all,
            false => all - usual,
        }
    };
    answers.values().map(stray).sum()
}

fn flag(last: &Asked, (tries, all): (usize, usize), own_work: Duration, time: Duration) -> Flag {
    let call = last.call;
    let name = syscalls::name(call.number);
    let path = place(call);
    let fd = syscalls::descriptor(call.number, &call.args);
    let of = match (&path, fd) {
        (Some(path), _) => format!(" on {path}"),
        (None, Some(fd)) => format!(" on fd {fd}"),
        (None, None) => String::new(),
    };
    let returns = match last.result {
        result if result < 0 => format!("error {}", -result),
        result => result.to_string(),
    };
    let (milliseconds, own_work) = (time.as_millis(), own_work.as_micros());
    let per_second = (tries as f64 / time.as_secs_f64().max(1e-6)).round() as u64;
    let mut evidence = vec![
        format!("{tries} of {all} calls in {milliseconds} ms, each with that answer"),
        format!("between two of them the thread does {own_work} µs of work of its own"),
        "nothing else that the thread asks is answered anew, and no data goes in or out".into(),
    ];
    let mut standing = Standing::Counted;
    if last.result == 0 && is_at_a_glance(call) {
        // An event loop with work at hand: node's setImmediate.
        let why = "it does not wait, so that the thread may go on for another reason";
        evidence.insert(0, why.into());
        standing = Standing::Unsure;
    }
    Flag {
        confidence: SCORE,
        standing,
        symbol: Some(name.clone()),
        value: Values {
            spin: Some(last.result as u64),
            ..Values::default()
        },
        exit_when: format!("{name}{of} answers differently"),
        evidence,
        call: Some(AskedCall {
            number: call.number,
            args: call.args,
            result: Some(last.result),
            found: Vec::new(),
            path,
            per_second: Some(per_second),
        }),
        ..Flag::new(FlagKind::Syscall, format!("{name}{of} returns {returns}"))
    }
}

/// Is it a poll that does not wait, if nothing is ready?
fn is_at_a_glance(call: &MadeCall) -> bool {
    match i64::from(call.number) {
        libc::SYS_poll => call.args[2] == 0,
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait => call.args[3] == 0,
        _ => false,
    }
}

/// The path, or the address of a socket; `None`: the call is about a descriptor.
fn place(call: &MadeCall) -> Option<String> {
    match i64::from(call.number) {
        _ if call.about.is_empty() => None,
        libc::SYS_connect => socket_address::text(&call.about),
        _ => Some(String::from_utf8_lossy(&call.about).into_owned()),
    }
}

#[cfg(test)]
#[path = "counted_call_tests.rs"]
mod tests;
