// SPDX-License-Identifier: MIT
//! A word or a call that may be what a thread waits for, with what was found out about it.
//!
//! In: a flag, as the code of a loop alone tells it. Out: the same, with what came of trying it out
//! and of asking who would write it.

use flagfinder_code::{Code, Names};
use flagfinder_flags::{hex, Flag, FlagKind, Standing};
use flagfinder_replica::{Outcome, Word};
use flagfinder_waits::hot_call::Told;
use serde::Serialize;

use crate::tried::Tried;

/// A flag of `flagfinder.spin/1`.
#[derive(Clone, Debug, Serialize)]
pub struct Candidate {
    #[serde(flatten)]
    pub flag: Flag,
    /// Why it is less sure than what copies told of it.
    #[serde(skip)]
    pub doubt: Option<Standing>,
    /// What copies told; `None`: none was asked.
    #[serde(flatten)]
    pub trial: Option<Trial>,
    /// Rank of another flag that would do as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_good: Option<u32>,
    /// Only where the flag is a system call: what it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub descriptors: Option<Vec<Told>>,
    /// The same: how often it is made; inner `None`: the kernel does not count such calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls_per_second: Option<Option<u64>>,
}

/// What copies of threads told of a candidate.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Trial {
    /// What came of trying it out; `None`: it was not tried.
    pub proof: Option<Tried>,
    /// Who would write it.
    pub owed: Vec<Owed>,
    /// Why that is nobody.
    pub owed_by_nobody: Option<String>,
}

/// How it is known who would write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Known {
    /// A copy of the thread did it.
    Proved,
    /// The store is ahead of the thread.
    ByCode,
}

/// A thread that would end the wait.
#[derive(Clone, Debug, Serialize)]
pub struct Owed {
    pub pid: u32,
    pub tid: u32,
    pub name: String,
    pub code: Option<Code>,
    /// What it would write, where that is known.
    #[serde(serialize_with = "hex::serialize")]
    pub value: Option<u64>,
    pub known: Known,
    /// If proved: what has to happen first. If by code: what the thread waits in.
    pub after: Option<String>,
    /// What its copy was answered before.
    #[serde(skip)]
    pub supposed: Vec<String>,
}

impl Candidate {
    /// Of which copies told nothing yet.
    pub fn new(flag: Flag) -> Candidate {
        Candidate {
            flag,
            doubt: None,
            trial: None,
            as_good: None,
            descriptors: None,
            calls_per_second: None,
        }
    }

    pub fn is_word(&self) -> bool {
        self.flag.kind != FlagKind::Syscall
    }

    /// Its run-time address.
    pub fn address(&self) -> Option<u64> {
        self.flag.address.spin
    }

    /// Its bytes, where a copy can be given another value of it.
    pub fn bytes(&self) -> Option<usize> {
        (1..=8)
            .contains(&self.flag.size)
            .then_some(self.flag.size as usize)
    }

    /// The word with the value that its own test asks for.
    pub fn word(&self) -> Option<Word> {
        Some(Word {
            address: self.address()?,
            bytes: self.bytes()?,
            value: self.flag.value.exit?,
        })
    }

    pub fn proof(&self) -> Option<&Tried> {
        self.trial.as_ref()?.proof.as_ref()
    }

    pub fn set_proof(&mut self, proof: Tried) {
        self.trial.get_or_insert_default().proof = Some(proof);
    }

    pub fn outcome(&self) -> Option<Outcome> {
        self.proof().map(|proof| proof.outcome)
    }

    /// Did a copy that was given another value of it leave its loop, or do something else at least?
    pub fn does_something(&self) -> bool {
        self.proof()
            .is_some_and(|proof| proof.instructions.is_some())
    }

    /// The thread did something else by it and came back: it serves.
    pub fn serves(&self) -> bool {
        self.outcome() == Some(Outcome::Returns) && self.does_something()
    }

    /// Did a copy leave its loop by this word alone?
    pub fn ends_alone(&self) -> bool {
        let proof = self.proof();
        proof.is_some_and(|proof| proof.outcome == Outcome::Leaves && proof.with.len() == 1)
    }

    /// Does no copy tell what the word does?
    pub fn is_open(&self) -> bool {
        matches!(self.outcome(), None | Some(Outcome::Unknown))
    }

    pub fn owed(&self) -> &[Owed] {
        self.trial.as_ref().map_or(&[], |trial| &trial.owed)
    }

    /// Nobody was found to write it.
    pub fn owed_by_nobody(&mut self, why: impl Into<String>) {
        let trial = self.trial.get_or_insert_default();
        trial.owed = Vec::new();
        trial.owed_by_nobody = Some(why.into());
    }

    pub fn owed_by(&mut self, owed: Vec<Owed>) {
        let trial = self.trial.get_or_insert_default();
        trial.owed = owed;
        trial.owed_by_nobody = None;
    }

    /// It is no surer than this, whatever copies tell.
    pub fn doubt(&mut self, standing: Standing, score: f64, why: impl Into<String>) {
        self.doubt = self.doubt.max(Some(standing));
        self.flag.confidence = self.flag.confidence.min(score);
        self.note(why);
    }

    /// The most telling evidence comes first.
    pub fn note(&mut self, why: impl Into<String>) {
        self.flag.evidence.insert(0, why.into());
    }

    /// Run-time address of the first instruction that reads it for an exit.
    pub fn reader(&self, names: &Names) -> Option<u64> {
        code_address(names, self.flag.readers.first()?)
    }
}

/// Run-time address of a place in code.
pub(crate) fn code_address(names: &Names, code: &Code) -> Option<u64> {
    let Some(name) = code.module.as_deref() else {
        return Some(code.offset);
    };
    let mut modules = names.input().modules.iter();
    let module = modules.find(|module| module.is_called(name))?;
    Some(module.base.wrapping_add(code.offset))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// What came of a trial: the outcome, and after how many instructions it did something else.
    pub(crate) type Came = Option<(Outcome, Option<u64>)>;
    pub(crate) const LEAVES: Came = Some((Outcome::Leaves, Some(9)));
    /// It does something else and comes back.
    pub(crate) const SERVES: Came = Some((Outcome::Returns, Some(9)));
    pub(crate) const STAYS: Came = Some((Outcome::Returns, None));
    pub(crate) const HALTS: Came = Some((Outcome::Unknown, Some(9)));
    pub(crate) const CRASHES: Came = Some((Outcome::Faults, Some(9)));

    pub(crate) fn tried(came: (Outcome, Option<u64>)) -> Tried {
        Tried {
            outcome: came.0,
            instructions: came.1,
            with: [(0x1000, 0x1)].into(),
            ..Tried::default()
        }
    }

    /// A thread that a copy proved to write.
    pub(crate) fn debtor(tid: u32, known: Known) -> Owed {
        Owed {
            pid: 1,
            tid,
            name: "worker".into(),
            code: None,
            value: None,
            known,
            after: Some("its `read` on fd 0 returns data".into()),
            supposed: Vec::new(),
        }
    }

    /// A word of the heap of this score.
    pub(crate) fn word(name: &str, score: f64, came: Came) -> Candidate {
        let mut flag = Flag::new(FlagKind::Heap, name);
        flag.confidence = score;
        flag.exit_when = "value != 0x0".into();
        let mut candidate = Candidate::new(flag);
        candidate.owed_by(vec![debtor(7, Known::Proved)]);
        if let Some(came) = came {
            candidate.set_proof(tried(came));
        }
        candidate
    }

    /// A call in place of a word.
    pub(crate) fn call(name: &str, score: f64) -> Candidate {
        let mut candidate = word(name, score, None);
        candidate.flag.kind = FlagKind::Syscall;
        candidate
    }

    pub(crate) fn name(candidate: &Candidate) -> &str {
        &candidate.flag.name
    }
}
