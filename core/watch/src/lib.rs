// SPDX-License-Identifier: MIT
//! Watching words of a live process: who reads and writes them, from where, which values.
//!
//! In: a pid, what to watch ([`Request`]), who traps the accesses ([`Backend`]). Out: [`Watch`],
//! which hands out [`Event`]s in order of time. With `perf` the target is never stopped and nothing
//! of ours runs in it; when this process dies, the kernel removes the breakpoints. Blind spots:
//! values are racy (another thread may write between the access and the trap); other processes that
//! share the memory are not seen; threads of the target that touch the word through another mapping
//! of it are not either.

mod access;
mod attach;
mod event;
mod expression;
mod follow;
mod hooks;
mod interpret;
mod naming;
mod order;
mod perf;
mod place;
mod protocol;
mod request;
mod seen;
mod session;
mod site;
mod sites;
mod source;
mod target;
mod timeline;
mod until;
mod value;
mod word;

pub use event::Event;
pub use protocol::layouts;
pub use request::Request;
pub use session::Watch;
pub use source::{Backend, Helper};

use flagfinder_bpf::{shared_struct, unavailable, Layout};
pub use flagfinder_bpf::{Failure, Result};

/// What still works if a watch is refused before it begins.
pub(crate) const NOTHING_CHANGED: &str = "Nothing was started or changed.";
