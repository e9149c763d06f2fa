// SPDX-License-Identifier: MIT
//! Does a word get the value that ends a loop again and again?
//!
//! A thread that is stepped is so slow that others do not see it come: a worker then spins for
//! work that it would get at once. So the word is looked at once the thread runs on. A thread that
//! asks for it all the time leaves its loop where the word often has the value that ends that.
//! Blind spot: values that end the loop too, beside the one that the report tells.

use std::time::{Duration, Instant};

use flagfinder_code::AddressSpace;
use flagfinder_flags::{Report, Verdict};

use crate::look::Finding;

/// How long the word is looked at, and the time between two looks.
const TIME: Duration = Duration::from_millis(60);
const BETWEEN: Duration = Duration::from_micros(100);
/// The value came so often, and was there at one of so many looks.
const OFTEN: u32 = 3;
const SHARE: u32 = 20;

/// Makes the finding of a thread that uses the processor one of a thread that goes on, if the word
/// that it polls shows that.
pub fn tell(finding: &mut Finding, memory: &dyn AddressSpace) {
    let flag = finding
        .report
        .as_ref()
        .and_then(|report| report.flags.first());
    let word =
        flag.and_then(|flag| Some((flag.address.spin?, flag.value.exit?, flag.size, &flag.name)));
    let Some((address, exit, size @ 1..=8, name)) = word else {
        return;
    };
    let bytes = size as usize;
    let mut seen = Seen::default();
    let begin = Instant::now();
    while begin.elapsed() < TIME {
        seen.add(memory.number(address, bytes) == Some(exit));
        std::thread::sleep(BETWEEN);
    }
    if seen.goes_on() {
        let reason = format!(
            "what it waits for comes again and again: {} had the value {exit:#x} at {} of {} looks",
            name, seen.there, seen.looks
        );
        let mut nothing = Report::nothing(Verdict::NoFlag, reason);
        nothing.facts = finding
            .report
            .take()
            .map(|report| report.facts)
            .unwrap_or_default();
        nothing.facts.gets_on = true;
        finding.report = Some(nothing);
    }
}

#[derive(Default)]
struct Seen {
    looks: u32,
    /// At so many of them the value was there.
    there: u32,
    came: u32,
    was_there: bool,
}

impl Seen {
    fn add(&mut self, is_there: bool) {
        self.came += u32::from(is_there && !self.was_there);
        self.there += u32::from(is_there);
        self.looks += 1;
        self.was_there = is_there;
    }

    fn goes_on(&self) -> bool {
        self.came >= OFTEN && self.there * SHARE >= self.looks
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use flagfinder_flags::{Flag, FlagKind};

    use super::*;

    /// A byte, by the number of the look.
    struct Byte(Cell<u32>, fn(u32) -> u8);

    impl AddressSpace for Byte {
        fn read(&self, _: u64, buffer: &mut [u8]) -> usize {
            self.0.set(self.0.get() + 1);
            buffer.fill(self.1(self.0.get()));
            buffer.len()
        }
    }

    fn told(value: fn(u32) -> u8) -> Report {
        let memory = Byte(Cell::new(0), value);
        let mut flag = Flag::new(FlagKind::Heap, "work");
        (flag.address.spin, flag.value.exit, flag.size) = (Some(0x1000), Some(0), 1);
        let mut report = Report::nothing(Verdict::DataFlag, "");
        report.flags.push(flag);
        let mut finding = Finding::missing("");
        finding.report = Some(report);
        tell(&mut finding, &memory);
        finding.report.expect("a report")
    }

    #[test]
    fn a_worker_that_is_given_work_goes_on() {
        let found = told(|look| (look % 4 != 0).into());
        assert!(found.facts.gets_on && found.flags.is_empty());
    }

    #[test]
    fn a_value_that_never_comes_or_stays_shows_no_progress() {
        let values: [fn(u32) -> u8; 2] = [|_| 9, |look| u8::from(look < 20)];
        for value in values {
            assert!(!told(value).facts.gets_on);
        }
    }
}
