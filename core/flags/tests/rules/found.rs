// SPDX-License-Identifier: MIT
//! What is found in a program, and what a test expects of it.

use flagfinder_machine::Window;

use super::program::{Program, TID};
use crate::{
    find_in_live_window, find_in_window, Flag, FlagKind, LiveMemory, Report, ThreadName, Verdict,
};

/// What a window of the program alone tells.
pub fn alone(mut program: Program) -> Found {
    let window = program.window();
    let report = find_in_window(&window, &program.names(), thread());
    Found { report }
}

/// What can be told while the program runs: its code and its memory can be asked as well.
pub fn live(mut program: Program) -> Found {
    let window = program.window();
    live_in(&program, &window)
}

fn live_in(program: &Program, window: &Window) -> Found {
    let report = find_in_live_window(window, &program.names(), thread(), program);
    Found { report }
}

pub fn thread() -> ThreadName {
    ThreadName {
        tid: TID,
        name: String::new(),
    }
}

impl LiveMemory for Program {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        for (at, byte) in (address..).zip(buffer.iter_mut()) {
            *byte = self.byte(at);
        }
        buffer.len()
    }

    fn initial(&self, address: u64, _bytes: u32) -> Option<u64> {
        self.in_file.get(&address).copied()
    }

    fn is_own_wakeup(&self, descriptor: i32) -> bool {
        self.own_wakeups.contains(&descriptor)
    }

    fn has_one_writer(&self, _address: u64) -> bool {
        self.is_alone
    }
}

/// A report, to be asked.
pub struct Found {
    pub report: Report,
}

impl Found {
    /// All that was judged, the flags first.
    fn judged(&self) -> impl Iterator<Item = &Flag> {
        self.report.flags.iter().chain(&self.report.considered)
    }

    /// All of it that a failing test should tell.
    fn text(&self) -> String {
        let mut text = format!("{:?}: {}\n", self.report.verdict, self.report.reason);
        for flag in self.judged() {
            let (at, why) = (flag.address.spin.unwrap_or(0), flag.evidence.join("\n    "));
            text += &format!("{at:#x} {} at {}\n    {why}\n", flag.name, flag.confidence);
        }
        text
    }

    fn word(&self, word: u64) -> Option<&Flag> {
        self.judged().find(|flag| flag.address.spin == Some(word))
    }

    /// The word is the flag.
    #[track_caller]
    pub fn polls(self, word: u64) -> Found {
        self.verdict(Verdict::DataFlag).first(word)
    }

    #[track_caller]
    pub fn no_flag(self) -> Found {
        self.verdict(Verdict::NoFlag)
    }

    #[track_caller]
    pub fn verdict(self, verdict: Verdict) -> Found {
        assert_eq!(self.report.verdict, verdict, "{}", self.text());
        self
    }

    /// The word comes before all others.
    #[track_caller]
    pub fn first(self, word: u64) -> Found {
        let first = self.judged().next().and_then(|flag| flag.address.spin);
        assert_eq!(first, Some(word), "{}", self.text());
        self
    }

    /// A system call is what repeats the loop.
    #[track_caller]
    pub fn calls(self, name: &str) -> Found {
        let found = self.verdict(Verdict::SyscallLoop);
        let first = &found.report.flags[0];
        assert_eq!(first.kind, FlagKind::Syscall);
        assert_eq!(first.symbol.as_deref(), Some(name));
        found
    }

    /// It is not even looked at.
    #[track_caller]
    pub fn leaves_out(self, word: u64) -> Found {
        assert!(self.word(word).is_none(), "{}", self.text());
        self
    }

    /// The reason is told of the word.
    #[track_caller]
    pub fn says(self, word: u64, reason: &str) -> Found {
        assert!(self.told(word).contains(reason), "{}", self.text());
        self
    }

    #[track_caller]
    pub fn says_not(self, word: u64, reason: &str) -> Found {
        assert!(!self.told(word).contains(reason), "{}", self.text());
        self
    }

    fn told(&self, word: u64) -> String {
        let flag = self.word(word);
        flag.unwrap_or_else(|| panic!("{word:#x} in {}", self.text()))
            .evidence
            .join("\n")
    }

    /// The reason is told of the system call.
    #[track_caller]
    pub fn says_of_call(self, reason: &str) -> Found {
        assert!(self.told_of_call().contains(reason), "{}", self.text());
        self
    }

    #[track_caller]
    pub fn says_not_of_call(self, reason: &str) -> Found {
        assert!(!self.told_of_call().contains(reason), "{}", self.text());
        self
    }

    fn told_of_call(&self) -> String {
        let call = self.judged().find(|flag| flag.kind == FlagKind::Syscall);
        call.unwrap_or_else(|| panic!("a call in {}", self.text()))
            .evidence
            .join("\n")
    }

    /// Why there is a flag, or none.
    #[track_caller]
    pub fn reason(self, reason: &str) -> Found {
        assert!(self.report.reason.contains(reason), "{}", self.text());
        self
    }

    #[track_caller]
    pub fn reason_not(self, reason: &str) -> Found {
        assert!(!self.report.reason.contains(reason), "{}", self.text());
        self
    }

    /// It is told of beside the flags.
    #[track_caller]
    pub fn considers(self, word: u64) -> Found {
        let mut considered = self.report.considered.iter();
        let found = considered.any(|flag| flag.address.spin == Some(word));
        assert!(found, "{}", self.text());
        self
    }

    #[track_caller]
    pub fn notes(self, note: &str) -> Found {
        assert!(
            self.report.notes.join("\n").contains(note),
            "{}",
            self.text()
        );
        self
    }

    #[track_caller]
    pub fn notes_not(self, note: &str) -> Found {
        assert!(
            !self.report.notes.join("\n").contains(note),
            "{}",
            self.text()
        );
        self
    }

    pub fn confidence(&self, word: u64) -> f64 {
        self.word(word).map_or(0.0, |flag| flag.confidence)
    }
}
