// SPDX-License-Identifier: MIT
//! Which values of a word end the wait.

use std::time::Duration;

use flagfinder_code::Names;
use flagfinder_replica::{Experiment, MadeCall, Outcome, Proof, Word};
use rustc_hash::FxHashMap;

use crate::candidate::Owed;
use crate::owed_look::Target;
use crate::tried::Tried;

/// How long a value that a copy would write may be tried out.
const TRIES: Duration = Duration::from_millis(400);

/// Does a value end the wait?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    Yes,
    No,
    Unknown,
}

impl Ends {
    /// A thread that serves others never leaves its loop: it takes what came, and looks again. So a
    /// value also ends its wait if it makes the thread do something else first, even if the copy
    /// goes no further or crashes behind the loop: only the word was written there, without what
    /// its writer makes ready before.
    pub fn of(proof: &Proof) -> Ends {
        match proof.outcome {
            Outcome::Leaves => Ends::Yes,
            Outcome::Returns if proof.instructions.is_some() => Ends::Yes,
            Outcome::Returns => Ends::No,
            Outcome::Unknown | Outcome::Faults if proof.is_away => Ends::Yes,
            Outcome::Faults | Outcome::Unknown => Ends::Unknown,
        }
    }
}

/// Which values end the wait.
pub(crate) struct Judge<'a, 'p> {
    /// Id of the thread that waits, as the process has it.
    pub waiting: u32,
    pub targets: &'a [Target],
    pub experiment: Option<&'a Experiment<'p>>,
    pub known: FxHashMap<(usize, u64), Option<Proof>>,
    /// Calls that end the wait as well; they count as the word behind the last.
    pub call: Option<&'a dyn Fn(&MadeCall) -> bool>,
    /// A copy came to a point at which it blocks or ends, or used all of its time.
    pub went_on: bool,
    /// A copy was told that something came: what it did then may rest on made-up data.
    pub was_fed: bool,
}

impl Judge<'_, '_> {
    /// Does this value in the word of that number end the wait?
    pub fn ends(&mut self, number: usize, value: u64) -> Ends {
        let target = &self.targets[number];
        if let Some(asleep_on) = target.asleep_on {
            return if value == asleep_on {
                Ends::No
            } else {
                Ends::Yes
            };
        }
        let is_exit = target.exit == Some(value);
        let Some(experiment) = self.experiment else {
            return if is_exit { Ends::Yes } else { Ends::Unknown };
        };
        let word = Word {
            address: target.address,
            bytes: target.bytes,
            value,
        };
        let tried = self.known.entry((number, value));
        let tried = tried.or_insert_with(|| experiment.try_word(word, TRIES).ok());
        match tried {
            Some(proof) if proof.hands_over => Ends::No,
            _ if is_exit => Ends::Yes,
            tried => tried.as_ref().map_or(Ends::Unknown, Ends::of),
        }
    }

    /// What came of the value that a thread was proved to write, where it is not the one that the
    /// loop asks for.
    pub fn tried(&self, number: usize, owed: &Owed, names: &Names) -> Option<Tried> {
        let target = &self.targets[number];
        let value = owed.value?;
        let proof = self.known.get(&(number, value))?.as_ref()?;
        let word = Word {
            address: target.address,
            bytes: target.bytes,
            value,
        };
        Some(Tried::of(proof, &[word], names))
    }
}

#[cfg(test)]
mod tests {
    use flagfinder_replica::Halt;

    use super::*;

    #[test]
    fn a_copy_that_crashes_behind_its_loop_has_left_it() {
        let crashes = |is_away| Proof {
            outcome: Outcome::Faults,
            instructions: Some(5),
            reached: Some(0x1000),
            halt: Some(Halt::Fault {
                number: libc::SIGSEGV,
                address: 0,
            }),
            is_away,
            ..Proof::default()
        };
        assert_eq!(Ends::of(&crashes(true)), Ends::Yes);
        assert_eq!(Ends::of(&crashes(false)), Ends::Unknown);
    }
}
