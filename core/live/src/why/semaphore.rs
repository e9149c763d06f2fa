// SPDX-License-Identifier: MIT
//! Locks of Python's multiprocessing: which process holds one.
//!
//! Such a lock is a semaphore in memory that processes share, which does not say who took it. Each
//! process has an object for it that counts how often the process took it and did not give it back
//! (`Modules/_multiprocessing/semaphore.c` of CPython). That object is found by what it holds: the
//! semaphore's address. Blind spots: a lock that one process takes and another gives back, and
//! processes that may not be looked at.

use std::time::{Duration, Instant};

use flagfinder_code::{AddressSpace, Maps, GLIBC_ID};
use flagfinder_linux::pagemap::Pagemap;
use flagfinder_linux::proc;

use super::obstacle::{Debtor, End, Obstacle, Who};
use super::process::Inside;
use super::report::{Kind, RootKind, WaitsFor};
use crate::memory::Memory;
use crate::sharers::sharers;

/// Of the object, in bytes: its type, the semaphore's address, the thread that took it last (its
/// `pthread_t`), how often it is taken, and how often it can be.
const TYPE: u64 = 8;
const SEMAPHORE: u64 = 16;
const THREAD: u64 = 24;
const COUNT: u64 = 32;
const MOST: u64 = 36;
/// Of a type: its name.
const NAME: u64 = 24;
const TYPE_NAME: &[u8] = b"_multiprocessing.SemLock\0";
/// Time for all processes.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes that are looked at at once.
const PART: u64 = 16 << 20;

/// What one process's object says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Has {
    /// It took the lock, in this thread where that is known.
    Taken(Option<u32>),
    Not,
    /// No object was found.
    Unknown,
}

/// Who owes the lock at `address` for which process `pid` waits; `None`: it is no lock of
/// multiprocessing, or nothing says who holds it.
pub fn obstacle(pid: u32, inside: &Inside, address: u64, waits_for: &WaitsFor) -> Option<Obstacle> {
    let end = Instant::now() + PATIENCE;
    let memory = Memory::open(pid).ok()?;
    let is_taken = || memory.number(address, 4) == Some(0);
    let waiting = is_taken().then(|| of_process(pid, address, end))?;
    if waiting == Has::Unknown {
        return None;
    }
    let rest = sharers(pid, &inside.names, address).into_iter();
    let rest = rest.map(|(other, there)| (other, of_process(other, there, end)));
    let all: Vec<(u32, Has)> = std::iter::once((pid, waiting)).chain(rest).collect();
    let found = told(&all, waits_for)?;
    is_taken().then_some(found)
}

fn told(all: &[(u32, Has)], waits_for: &WaitsFor) -> Option<Obstacle> {
    let waits_for = WaitsFor {
        kind: Kind::Lock,
        ..waits_for.clone()
    };
    let holds = |(pid, has): &(u32, Has)| match has {
        Has::Taken(Some(tid)) => Some(Who::Thread(*pid, *tid)),
        Has::Taken(None) => Some(Who::Process(*pid, None)),
        Has::Not | Has::Unknown => None,
    };
    let reason = "its object of the lock says that it took it";
    let debtors: Vec<Debtor> = all
        .iter()
        .filter_map(holds)
        .map(|who| Debtor::seen(who, reason))
        .collect();
    if !debtors.is_empty() {
        let owed = Obstacle::owed(Kind::Lock, "", debtors);
        return Some(Obstacle { waits_for, ..owed });
    }
    if all.iter().any(|(_, has)| *has == Has::Unknown) {
        return None;
    }
    let others = match all.len() {
        1 => "the only process that is left did not take it".to_owned(),
        count => format!("none of the {count} processes that share it took it"),
    };
    let what = format!(
        "{} is taken, and {others}: the one that did has ended without giving it back",
        waits_for.name
    );
    let ended = Obstacle::ends(Kind::Lock, "", End::fault(RootKind::Ended, what));
    Some(Obstacle { waits_for, ..ended })
}

fn of_process(pid: u32, semaphore: u64, end: Instant) -> Has {
    search(pid, semaphore, end).unwrap_or(Has::Unknown)
}

/// Looks for the process's objects; there may be several of one semaphore.
fn search(pid: u32, semaphore: u64, end: Instant) -> Option<Has> {
    let memory = Memory::open(pid).ok()?;
    let pages = Pagemap::open(pid).ok()?;
    let maps = Maps::parse(&proc::text_of(pid, "maps").ok()?);
    let mut has = Has::Unknown;
    let mut bytes = Vec::new();
    let objects = maps.all().iter();
    let objects = objects.filter(|m| m.readable && m.writable && !m.shared && m.inode == 0);
    // A machine may have reserved far more than it uses.
    let parts = objects.flat_map(|m| {
        let starts = (m.start..m.end).step_by(PART as usize);
        starts.map(|start| (start, m.end.min(start + PART)))
    });
    for (start, behind_part) in parts {
        if Instant::now() > end {
            return None;
        }
        for (start, behind) in pages.there(start, behind_part).ok()? {
            bytes.resize((behind - start) as usize, 0);
            let read = memory.read(start, &mut bytes);
            let words = bytes[..read].chunks_exact(8).zip((start..).step_by(8));
            let same = words.filter(|(word, _)| **word == semaphore.to_le_bytes());
            for (_, at) in same {
                match object(pid, &memory, at - SEMAPHORE) {
                    Some(taken @ Has::Taken(_)) => return Some(taken),
                    Some(other) => has = other,
                    None => {}
                }
            }
        }
    }
    Some(has)
}

/// The object at this address, if there is one of a lock.
fn object(pid: u32, memory: &dyn AddressSpace, at: u64) -> Option<Has> {
    let mut name = [0; TYPE_NAME.len()];
    let kind = memory.word(at + TYPE)?;
    let read = memory.read(memory.word(kind.checked_add(NAME)?)?, &mut name);
    let is_lock = read == name.len() && name == TYPE_NAME && memory.number(at + MOST, 4) == Some(1);
    let count = memory.number(at + COUNT, 4).filter(|_| is_lock)? as i32;
    let thread = || {
        let own = memory.number(memory.word(at + THREAD)?.checked_add(GLIBC_ID as u64)?, 4)?;
        let threads = proc::threads(pid).ok()?;
        threads
            .into_iter()
            .find(|&tid| flagfinder_code::own_id(pid, tid) == own as u32)
    };
    Some(match count > 0 {
        true => Has::Taken(thread()),
        false => Has::Not,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock() -> WaitsFor {
        WaitsFor {
            kind: Kind::Flag,
            name: "semaphore".into(),
            address: None,
            statement: None,
        }
    }

    #[test]
    fn the_process_that_took_the_lock_owes_it() {
        let all = [(1, Has::Not), (2, Has::Taken(Some(7))), (3, Has::Unknown)];
        let found = told(&all, &lock()).expect("one took it");
        assert_eq!(found.waits_for.kind, Kind::Lock);
        assert_eq!(found.debtors[0].who, Who::Thread(2, 7));
    }

    #[test]
    fn a_lock_that_nobody_holds_was_taken_by_one_that_ended() {
        let found = told(&[(1, Has::Not), (2, Has::Not)], &lock()).expect("all were looked at");
        assert!(found.debtors.is_empty());
        assert_eq!(found.otherwise.kind, RootKind::Ended);
        assert!(told(&[(1, Has::Not), (2, Has::Unknown)], &lock()).is_none());
    }

    #[test]
    fn an_object_is_told_by_its_types_name() {
        const AT: u64 = 0x1000;
        let memory = |most: u32, count: i32, name: &'static [u8]| {
            move |address: u64, buffer: &mut [u8]| {
                let mut page = vec![0u8; 0x200];
                page[8..16].copy_from_slice(&(AT + 0x80).to_le_bytes());
                page[32..36].copy_from_slice(&count.to_le_bytes());
                page[36..40].copy_from_slice(&most.to_le_bytes());
                page[0x98..0xa0].copy_from_slice(&(AT + 0x100).to_le_bytes());
                page[0x100..0x100 + name.len()].copy_from_slice(name);
                let start = address.wrapping_sub(AT) as usize;
                let rest = page.get(start..);
                let part = rest.and_then(|rest| rest.get(..buffer.len()));
                part.map_or(0, |part| {
                    buffer.copy_from_slice(part);
                    part.len()
                })
            }
        };
        let found = |most, count, name| {
            object(
                0,
                &flagfinder_code::ByPages::new(memory(most, count, name)),
                AT,
            )
        };
        assert_eq!(found(1, 0, TYPE_NAME), Some(Has::Not));
        assert_eq!(found(1, 1, TYPE_NAME), Some(Has::Taken(None)));
        assert_eq!(found(5, 0, TYPE_NAME), None);
        assert_eq!(found(1, 0, b"_multiprocessing.Connection\0"), None);
    }
}
