// SPDX-License-Identifier: MIT
//! What lies behind a branch at which two recorded runs part, and who is to end a blocked thread's
//! wait: the values that differ, and who wrote them in the good run.

use flagfinder_code::DataHome;
use flagfinder_diff::{CodePlace, Leaving, ThreadRef, Ways};
use flagfinder_flags::{FindError, Made, Moments, What, Written};
use flagfinder_linux::syscalls::{self, Role};
use flagfinder_linux::{futex, life, traits};

use super::report::{Kind, Known, RootKind};
use super::sender::{self, Owing};

type Found<T> = Result<T, FindError>;

/// What made a thread leave.
pub(super) enum Cause {
    /// A call answered otherwise.
    Call {
        here: String,
        there: Option<String>,
    },
    Word(Word),
    Unknown,
}

/// A word that held another value than in the normal run.
pub(super) struct Word {
    pub name: String,
    pub address: u64,
    pub bytes: u32,
    pub value: Option<u64>,
    pub normal_value: Option<u64>,
    pub normal_address: u64,
    /// Flow position in the normal run at which it was read.
    pub normal_pos: u64,
}

pub(super) fn value(value: Option<u64>) -> String {
    value.map_or_else(|| "something".into(), |value| format!("{value:#x}"))
}

/// The nearest difference between the runs behind the branch.
pub(super) fn find(
    normal: &Moments,
    spin: &Moments,
    theirs: &ThreadRef,
    ours: &ThreadRef,
    leaving: &Leaving,
) -> Found<Cause> {
    let here = spin.tested(ours, leaving.spin_pos)?;
    let Some(pos) = leaving.normal_pos else {
        return Ok(Cause::Unknown);
    };
    let there = normal.tested(theirs, pos)?;
    Ok(differs(&here, &there, pos))
}

/// The first thing that `here` was made from and that differs from `there`.
fn differs(here: &[Made], there: &[Made], normal_pos: u64) -> Cause {
    let like = |made: &Made| {
        let is_like = |other: &&Made| {
            let same_kind = matches!(
                (&made.what, &other.what),
                (What::Word { .. }, What::Word { .. }) | (What::Call { .. }, What::Call { .. })
            );
            other.place == made.place && same_kind
        };
        there.iter().find(is_like)
    };
    let pairs: Vec<(&Made, &Made)> = here.iter().filter_map(|m| Some((m, like(m)?))).collect();
    for (ours, theirs) in &pairs {
        match (&ours.what, &theirs.what) {
            (
                What::Word {
                    name,
                    address,
                    bytes,
                    value,
                },
                What::Word {
                    address: normal_address,
                    value: normal_value,
                    ..
                },
            ) if value != normal_value => {
                return Cause::Word(Word {
                    name: name.clone(),
                    address: *address,
                    bytes: *bytes,
                    value: *value,
                    normal_value: *normal_value,
                    normal_address: *normal_address,
                    normal_pos,
                })
            }
            (
                What::Call { text, result, .. },
                What::Call {
                    text: other,
                    result: before,
                    ..
                },
            ) if result != before => {
                return Cause::Call {
                    here: text.clone(),
                    there: Some(other.clone()),
                }
            }
            _ => {}
        }
    }
    // Calls that return the same number of bytes may bring different bytes.
    let brings = pairs.iter().find_map(|(ours, _)| match &ours.what {
        What::Call { text, number, .. } if syscalls::consumes(*number) => Some(text.clone()),
        _ => None,
    });
    match brings {
        Some(here) => Cause::Call {
            here: format!("{here}, other data than in the normal run"),
            there: None,
        },
        None => Cause::Unknown,
    }
}

/// Why a word held its value.
pub(super) enum Writer {
    /// No thread stored to it in either run.
    Nobody,
    /// The same instruction stored another value.
    Differs {
        by: ThreadRef,
        like: ThreadRef,
        cause: Cause,
    },
    /// A store of the normal run that the spin run lacks.
    Missing(Written),
}

pub(super) fn writer(
    normal: &Moments,
    spin: &Moments,
    ways: &Ways,
    theirs: &ThreadRef,
    ours: &ThreadRef,
    word: &Word,
) -> Found<Writer> {
    let there = normal.writers(theirs, word.normal_address, word.bytes)?;
    let here = spin.writers(ours, word.address, word.bytes)?;
    let is_own = |written: &Written| written.thread.tid == theirs.tid;
    // What the branch read; of its own stores the last before that.
    let gave = |written: &&Written| {
        written.value == word.normal_value && (!is_own(written) || written.pos <= word.normal_pos)
    };
    let mut given: Vec<&Written> = there.iter().filter(gave).collect();
    given.sort_by_key(|written| (is_own(written), std::cmp::Reverse(written.pos)));
    for written in given {
        let like = ways.in_spin(&written.thread);
        let same = here.iter().find(|ours| {
            ours.place == written.place
                && like
                    .as_ref()
                    .is_some_and(|like| like.tid == ours.thread.tid)
        });
        let Some((same, by)) = same.zip(like) else {
            return Ok(Writer::Missing(written.clone()));
        };
        if same.value != written.value {
            let place = &written.place;
            let ours = spin.stored(&by, same.pos, place)?;
            let theirs = normal.stored(&written.thread, written.pos, place)?;
            return Ok(Writer::Differs {
                by,
                like: written.thread.clone(),
                cause: differs(&ours, &theirs, written.pos),
            });
        }
    }
    Ok(Writer::Nobody)
}

/// What a thread is blocked in, and who ended such a wait in the normal run.
pub(super) struct Blocked {
    pub kind: Kind,
    pub name: String,
    pub address: Option<u64>,
    pub debt: Option<Owing>,
    /// The root if no thread is known to owe it.
    pub root: RootKind,
    /// How the call came back in the normal run.
    pub there: Option<String>,
}

pub(super) fn blocked(
    normal: &Moments,
    spin: &Moments,
    ways: &Ways,
    ours: &ThreadRef,
) -> Found<Blocked> {
    let calls = spin.calls(ours)?;
    let theirs = ways.in_normal(ours);
    let Some(call) = calls.last() else {
        return Ok(in_call("a system call".into(), RootKind::Unknown));
    };
    let name = syscalls::name(call.number);
    if futex::is_futex(call.number) {
        return on_word(normal, spin, ways, ours, theirs.as_ref(), call.args[0]);
    }
    let on = syscalls::descriptor(call.number, &call.args);
    let on = on.map_or(String::new(), |fd| format!(" on fd {fd}"));
    let mut found = in_call(format!("{name}{on}"), RootKind::Input);
    if syscalls::role(call.number, &call.args) == Role::Sleep {
        found.kind = Kind::Timer;
        found.root = RootKind::Timer;
        return Ok(found);
    }
    if life::waits_for_child(call.number) {
        found.kind = Kind::Child;
        found.root = RootKind::Unknown;
    }
    let Some(theirs) = theirs else {
        return Ok(found);
    };
    let before = calls.iter().filter(|c| c.number == call.number).count();
    let their_calls = normal.calls(&theirs)?;
    let mut same = their_calls.iter().filter(|c| c.number == call.number);
    let Some(came) = same.nth(before - 1).filter(|c| c.result.is_some()) else {
        return Ok(found);
    };
    found.there = came.result.map(|result| format!("it returned {result}"));
    if traits::receives(call.number) && came.result > Some(0) {
        found.debt = sender::find(normal, spin, ways, &theirs, came)?;
    }
    Ok(found)
}

fn in_call(name: String, root: RootKind) -> Blocked {
    Blocked {
        kind: Kind::Call,
        name,
        address: None,
        debt: None,
        root,
        there: None,
    }
}

/// A wait for a word: a lock, a condition, the end of a thread.
fn on_word(
    normal: &Moments,
    spin: &Moments,
    ways: &Ways,
    ours: &ThreadRef,
    theirs: Option<&ThreadRef>,
    address: u64,
) -> Found<Blocked> {
    let names = spin.names(ours)?;
    let data = names.map(|names| names.data(address));
    let name = data
        .as_ref()
        .map_or_else(|| format!("{address:#x}"), |data| data.name.clone());
    let mut found = in_call(format!("a change of {name}"), RootKind::Unknown);
    found.address = Some(address);
    if let Some(DataHome::ThreadControl { tid, .. }) = data.map(|data| data.home) {
        let joined = ways
            .spin_threads()
            .find(|t| t.pid == ours.pid && t.tid == tid);
        let like = joined.as_ref().and_then(|joined| ways.in_normal(joined));
        if let Some((like, pos)) = like.and_then(|like| Some((like.clone(), ways.end(&like)?))) {
            found.name = format!("the end of thread {tid}");
            found.debt = Some(Owing {
                normal: like,
                pos,
                code: None,
                did: "ended".into(),
                known: Known::Seen,
            });
            return Ok(found);
        }
    }
    let Some(theirs) = theirs else {
        return Ok(found);
    };
    let Some(there) = normal.counterpart(theirs, spin, ours, address)? else {
        return Ok(found);
    };
    let here = spin.writers(ours, address, 4)?;
    let made = |like: &ThreadRef, place: &CodePlace| {
        let same = here
            .iter()
            .filter(|w| w.thread.tid == like.tid && w.place == *place);
        same.map(|w| w.count).sum::<u64>()
    };
    let mut best: Option<(u64, Written)> = None;
    for written in normal.writers(theirs, there, 4)? {
        if written.thread.tid == theirs.tid {
            continue;
        }
        let ours = ways.in_spin(&written.thread);
        let so_far = ours.map_or(0, |like| made(&like, &written.place));
        let missing = written.count.saturating_sub(so_far);
        if missing > 0 && best.as_ref().is_none_or(|(most, _)| missing > *most) {
            best = Some((missing, written));
        }
    }
    found.debt = best.map(|(_, written)| Owing {
        did: format!("wrote {} there", value(written.value)),
        normal: written.thread,
        pos: written.pos,
        code: Some(written.code),
        known: Known::Seen,
    });
    Ok(found)
}
