// SPDX-License-Identifier: MIT
//! A goroutine with its open calls, what lies on its stack, and what it waits for, in words.

use flagfinder_code::{is_of_go, AddressSpace, Code, Names, Spot, Whose};

use super::awaited::{self, Awaited};
use super::runtime::{self, Kept, State};
use crate::why::report::{Kind, WaitsFor};

const FRAMES: usize = 48;
/// What the runtime calls a wait for a descriptor, and what is told.
const IO_WAIT: &str = "IO wait";
pub const IO: &str = "I/O";
/// Bytes at the beginning of a frame that may hold what was passed to the call within it.
const PASSED: u64 = 64;
/// The end of a reason that nobody can end, by mistake: `select {}` is meant to be for ever. Then
/// the reasons of locks.
const NEVER: &str = "(nil chan)";
const LOCKS: [&str; 2] = ["sync.Mutex.", "sync.RWMutex."];
/// The reason of a wait for a lock until Go 1.20, and what it is later, by the innermost function.
const SEMAPHORE: &str = "semacquire";
const BY_CALL: [(&str, &str); 3] = [
    ("sync.(*Mutex).", "sync.Mutex.Lock"),
    ("sync.(*RWMutex).RLock", "sync.RWMutex.RLock"),
    ("sync.(*RWMutex).Lock", "sync.RWMutex.Lock"),
];

/// A goroutine, and what it has open.
pub struct Goroutine {
    pub kept: Kept,
    /// Where its open calls go on, innermost first.
    pub frames: Vec<u64>,
    /// Where the frame of each ends on the stack.
    pub bounds: Vec<u64>,
    pub calls: Vec<(Whose, Spot)>,
    /// The innermost place of the author's.
    pub at: Option<Spot>,
    /// The program's function that waits, and its line; `None`: all is the runtime's.
    pub place: Option<String>,
    /// Where deferred functions begin that it is to call, and what they refer to.
    pub deferred: Vec<u64>,
    pub closures: Vec<u64>,
    pub stack: Vec<u64>,
    pub waits: Vec<Awaited>,
}

impl Goroutine {
    /// `room`: bytes of stacks that may still be kept.
    pub fn read(
        memory: &dyn AddressSpace,
        names: &Names,
        mut kept: Kept,
        room: &mut u64,
    ) -> Goroutine {
        let (frames, bounds): (Vec<u64>, Vec<u64>) =
            frames(memory, kept.pc, kept.frame).into_iter().unzip();
        let code = |pc: &u64| {
            let code = names.caller(*pc);
            let source = names.source_of_caller(*pc).or(code.source);
            Code { source, ..code }
        };
        let codes: Vec<Code> = frames.iter().map(code).collect();
        let calls: Vec<(Whose, Spot)> = frames.iter().flat_map(|pc| names.spots(*pc)).collect();
        if let Some(reason) = reason_by_call(&kept.reason, &calls) {
            kept.reason = reason.into();
        }
        let each = calls.iter().map(|(whose, spot)| (*whose, spot));
        let stack = awaited::stack(memory, &kept, room);
        let deferred = runtime::deferred(memory, &kept);
        Goroutine {
            at: Spot::first_own(each),
            place: place(&codes),
            waits: match kept.state {
                State::Waits => awaited::awaited(memory, &kept, &stack),
                _ => Vec::new(),
            },
            deferred: deferred.iter().map(|one| one.begins).collect(),
            closures: deferred.iter().map(|one| one.closure).collect(),
            kept,
            frames,
            bounds,
            calls,
            stack,
        }
    }

    pub fn called(&self) -> String {
        format!("goroutine {}", self.kept.id)
    }

    pub fn told(&self) -> String {
        let place = self.place.as_deref().unwrap_or("the runtime");
        format!("{} ({}, {place})", self.kept.reason, self.called())
    }

    /// What it waits in: none of the runtime's own.
    pub fn is_blocked(&self) -> bool {
        self.kept.state == State::Waits && self.place.is_some()
    }

    /// May it end another one's wait? The runtime's own do not.
    pub fn may_owe(&self) -> bool {
        self.kept.state != State::Over && (self.place.is_some() || self.kept.state == State::Runs)
    }

    pub fn waits_elsewhere(&self) -> bool {
        let is_file = |awaited: &Awaited| matches!(awaited, Awaited::File(_));
        let is_object = |awaited: &Awaited| awaited.address().is_some();
        self.waits.iter().any(is_file) || !self.is_for_ever() && !self.waits.iter().any(is_object)
    }

    pub fn is_for_ever(&self) -> bool {
        self.kept.reason.ends_with(NEVER)
    }

    /// Which open calls a word on the stack belongs to: that of its frame. The first words of a
    /// frame may hold what was passed to the call within, so that one has them as well.
    pub fn calls_with(&self, at: usize) -> std::ops::Range<usize> {
        let address = self.kept.stack.start + at as u64 * 8;
        let call = self.bounds.partition_point(|end| *end <= address);
        let begin = call
            .checked_sub(1)
            .and_then(|within| self.bounds.get(within));
        let is_passed = begin.is_some_and(|begin| address < begin + PASSED);
        call - usize::from(is_passed)..call + 1
    }

    /// Are all that owe to do so, rather than any? As in a group of goroutines, or of readers.
    pub fn needs_all(&self) -> bool {
        self.waits
            .iter()
            .all(|awaited| matches!(awaited, Awaited::Semaphore(_)))
    }

    pub fn wants_lock(&self) -> bool {
        LOCKS.iter().any(|lock| self.kept.reason.starts_with(lock))
    }

    /// Has it a lock once it goes on, which it has not now?
    pub fn takes_lock(&self) -> bool {
        self.wants_lock() || self.kept.reason == "sync.Cond.Wait"
    }

    /// What it waits for, the word for that, and what others do to end the wait.
    pub fn waits_for(&self) -> (WaitsFor, &'static str, &'static str) {
        let object = self
            .waits
            .iter()
            .find_map(|awaited| Some((*awaited, awaited.address()?)));
        let (kind, word, ends) = match object.map(|(awaited, _)| awaited) {
            Some(Awaited::Semaphore(_)) if self.wants_lock() => (Kind::Lock, "lock", "unlocks it"),
            Some(Awaited::Semaphore(_)) => (Kind::Flag, "group or semaphore", "is counted there"),
            Some(Awaited::Condition(_)) => (Kind::Flag, "condition", "signals it"),
            Some(Awaited::Room(_)) => (Kind::Flag, "channel", "receives from it"),
            _ => (Kind::Flag, "channel", "sends to it or closes it"),
        };
        let waits_for = WaitsFor {
            kind,
            name: self.kept.reason.replace(IO_WAIT, IO),
            address: object.map(|(_, address)| format!("{address:#x}")),
            statement: None,
        };
        (waits_for, word, ends)
    }
}

/// What newer versions of Go would call the reason.
fn reason_by_call(reason: &str, calls: &[(Whose, Spot)]) -> Option<&'static str> {
    let by_call = |(_, spot): &(Whose, Spot)| {
        let function = spot.function.as_deref().unwrap_or_default();
        let mut known = BY_CALL.iter();
        known
            .find(|(begins, _)| function.starts_with(begins))
            .map(|(_, reason)| *reason)
    };
    let is_asked = reason == SEMAPHORE;
    is_asked.then(|| calls.iter().find_map(by_call)).flatten()
}

/// Where each open call goes on, innermost first, and where its frame ends on the stack. Go keeps
/// frame pointers on x86-64. Callers' frames lie higher.
pub fn frames(memory: &dyn AddressSpace, pc: u64, mut frame: u64) -> Vec<(u64, u64)> {
    let mut found = vec![(pc, frame.saturating_add(16))];
    while found.len() < FRAMES {
        let next = memory.word(frame).filter(|next| *next > frame);
        let (Some(next), Some(pc)) = (next, memory.word(frame.wrapping_add(8))) else {
            break;
        };
        found.push((pc, next.saturating_add(16)));
        frame = next;
    }
    found
}

/// The innermost function of the program, or else of the library. `None`: all is the runtime's.
fn place(codes: &[Code]) -> Option<String> {
    let function = |code: &Code| {
        let symbol = code.symbol.as_deref()?;
        let name = symbol.rsplit_once('+').map_or(symbol, |(name, _)| name);
        Some((name.to_owned(), code.source.clone()))
    };
    let named: Vec<_> = codes.iter().filter_map(function).collect();
    let own = named.iter().find(|(name, _)| !is_of_go(name));
    let other = || named.iter().find(|(name, _)| !name.starts_with("runtime."));
    let (name, source) = own.or_else(other)?;
    Some(match source {
        Some(source) => format!("{name} at {source}"),
        None => name.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{goroutine, Words};
    use super::*;

    #[test]
    fn a_word_belongs_to_its_frame_and_near_its_beginning_to_the_call_within() {
        let one = goroutine(1, "select", "main.main");
        assert_eq!(one.calls_with(0), 0..1);
        assert_eq!(one.calls_with(2), 0..2, "what may have been passed");
        assert_eq!(one.calls_with(12), 1..2);
        assert_eq!(one.calls_with(17), 1..3);
    }

    #[test]
    fn a_wait_that_nobody_can_end_is_no_wait_for_something_else() {
        assert!(goroutine(1, "sleep", "main.main").waits_elsewhere());
        assert!(!goroutine(1, "chan send (nil chan)", "main.main").waits_elsewhere());
        assert!(goroutine(1, "select (no cases)", "main.main").waits_elsewhere());
    }

    #[test]
    fn frames_end_where_callers_would_lie_lower() {
        let words = [0x1010, 0xa, 0x1020, 0xb, 0x1000, 0xc];
        let stack = Words::from_iter((0x1000..).step_by(8).zip(words));
        let found = frames(&stack, 0x9, 0x1000);
        assert_eq!(found, [(0x9, 0x1010), (0xa, 0x1020), (0xb, 0x1030)]);
    }
}
