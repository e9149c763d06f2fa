// SPDX-License-Identifier: MIT
//! Who sent, in a recording, what a thread received.
//!
//! In: the call of a good run that came back with data. Out: the thread that sent them, if its like
//! of the spin run sent less often. A recording does not tell which descriptors are two ends of one
//! channel; but what came from a descriptor was sent to its other end in the same order. So the
//! descriptor to which as much was sent, message by message, comes before one where only the sums
//! agree, and that before the rest; of equals the one to which something was sent last. Blind
//! spots: senders that were not recorded; channels of which copies are held under two numbers.

use flagfinder_code::Code;
use flagfinder_diff::{ThreadRef, Ways};
use flagfinder_flags::{Call, FindError, Moments};
use flagfinder_linux::{syscalls, traits};
use rustc_hash::FxHashMap;

use super::report::Known;

/// What a thread of the normal run did that is owed now, where, and how that is known.
pub(super) struct Owing {
    pub normal: ThreadRef,
    pub pos: u64,
    pub code: Option<Code>,
    pub did: String,
    pub known: Known,
}

/// How many ns before a message came it may have been sent, at most.
const UNDER_WAY: u64 = 1_000_000_000;

type End = (u32, u64);

/// How well what was sent explains what came; the best comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// At least as many bytes were under way.
    Room,
    /// All that was sent had come by then.
    Sum,
    /// The messages came as they were sent, one by one.
    Each,
}

fn bytes(call: &Call) -> u64 {
    call.result.unwrap_or(0).max(0) as u64
}

/// The messages that came, up to the one in question and in order, against those that were sent
/// before it came; `None`: there were not so many bytes.
fn fit(sent: &[u64], came: &[u64]) -> Option<Fit> {
    let sum: u64 = came.iter().sum();
    let mut so_far = 0;
    let ends = sent.iter().map(|size| {
        so_far += size;
        so_far
    });
    let is_end = ends.filter(|end| *end == sum).count() > 0;
    match (so_far >= sum, sent.starts_with(came), is_end) {
        (false, ..) => None,
        (_, true, _) => Some(Fit::Each),
        (_, _, true) => Some(Fit::Sum),
        _ => Some(Fit::Room),
    }
}

/// The thread that sent what `came` brought to `receiver`, if it can be found.
pub(super) fn find(
    normal: &Moments,
    spin: &Moments,
    ways: &Ways,
    receiver: &ThreadRef,
    came: &Call,
) -> Result<Option<Owing>, FindError> {
    let mut received: Vec<Call> = Vec::new();
    let mut sent: FxHashMap<End, Vec<(ThreadRef, Call)>> = FxHashMap::default();
    // Before that the descriptor was another file.
    let mut closed: FxHashMap<End, u64> = FxHashMap::default();
    for thread in ways.normal_threads() {
        for call in normal.calls(&thread)? {
            let to = (thread.pid, call.args[0]);
            if i64::from(call.number) == libc::SYS_close && call.ts <= came.ts {
                let last = closed.entry(to).or_default();
                *last = call.ts.max(*last);
            }
            if bytes(&call) == 0 {
                continue;
            }
            if to == (receiver.pid, came.args[0]) && traits::receives(call.number) {
                received.push(call);
            } else if traits::sends(call.number) && call.began <= came.ts {
                sent.entry(to).or_default().push((thread.clone(), call));
            }
        }
    }
    let since = |end: &End| closed.get(end).copied().unwrap_or(0);
    let opened = since(&(receiver.pid, came.args[0]));
    received.retain(|call| (opened..=came.ts).contains(&call.ts));
    received.sort_by_key(|call| call.ts);
    let received: Vec<u64> = received.iter().map(bytes).collect();
    let mut best: Option<((Fit, u64), ThreadRef, Call)> = None;
    for (end, calls) in &mut sent {
        calls.retain(|(_, call)| call.began >= since(end));
        calls.sort_by_key(|(_, call)| call.began);
        let sizes: Vec<u64> = calls.iter().map(|(_, call)| bytes(call)).collect();
        let Some(fit) = fit(&sizes, &received) else {
            continue;
        };
        let last = match fit {
            Fit::Each => calls.get(received.len().saturating_sub(1)),
            _ => calls.last(),
        };
        let Some((thread, call)) = last else {
            continue;
        };
        let is_own = (thread.pid, thread.tid) == (receiver.pid, receiver.tid);
        let is_early = came.ts.saturating_sub(call.began) < UNDER_WAY;
        let key = (fit, call.began);
        let is_better = best.as_ref().is_none_or(|(than, ..)| key > *than);
        if !is_own && is_early && is_better && sends_less(normal, spin, ways, thread, call)? {
            best = Some((key, thread.clone(), *call));
        }
    }
    Ok(best.map(|(_, normal, call)| Owing {
        normal,
        pos: call.pos,
        code: None,
        did: format!(
            "called `{}` right before that came back",
            syscalls::name(call.number)
        ),
        known: Known::Assumed,
    }))
}

/// Does the thread's like of the spin run make this call less often?
fn sends_less(
    normal: &Moments,
    spin: &Moments,
    ways: &Ways,
    thread: &ThreadRef,
    call: &Call,
) -> Result<bool, FindError> {
    let count = |calls: &[Call]| {
        let same = |c: &&Call| c.number == call.number && c.args[0] == call.args[0];
        calls.iter().filter(same).count()
    };
    let ours = match ways.in_spin(thread) {
        Some(ours) => count(&spin.calls(&ours)?),
        None => 0,
    };
    Ok(ours < count(&normal.calls(thread)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_keeps_order_and_sizes() {
        assert_eq!(fit(&[7, 3, 9], &[7, 3]), Some(Fit::Each));
        assert_eq!(fit(&[4, 6, 9], &[7, 3]), Some(Fit::Sum), "a stream");
        assert_eq!(fit(&[80, 2], &[7, 3]), Some(Fit::Room), "a log");
        assert_eq!(fit(&[7, 2], &[7, 3]), None, "it came before it was sent");
        assert_eq!(fit(&[], &[1]), None);
        assert!(Fit::Each > Fit::Sum && Fit::Sum > Fit::Room);
    }
}
