// SPDX-License-Identifier: MIT
//! How long the rounds of a loop are, by how often its copy looks at a word.

use std::io::Result;
use std::time::Instant;

use crate::experiment::Word;
use crate::replica::{Event, Replica};
use crate::rounds::{Rounds, LEAST};

/// Looks at a word between which the longest way is taken for a round.
const LOOKS: usize = 6;

impl Rounds {
    /// Those of a loop that looks at the word: the copy goes on for at most so many instructions,
    /// and until `deadline`.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn between_looks(
        replica: &mut Replica,
        word: Word,
        most: u64,
        deadline: Instant,
    ) -> Result<Rounds> {
        let (mut looks, mut last, mut length) = (0, None, 0);
        for made in 0..most {
            if replica.touches(&[word])? {
                looks += 1;
                length = length.max(last.map_or(0, |last| made - last));
                last = Some(made);
            }
            let is_over = made % LEAST == 0 && Instant::now() >= deadline;
            if looks == LOOKS || is_over || matches!(replica.step()?, Event::Halt(_)) {
                break;
            }
        }
        Ok(Rounds { length, most })
    }
}
