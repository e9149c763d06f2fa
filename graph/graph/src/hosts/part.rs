// SPDX-License-Identifier: MIT
//! One host's part of the whole, and what the hosts sent each other.

use std::collections::BTreeMap;

use flagfinder_events::{Exchange, FlowFact};

use super::pairs::Message;
use crate::edge::NOBODY;
use crate::graph::Graph;

pub(super) const STILL_WORKS: &str = "Each recording alone is unaffected.";

/// One host's part.
pub(super) struct Part {
    pub graph: Graph,
    pub exchanges: Vec<Exchange>,
    pub flows: Vec<FlowFact>,
    pub name: String,
    pub boot_id: String,
    pub pids: Vec<u32>,
    pub command: Vec<String>,
}

/// What one host sent to another, by their places in the list of parts.
pub(super) type Sent = BTreeMap<(usize, usize), Vec<Message>>;

/// Numbers that a part's vertices, threads, stacks and details have in the whole.
pub(super) struct Numbers {
    pub vertices: Vec<u32>,
    pub threads: u32,
    pub stacks: u32,
    pub details: u32,
}

impl Numbers {
    pub fn vertex(&self, own: u32) -> u32 {
        match own {
            NOBODY => NOBODY,
            own => self.vertices[own as usize],
        }
    }

    pub fn stack(&self, own: u32) -> u32 {
        match own {
            0 => 0,
            own => own + self.stacks,
        }
    }
}
