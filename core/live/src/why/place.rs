// SPDX-License-Identifier: MIT
//! A descriptor that a call waits on.

use super::obstacle::{Debtor, End, Obstacle};
use super::report::Kind;

/// Holders of the other end that are followed.
pub const MOST_HOLDERS: usize = 8;

/// Where a descriptor leads.
pub struct Place<'t> {
    pub pid: u32,
    pub tid: u32,
    pub fd: i32,
    /// `read on fd 3`
    pub call: &'t str,
    pub target: String,
}

impl Place<'_> {
    pub fn named(&self, what: &str) -> String {
        format!("{} on fd {}, {what}", self.call, self.fd)
    }
    pub fn ends(&self, what: &str, end: End) -> Vec<Obstacle> {
        vec![Obstacle::ends(Kind::Call, self.named(what), end)]
    }
    pub fn owed(&self, what: &str, debtors: Vec<Debtor>) -> Vec<Obstacle> {
        vec![Obstacle::owed(Kind::Call, self.named(what), debtors)]
    }
}
