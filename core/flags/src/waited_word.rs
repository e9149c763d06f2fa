// SPDX-License-Identifier: MIT
//! The word at which the thread sleeps in each round, with a time limit that runs out: a lock that
//! is asked for with one (`pthread_mutex_timedlock`, `pthread_rwlock_timedrdlock`).
//!
//! The code says little about such a word: the C library tests it, and the waiter itself writes
//! into it that it waits. But the kernel is told its address. A word that is zero then is a
//! condition's, which counts what was signalled; what the program asks is tested beside it. Blind
//! spot: a condition whose word is not zero (Rust's), where what the program asks is not found.

use flagfinder_code::{DataHome, DataKind};
use flagfinder_linux::futex;
use flagfinder_linux::traits::timed_out;
use flagfinder_machine::Syscall;

use crate::rank::Ranked;
use crate::report::{Addresses, Flag, Values};
use crate::report_builder::Builder;
use crate::word_flag::futex_flag;

/// Least score of such a word; it may be that of a pause.
const WAITED: f64 = 0.5;

impl Builder<'_> {
    /// The word, as a flag, if the thread waits at the same one in each round.
    pub(crate) fn waited_word(&self, ranked: &[Ranked]) -> Option<Flag> {
        let spin = &self.analysis.spin;
        let calls = self.window.syscalls.iter();
        let waits: Vec<_> = calls
            .filter(|call| call.step >= spin.first_step())
            .filter(|call| {
                futex::is_futex(call.number) && futex::waits_for_word(futex::command(&call.args))
            })
            .collect();
        let first = waits.first()?;
        let (word, expected) = (first.args[0], futex::expected(&first.args));
        let in_vain = |call: &Syscall| call.result.is_some_and(|r| timed_out(call.number, r));
        let is_alike = waits
            .iter()
            .all(|call| call.args[0] == word && in_vain(call));
        // The window may begin or end between two calls.
        let in_each = waits.len() + 1 >= spin.starts.len() - 1;
        let data = self.naming.spin.data(word);
        let own = matches!(
            data.home,
            DataHome::Tls { .. } | DataHome::ThreadControl { .. } | DataHome::Frame { .. }
        );
        if !is_alike || !in_each || expected == 0 || own || data.kind == DataKind::Stack {
            return None;
        }
        let is_it = |ranked: &&Ranked| self.analysis.candidates[ranked.candidate].address == word;
        let mut flag = match ranked.iter().find(is_it) {
            Some(ranked) => self.flag(ranked),
            None => {
                let address = Addresses {
                    normal: None,
                    spin: Some(word),
                };
                let value = Values {
                    spin: Some(expected),
                    exit: Some(0),
                    ..Values::default()
                };
                let readers = vec![self.code(self.window.pc(first.step))];
                let flag = futex_flag(data, address, value, "value == 0x0".into());
                Flag { readers, ..flag }
            }
        };
        flag.confidence = flag.confidence.max(WAITED);
        flag.evidence
            .push("the thread sleeps at it in every iteration, and the time limit runs out".into());
        Some(flag)
    }
}
