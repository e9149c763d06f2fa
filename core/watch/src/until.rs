// SPDX-License-Identifier: MIT
//! When to stop by itself: `write`, `read`, `value==1`, or a number of events.

use std::cmp::Ordering::{self, Equal, Greater, Less};

use crate::event::{Event, EventKind};
use crate::{Failure, Result, NOTHING_CHANGED};

/// A condition on events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    Write,
    Read,
    /// After so many events.
    Count(u64),
    /// The value read or written, unsigned.
    Value(Compare),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compare {
    /// How the value may compare with the number.
    allowed: &'static [Ordering],
    number: u64,
}

impl Until {
    /// # Errors
    /// When it is not understood.
    pub(crate) fn read(text: &str) -> Result<Until> {
        Until::parse(text).ok_or_else(|| {
            Failure::usage(
                "The condition to stop at isn't understood",
                format!("--until {text}"),
                "Write --until write, --until read, --until 'value==1' (or != < <= > >=), or \
                 --until COUNT.",
                NOTHING_CHANGED,
            )
        })
    }

    /// `None`: not understood.
    pub fn parse(text: &str) -> Option<Until> {
        let text: String = text.split_whitespace().collect();
        match &text[..] {
            "write" => return Some(Until::Write),
            "read" => return Some(Until::Read),
            _ => {}
        }
        let Some(condition) = text.strip_prefix("value") else {
            return number(&text).filter(|&n| n > 0).map(Until::Count);
        };
        let operators: [(&str, &'static [Ordering]); 6] = [
            ("==", &[Equal]),
            ("!=", &[Less, Greater]),
            ("<=", &[Less, Equal]),
            (">=", &[Greater, Equal]),
            ("<", &[Less]),
            (">", &[Greater]),
        ];
        operators.iter().find_map(|&(sign, allowed)| {
            let number = number(condition.strip_prefix(sign)?)?;
            Some(Until::Value(Compare { allowed, number }))
        })
    }

    /// Whether `event`, the `count`-th one, fulfils it.
    pub fn is_met(self, event: &Event, count: u64) -> bool {
        match self {
            Until::Write => event.kind == EventKind::Write,
            Until::Read => event.kind == EventKind::Read,
            Until::Count(wanted) => count >= wanted,
            Until::Value(compare) => event.value.is_some_and(|value| compare.holds(value)),
        }
    }
}

impl Compare {
    fn holds(self, value: u64) -> bool {
        self.allowed.contains(&value.cmp(&self.number))
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_understood() {
        assert_eq!(Until::parse("write"), Some(Until::Write));
        assert_eq!(Until::parse("100"), Some(Until::Count(100)));
        let value = Until::parse("value >= 0x10").expect("understood");
        let Until::Value(compare) = value else {
            panic!("{value:?}")
        };
        assert!(compare.holds(16) && compare.holds(17) && !compare.holds(15));
        for wrong in ["", "0", "value", "value=1", "value==x", "writes"] {
            assert_eq!(Until::parse(wrong), None, "{wrong}");
        }
    }
}
