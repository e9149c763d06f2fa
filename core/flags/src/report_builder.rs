// SPDX-License-Identifier: MIT
//! The material of a report on one thread's window.

use flagfinder_analysis::Analysis;
use flagfinder_code::Code;
use flagfinder_machine::Window;

use crate::access_path::Explorer;
use crate::evidence::Outside;
use crate::naming::Naming;

/// What a report is built from. Its methods stand where their subject does: `word_flag.rs` makes a
/// flag of a word, `deciding_call.rs` one of a system call, and `finder.rs` puts the report
/// together.
pub(crate) struct Builder<'a> {
    pub window: &'a Window,
    pub analysis: &'a Analysis,
    pub naming: &'a Naming<'a>,
    pub outside: &'a Outside,
    pub explorer: Explorer<'a>,
    /// A call made in so many iterations counts as one that keeps the loop going.
    pub rounds: usize,
    /// What was found on the way, for `--explain`.
    pub explain: Vec<String>,
}

impl Builder<'_> {
    /// What stands at the address, in the spin run.
    pub fn code(&self, pc: u64) -> Code {
        self.naming.spin.code(pc)
    }
}
