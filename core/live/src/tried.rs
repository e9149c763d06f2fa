// SPDX-License-Identifier: MIT
//! What came of writing a value into a copy, as reports have it.

use std::collections::BTreeMap;

use flagfinder_analysis::runtime::is_error_exit;
use flagfinder_code::{Code, Names};
use flagfinder_replica::{Halt, Left, Outcome, Proof, Word, MOST_TOUCHED_MIB};
use serde::{Serialize, Serializer};

/// What came of writing a value into a copy.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Tried {
    pub outcome: Outcome,
    /// Instructions from the write until the thread had left its loop, or at least did something
    /// else.
    pub instructions: Option<u64>,
    /// Where it was then.
    pub reached: Option<Code>,
    /// What was written: values by addresses.
    #[serde(serialize_with = "hex_pairs")]
    pub with: BTreeMap<u64, u64>,
    /// Why no more is known; empty: all is known.
    pub why: String,
    /// How the thread left its loop.
    #[serde(skip)]
    pub left: Left,
    /// See [`Proof::moves`].
    #[serde(skip)]
    pub moves: Vec<u64>,
}

impl Tried {
    /// Did an error lead the thread out of its loop? Then a check failed.
    pub(crate) fn is_thrown(&self) -> bool {
        self.left == Left::Exception
    }

    pub(crate) fn of(proof: &Proof, words: &[Word], names: &Names) -> Tried {
        Tried {
            outcome: proof.outcome,
            instructions: proof.instructions,
            reached: proof.reached.map(|pc| names.code(pc)),
            with: words.iter().map(|w| (w.address, w.value)).collect(),
            why: match (&proof.halt, proof.outcome) {
                (Some(halt), Outcome::Unknown | Outcome::Faults) => halted(halt),
                (None, Outcome::Unknown) => "the copy did not go far enough to tell".into(),
                _ => String::new(),
            },
            left: match proof.through.iter().any(|&pc| raises(names, pc)) {
                true => Left::Exception,
                false => proof.left,
            },
            moves: proof.moves.clone(),
        }
    }
}

/// Does a function begin there that raises an error, or ends the program for one?
fn raises(names: &Names, pc: u64) -> bool {
    names
        .symbol_at(pc)
        .is_some_and(|symbol| is_error_exit(&symbol))
}

fn hex_pairs<S: Serializer>(pairs: &BTreeMap<u64, u64>, serializer: S) -> Result<S::Ok, S::Error> {
    let hex = |number: &u64| format!("{number:#x}");
    serializer.collect_map(pairs.iter().map(|(one, other)| (hex(one), hex(other))))
}

/// Why a copy did not go on.
pub(crate) fn halted(halt: &Halt) -> String {
    let name = |number: &u32| flagfinder_linux::syscalls::name(*number);
    match halt {
        Halt::Call { number, .. } => {
            format!("it comes to {}, whose answer is not known", name(number))
        }
        Halt::Blocks { number, .. } => format!("it would wait in {}", name(number)),
        Halt::Exits => "it would end".into(),
        Halt::Fault { number, address } => {
            format!("it would get signal {number} (address {address:#x})")
        }
        Halt::Untouched { address } => format!(
            "it needs shared memory at {address:#x} that its process has not touched, and a look \
             would give the process pages"
        ),
        Halt::Short => "it runs code or makes calls of 32-bit programs".into(),
        Halt::TooLarge => format!("the copy touched more than {MOST_TOUCHED_MIB} MiB"),
        Halt::Gone => "the copy's process was ended".into(),
    }
}
