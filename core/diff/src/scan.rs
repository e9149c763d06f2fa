// SPDX-License-Identifier: MIT
//! A thread's flow, passed through its shadow stack to what counts it.

use crate::call_stack::{CallStack, Observer};
use crate::cycle::{self, Cyclic};
use crate::input::{Event, Flow, FlowError, Sink};
use crate::progress::Meter;
use crate::space::Program;

/// What a scan is for.
pub trait Counts: Observer {
    /// What happens from this index on counts `times` times.
    fn weigh(&mut self, times: u64, index: u64);
    /// See [`Cyclic::is_settled`].
    fn is_settled(&self, _since: u64) -> bool {
        true
    }
    /// An event that is to come happened at this time (ns).
    fn time(&mut self, _ts: u64) {}
}

pub struct Scan<'a, C> {
    pub stack: CallStack<'a>,
    pub counts: C,
    meter: &'a Meter<'a>,
}

impl<'a, C: Counts> Scan<'a, C> {
    /// Goes through all of a thread's flow.
    ///
    /// # Errors
    /// When the flow cannot be read.
    pub fn of<F: Flow>(
        flow: &F,
        program: &'a Program,
        meter: &'a Meter,
        counts: C,
    ) -> Result<Self, FlowError> {
        let stack = CallStack::new(program);
        let mut scan = Scan {
            stack,
            counts,
            meter,
        };
        flow.walk(&mut scan)?;
        meter.finish(scan.stack.index());
        Ok(scan)
    }
}

impl<'a, C: Counts> Sink for Scan<'a, C> {
    #[inline]
    fn block(&mut self, id: u32) {
        self.stack.block(id, &mut self.counts);
        self.meter.tick(self.stack.index());
    }

    fn cycle(&mut self, round: &[u32], count: u64) {
        cycle::feed(self, round, count);
    }

    fn event(&mut self, event: Event) {
        if let Some(ts) = event.ts() {
            self.counts.time(ts);
        }
        self.stack.event(event, &mut self.counts);
    }
}

impl<'a, C: Counts> Cyclic<'a> for Scan<'a, C> {
    fn stack(&mut self) -> &mut CallStack<'a> {
        &mut self.stack
    }

    fn weigh(&mut self, times: u64) {
        self.counts.weigh(times, self.stack.index());
    }

    fn is_settled(&self, since: u64) -> bool {
        self.counts.is_settled(since)
    }
}
