// SPDX-License-Identifier: MIT
//! The one way to open files that a patient, a core or a trace names, and to create files that
//! hold memory of programs.
//!
//! In: paths, descriptors. Out: open files that hold what they held before, or an error in time.
//! Blind spots: a file on a disk that hangs, of a kind that is taken for this machine's, holds the
//! reader as it does every other.

mod ask;
mod file_system;
mod lease;
mod message;
mod named;
mod opener;
mod private;
mod regular;
#[cfg(test)]
mod scratch;

pub use ask::{end_openers, openers};
pub use file_system::Kind;
pub use message::Facts;
pub use named::{
    facts_of, heard_of, kind_of, open_as, open_if_it_may, open_named, open_of_process,
    open_with_facts, path_of_process, read_at, resolve_within, OfCopy, Opened,
};
pub use private::{create_private, discard, write_private};
pub use regular::open_regular;
