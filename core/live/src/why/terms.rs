// SPDX-License-Identifier: MIT
//! What the parts of one question share.

use flagfinder_replica::CoreFile;

use super::report::Link;
use crate::deadline::Deadline;

/// How a chain is followed.
#[derive(Clone, Copy)]
pub struct Terms<'a> {
    pub deadline: &'a Deadline,
    /// Hears the links that are known by now.
    pub hear: &'a dyn Fn(Vec<Link>),
    /// Of threads that poll on the way, `spin` is asked what they do.
    pub looks: bool,
    /// `None`: the processes live.
    pub core: Option<&'a CoreFile>,
}
