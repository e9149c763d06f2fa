// SPDX-License-Identifier: MIT
//! One event, and how it is written: a JSON object on a line.

use std::fmt::Write;
use std::sync::Arc;

use serde_json::to_string;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    Write,
    Read,
    /// The instruction could not be told, so neither can whether it read or wrote.
    Access,
}

impl EventKind {
    pub fn name(self) -> &'static str {
        match self {
            EventKind::Write => "data_flag_write",
            EventKind::Read => "data_flag_read",
            EventKind::Access => "data_flag_access",
        }
    }
}

/// Where a value comes from, surest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueSource {
    /// The instruction and its registers prove it.
    Instruction,
    /// Read from memory just after the access; another thread may have written in between.
    Memory,
    /// The value that the last event before left.
    Before,
    /// What the next access found.
    After,
}

impl ValueSource {
    fn name(self) -> &'static str {
        match self {
            ValueSource::Instruction => "instruction",
            ValueSource::Memory => "memory",
            ValueSource::Before => "before",
            ValueSource::After => "after",
        }
    }
}

/// An access to a watched word, or by a hooked instruction.
#[derive(Clone, Debug)]
pub struct Event {
    pub(crate) kind: EventKind,
    /// CLOCK_MONOTONIC, ns.
    pub(crate) ts: u64,
    pub(crate) tid: u32,
    pub(crate) thread: String,
    /// `None`: the backend does not know.
    pub(crate) cpu: Option<u32>,
    /// Number of the watch or site in the header, from 1.
    pub(crate) watch: usize,
    pub(crate) address: u64,
    pub(crate) value: Option<u64>,
    pub(crate) value_from: Option<ValueSource>,
    /// The word's value before.
    pub(crate) previous: Option<u64>,
    /// How many reads it stands for.
    pub(crate) reads: u64,
    /// The system call in which the kernel made the access.
    pub(crate) syscall: Option<i64>,
    /// Of a site: the object that the instruction's operand is a part of (its base register).
    pub(crate) object: Option<u64>,
    /// JSON of the accessing instruction's `Code`, of its thread's call sites as an array.
    pub(crate) code: Arc<str>,
    pub(crate) stack: Arc<str>,
}

impl Event {
    /// Fills in what the write before this access left, if only this access knows; returns whether
    /// it did. (An exchange has replaced the register whose value it stored.)
    pub fn tell_before(&mut self, before: &mut Event) -> bool {
        let found = match (self.kind, self.value_from) {
            (EventKind::Write, _) => self.previous,
            (EventKind::Read, Some(ValueSource::Instruction)) => self.value,
            _ => None,
        };
        if before.kind != EventKind::Write || before.value.is_some() || found.is_none() {
            return false;
        }
        before.value = found;
        before.value_from = Some(ValueSource::After);
        self.previous = found;
        true
    }

    /// One line without its end. Addresses and values are hex strings, as JSON readers lose
    /// integers past 2**53.
    pub fn to_json(&self) -> String {
        let hex = |number: Option<u64>| number.map_or("null".to_owned(), |n| format!("\"{n:#x}\""));
        let mut line = format!(
            "{{\"event\":\"{}\",\"ts\":{},\"tid\":{},\"thread\":{},\"watch\":{},\"value\":{},\
             \"previous\":{}",
            self.kind.name(),
            self.ts,
            self.tid,
            to_string(&self.thread).unwrap_or_default(),
            self.watch,
            hex(self.value),
            hex(self.previous),
        );
        // Writing to a String never fails.
        if let Some(source) = self.value_from {
            let _ = write!(line, ",\"value_from\":\"{}\"", source.name());
        }
        if self.kind == EventKind::Read {
            let _ = write!(line, ",\"reads\":{}", self.reads);
        }
        if let Some(number) = self.syscall {
            let _ = write!(line, ",\"syscall\":{number}");
        }
        if let Some(object) = self.object {
            let _ = write!(
                line,
                ",\"address\":\"{:#x}\",\"ref\":\"{object:#x}\"",
                self.address
            );
        }
        let _ = write!(
            line,
            ",\"cpu\":{},\"code\":{},\"stack\":{}}}",
            self.cpu.map_or("null".to_owned(), |cpu| cpu.to_string()),
            self.code,
            self.stack
        );
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EventKind, value: Option<u64>, previous: Option<u64>) -> Event {
        Event {
            kind,
            ts: 1,
            tid: 2,
            thread: "a \"thread\"".into(),
            cpu: Some(0),
            watch: 1,
            address: 0,
            value,
            value_from: value.map(|_| ValueSource::Instruction),
            previous,
            reads: 1,
            syscall: None,
            object: None,
            code: "{}".into(),
            stack: "[]".into(),
        }
    }

    #[test]
    fn the_next_access_tells_what_an_exchange_left() {
        let mut exchange = event(EventKind::Write, None, Some(4));
        let mut read = event(EventKind::Read, Some(5), None);
        assert!(read.tell_before(&mut exchange));
        assert_eq!(
            (exchange.value, exchange.value_from),
            (Some(5), Some(ValueSource::After))
        );
        assert_eq!(read.previous, Some(5));
        // What is known stays.
        let mut later = event(EventKind::Write, Some(9), Some(6));
        assert!(!later.tell_before(&mut exchange));
        assert_eq!(exchange.value, Some(5));
    }

    #[test]
    fn lines_are_json() {
        let line = event(EventKind::Write, Some(16), None).to_json();
        let parsed: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(parsed["thread"], "a \"thread\"");
        assert_eq!(
            (&parsed["value"], &parsed["previous"]),
            (&"0x10".into(), &serde_json::Value::Null)
        );
    }
}
