// SPDX-License-Identifier: MIT
//! What a goroutine waits for: channels, a lock, a condition, a descriptor.
//!
//! In: a goroutine that waits, and its stack. Out: the objects, by address. While it waits, a
//! `sudog` of the runtime is in the list of each object, and begins with the goroutine's address;
//! it, or the runtime's descriptor of a file, lies on the stack. Source: Go's
//! `runtime/runtime2.go`, `chan.go`, `sema.go`, `netpoll.go`, versions 1.18 to 1.26.

use flagfinder_code::AddressSpace;

use super::runtime::Kept;

/// Bytes of a stack that are read, and of a `runtime.g`.
const MOST_STACK: u64 = 64 << 10;
const GOROUTINE: u64 = 512;
/// Longest list of waiters that is followed.
const MOST_WAITERS: usize = 1024;
/// Where a `sudog` keeps these: the next in its list, the word of a semaphore, its channel.
const NEXT: u64 = 8;
/// Of the element Go 1.26 keeps two copies, and the collector may take away the first.
const ELEMENT: [u64; 2] = [24, 32];
const CHANNEL: [u64; 9] = [56, 64, 72, 80, 88, 96, 104, 112, 120];
/// Where a channel may keep its lists: of receivers, then of senders.
const RECEIVERS: [u64; 2] = [56, 64];
const SENDERS: [u64; 2] = [72, 80];
/// From Go 1.23 on, where its receivers stand behind it: the timer that sends to it.
const TIMER: (u64, u64) = (32, 64);
/// Where a condition keeps its list.
const WAITERS: u64 = 16;
/// Where a descriptor of a file has its number, and the goroutines that wait for it.
const NUMBER: u64 = 8;
const POLLED: [u64; 3] = [24, 32, 40];
const MOST_FILES: u64 = 1 << 20;

/// One thing that a goroutine waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Awaited {
    /// A value from a channel.
    Value(u64),
    /// Room in a channel.
    Room(u64),
    /// A semaphore: of a mutex, a group of goroutines that are to end.
    Semaphore(u64),
    Condition(u64),
    /// A descriptor of the process.
    File(i32),
    /// A channel to which a timer sends.
    Time,
}

/// What the names of functions end with that end a wait. Where Go inlines one, what is left of it
/// is called.
const UNLOCK: [&str; 4] = [").Unlock", ").RUnlock", ").unlockSlow", ").rUnlockSlow"];
const DONE: [&str; 4] = [
    "WaitGroup).Done",
    "WaitGroup).Add",
    ".semrelease1",
    "Semrelease",
];
const SIGNAL: [&str; 4] = [
    "Cond).Signal",
    "Cond).Broadcast",
    "_notifyListNotifyOne",
    "_notifyListNotifyAll",
];
const SEND: [&str; 5] = [
    "runtime.chansend",
    "runtime.chansend1",
    "runtime.selectnbsend",
    "runtime.selectgo",
    "runtime.closechan",
];
const RECEIVE: [&str; 5] = [
    "runtime.chanrecv",
    "runtime.chanrecv1",
    "runtime.chanrecv2",
    "runtime.selectnbrecv",
    "runtime.selectgo",
];

impl Awaited {
    /// See [`SEND`]. `is_lock`: the semaphore is that of a lock.
    pub fn ended_by(self, is_lock: bool) -> &'static [&'static str] {
        match self {
            Awaited::Value(_) => &SEND,
            Awaited::Room(_) => &RECEIVE,
            Awaited::Semaphore(_) if is_lock => &UNLOCK,
            Awaited::Semaphore(_) => &DONE,
            Awaited::Condition(_) => &SIGNAL,
            Awaited::File(_) | Awaited::Time => &[],
        }
    }

    /// Where the object lies.
    pub fn address(self) -> Option<u64> {
        match self {
            Awaited::Value(at)
            | Awaited::Room(at)
            | Awaited::Semaphore(at)
            | Awaited::Condition(at) => Some(at),
            Awaited::File(_) | Awaited::Time => None,
        }
    }
}

/// The words of its stack, the innermost first. `room`: bytes of stacks that may still be kept.
pub fn stack(memory: &dyn AddressSpace, one: &Kept, room: &mut u64) -> Vec<u64> {
    let size = one.stack.end.saturating_sub(one.stack.start);
    let size = size.min(MOST_STACK).min(*room);
    *room -= size;
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
    let got = memory.read(one.stack.start, &mut bytes);
    let word = |eight: &[u8]| eight.try_into().map_or(0, u64::from_le_bytes);
    bytes[..got].chunks_exact(8).map(word).collect()
}

/// All that it waits for; any of them lets it go on.
pub fn awaited(memory: &dyn AddressSpace, one: &Kept, stack: &[u64]) -> Vec<Awaited> {
    let holds = |at: u64, offset: u64| {
        at.checked_add(offset).and_then(|at| memory.word(at)) == Some(one.address)
    };
    let is_outside = |at: &u64| !(one.address..one.address + GOROUTINE).contains(at);
    let pointers = || {
        stack
            .iter()
            .copied()
            .filter(|at| *at > GOROUTINE && at % 8 == 0)
    };
    if one.reason.starts_with("IO wait") {
        let number = |at: u64| {
            let number = memory.word(at.checked_add(NUMBER)?)?;
            let waits = POLLED.iter().any(|offset| holds(at, *offset));
            (waits && number < MOST_FILES).then_some(number as i32)
        };
        return pointers()
            .find_map(number)
            .map(Awaited::File)
            .into_iter()
            .collect();
    }
    let own = (0..GOROUTINE)
        .step_by(8)
        .filter_map(|offset| memory.word(one.address + offset));
    let mut entries: Vec<u64> = own
        .chain(pointers())
        .filter(is_outside)
        .filter(|at| holds(*at, 0))
        .collect();
    entries.sort_unstable();
    entries.dedup();
    // A `select` has one entry for each channel, of which each refers to the next.
    let mut at = 0;
    while let Some(entry) = entries.get(at).copied().filter(|_| at < MOST_WAITERS) {
        let near = CHANNEL
            .iter()
            .filter_map(|offset| memory.word(entry.checked_add(*offset)?));
        let more: Vec<u64> = near
            .filter(|one| is_outside(one) && holds(*one, 0))
            .collect();
        entries.extend(
            more.into_iter()
                .filter(|one| !entries[..].contains(one))
                .collect::<Vec<_>>(),
        );
        at += 1;
    }
    let mut found: Vec<Awaited> = Vec::new();
    for entry in entries {
        let of_channel = CHANNEL
            .iter()
            .filter_map(|offset| memory.word(entry.checked_add(*offset)?));
        if let Some(channel) = of_channel
            .filter_map(|at| channel(memory, at, entry))
            .next()
        {
            found.push(channel);
        } else if one.reason == "sync.Cond.Wait" {
            // Where its own lock lies is on the stack as well, behind its beginning.
            let elsewhere = pointers().filter(|at| !one.stack.contains(at) && is_outside(at));
            let list = elsewhere
                .filter(|at| is_in(memory, at.wrapping_add(WAITERS), entry))
                .min();
            found.extend(list.map(Awaited::Condition));
        } else if one.reason.starts_with("sync.") || one.reason.starts_with("sema") {
            let mut words = ELEMENT
                .iter()
                .filter_map(|at| memory.word(entry.wrapping_add(*at)));
            let word = words.find(|at| *at > GOROUTINE && at % 4 == 0);
            found.extend(word.map(Awaited::Semaphore));
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Is the entry in a list of this channel?
fn channel(memory: &dyn AddressSpace, at: u64, entry: u64) -> Option<Awaited> {
    let is_listed = |offset: &u64| is_in(memory, at.wrapping_add(*offset), entry);
    if at <= GOROUTINE || at % 8 != 0 {
        return None;
    }
    if let Some(offset) = RECEIVERS.iter().find(|offset| is_listed(offset)) {
        let is_timers =
            *offset == TIMER.1 && memory.word(at + TIMER.0).is_some_and(|timer| timer != 0);
        return Some(if is_timers {
            Awaited::Time
        } else {
            Awaited::Value(at)
        });
    }
    SENDERS.iter().any(is_listed).then_some(Awaited::Room(at))
}

/// Does the list whose first entry stands at `head` hold the entry?
fn is_in(memory: &dyn AddressSpace, head: u64, entry: u64) -> bool {
    let mut at = memory.word(head);
    for _ in 0..MOST_WAITERS {
        match at {
            Some(one) if one == entry => return true,
            Some(one) if one > GOROUTINE => at = memory.word(one.wrapping_add(NEXT)),
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::runtime::State;
    use super::super::tests::Words;
    use super::*;

    const GOROUTINE_AT: u64 = 0x4000;
    const ENTRY: u64 = 0x5000;
    const OBJECT: u64 = 0x6000;

    /// A goroutine whose stack holds its entry, and these words beside that.
    fn found(reason: &str, stack: &[u64], words: &[(u64, u64)]) -> Vec<Awaited> {
        let one = Kept {
            address: GOROUTINE_AT,
            id: 7,
            state: State::Waits,
            reason: reason.into(),
            pc: 0,
            begin: 0,
            state_at: 0,
            frame: 0,
            stack: 0x8000..0x8100,
            thread: None,
        };
        let own = (0..GOROUTINE / 8).map(|at| (GOROUTINE_AT + at * 8, 0));
        let entry = (0..16).map(|at| (ENTRY + at * 8, 0));
        let object = (0..16).map(|at| (OBJECT + at * 8, 0));
        let memory = own
            .chain(entry)
            .chain(object)
            .chain([(ENTRY, GOROUTINE_AT)]);
        let memory = Words::from_iter(memory.chain(words.iter().copied()));
        awaited(&memory, &one, stack)
    }

    #[test]
    fn a_channel_is_told_by_the_list_that_has_the_entry() {
        for (list, expected) in [
            (56, Awaited::Value(OBJECT)),
            (64, Awaited::Value(OBJECT)),
            (72, Awaited::Room(OBJECT)),
            (80, Awaited::Room(OBJECT)),
        ] {
            let words = [(ENTRY + 80, OBJECT), (OBJECT + list, ENTRY)];
            assert_eq!(found("select", &[ENTRY], &words), [expected], "{list}");
        }
        let elsewhere = [(ENTRY + 80, OBJECT), (OBJECT + 88, ENTRY)];
        assert_eq!(found("select", &[ENTRY], &elsewhere), []);
    }

    #[test]
    fn each_channel_of_a_select_is_told() {
        let (entry, object) = (0x5100, 0x6100);
        let more = (0..16).flat_map(|at| [(entry + at * 8, 0), (object + at * 8, 0)]);
        let words = [
            (ENTRY + 64, entry),
            (ENTRY + 80, OBJECT),
            (OBJECT + 56, ENTRY),
            (entry, GOROUTINE_AT),
            (entry + 80, object),
            (object + 72, entry),
        ];
        let words: Vec<(u64, u64)> = more.chain(words).collect();
        let expected = [Awaited::Value(OBJECT), Awaited::Room(object)];
        assert_eq!(found("select", &[ENTRY], &words), expected);
    }

    #[test]
    fn a_channel_of_a_timer_is_owed_by_no_goroutine() {
        let words = [
            (ENTRY + 80, OBJECT),
            (OBJECT + 64, ENTRY),
            (OBJECT + 32, 0x7000),
        ];
        assert_eq!(found("select", &[ENTRY], &words), [Awaited::Time]);
    }

    #[test]
    fn a_lock_is_told_by_its_semaphore_in_either_version() {
        for element in ELEMENT {
            let words = [(ENTRY + element, OBJECT + 4)];
            let expected = [Awaited::Semaphore(OBJECT + 4)];
            assert_eq!(found("sync.Mutex.Lock", &[ENTRY], &words), expected);
            assert_eq!(found("sleep", &[ENTRY], &words), [], "no lock");
        }
    }

    #[test]
    fn a_condition_begins_in_front_of_its_list() {
        let words = [(OBJECT + WAITERS, ENTRY), (OBJECT + WAITERS + 8, ENTRY)];
        let stack = [OBJECT + 8, ENTRY, OBJECT];
        assert_eq!(
            found("sync.Cond.Wait", &stack, &words),
            [Awaited::Condition(OBJECT)]
        );
    }

    #[test]
    fn a_descriptor_is_the_one_that_names_the_goroutine() {
        let other = 0x6100;
        let words = [
            (OBJECT + NUMBER, 9),
            (OBJECT + 32, GOROUTINE_AT),
            (other + NUMBER, 5),
            (other + 32, 0x4400),
        ];
        assert_eq!(
            found("IO wait", &[other, OBJECT], &words),
            [Awaited::File(9)]
        );
    }
}
