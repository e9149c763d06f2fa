// SPDX-License-Identifier: MIT
//! What a thread's loads read, in columns.

use std::ops::ControlFlow;

use flagfinder_machine::decoded::Decoded;
use flagfinder_machine::decoded_blocks::DecodedBlocks;
use flagfinder_machine::evaluator::Evaluator;
use flagfinder_machine::replayer::{replay, Visitor};
use flagfinder_machine::value::Machine;
use flagfinder_trace::{BlockId, Flow, Process, Result, Thread};

/// One entry a load in each.
#[derive(Default)]
pub struct Loads {
    pub flow_index: Vec<u64>,
    pub pc: Vec<u64>,
    pub address: Vec<u64>,
    pub address_known: Vec<bool>,
    pub size: Vec<u8>,
    pub value: Vec<u64>,
    /// Index of the block that runs, and of the next.
    current: u64,
    next: u64,
}

impl Loads {
    /// All loads of the thread whose values were recorded.
    pub fn read(process: &Process, thread: &Thread) -> Result<Self> {
        let mut loads = Loads::default();
        let blocks = DecodedBlocks::new(process);
        let (mut passed, mut flow) = (0, thread.flow());
        for span in thread.value_spans() {
            for item in flow.by_ref() {
                match item? {
                    Flow::Block { pos, .. } if pos >= span.start_pos => break,
                    Flow::Block { .. } => passed += 1,
                    _ => {}
                }
            }
            loads.next = passed;
            replay(&blocks, thread, &span, &mut loads)?;
            // The block that ended the search was taken from `flow` but not passed.
            passed += 1;
        }
        Ok(loads)
    }
}

impl Visitor for Loads {
    fn enter(&mut self, _id: BlockId, _pos: u64, _machine: &Machine) -> ControlFlow<()> {
        self.current = self.next;
        self.next += 1;
        ControlFlow::Continue(())
    }

    fn after(&mut self, code: &Decoded, evaluator: &Evaluator) {
        for access in evaluator.accesses().iter().filter(|access| !access.write) {
            let Some(value) = access.value.get(access.bytes.min(8) * 8) else {
                continue;
            };
            self.flow_index.push(self.current);
            self.pc.push(code.pc());
            self.address.push(access.address.unwrap_or(0));
            self.address_known.push(access.address.is_some());
            self.size.push(access.bytes.min(255) as u8);
            self.value.push(value);
        }
    }
}
