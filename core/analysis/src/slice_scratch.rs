// SPDX-License-Identifier: MIT
//! What the slices of one window share: an iteration of an interpreter has hundreds of exits, whose
//! slices go over the same steps.

use rustc_hash::FxHashMap;

/// See the module.
pub(crate) struct Scratch {
    /// By step: the slice that visited it last, and whether that only formed an address.
    visits: Vec<(u32, bool)>,
    slice: u32,
    /// Steps of the present slice.
    visited: usize,
    /// By step: branches and calls that decided about it.
    near: FxHashMap<u32, Vec<u32>>,
}

impl Scratch {
    pub(crate) fn new(steps: u32) -> Scratch {
        Scratch {
            visits: vec![(0, false); steps as usize],
            slice: 0,
            visited: 0,
            near: FxHashMap::default(),
        }
    }

    /// Begins the next slice.
    pub(crate) fn begin(&mut self) {
        self.slice += 1;
        self.visited = 0;
    }

    /// False where the present slice did that already.
    pub(crate) fn visit(&mut self, step: u32, address_only: bool) -> bool {
        let last = &mut self.visits[step as usize];
        let before = (last.0 == self.slice).then_some(last.1);
        let is_new = match before {
            Some(only_address) => only_address && !address_only,
            None => true,
        };
        if is_new {
            *last = (self.slice, address_only);
            self.visited += usize::from(before.is_none());
        }
        is_new
    }

    /// Steps of the present slice.
    pub(crate) fn visited(&self) -> usize {
        self.visited
    }

    /// What decided about a step, looked for once.
    pub(crate) fn near(&mut self, step: u32, look: impl FnOnce() -> Vec<u32>) -> &[u32] {
        self.near.entry(step).or_insert_with(look)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_only_formed_an_address_is_visited_again_for_its_value() {
        let mut scratch = Scratch::new(2);
        scratch.begin();
        assert!(scratch.visit(1, true) && !scratch.visit(1, true));
        assert!(scratch.visit(1, false) && !scratch.visit(1, true));
        assert_eq!(scratch.visited(), 1);
        scratch.begin();
        assert!(scratch.visit(1, false), "another slice");
    }
}
