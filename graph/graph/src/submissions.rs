// SPDX-License-Identifier: MIT
//! What the builder makes of io_uring's events: see `requests.rs`.

use flagfinder_events::Event;

use crate::build::Builder;
use crate::edge::EdgeKind;
use crate::requests::Order;

impl Builder<'_> {
    /// A thread hands a request to io_uring.
    pub(crate) fn submit(&mut self, event: &Event) {
        let thread = self.thread(event.a);
        let vertex = self.current(thread, event.ts);
        let tid = event.a;
        self.requests.submit(event.words[0], Order { tid, vertex });
    }

    /// A thread finds that a request is done: its own, or one of which it is about to tell another.
    pub(crate) fn complete(&mut self, event: &Event) {
        let order = self
            .requests
            .complete(event.words[0], event.a, event.cpu, event.ts);
        let thread = self.thread(event.a);
        let vertex = self.current(thread, event.ts);
        if let Some(order) = order.filter(|order| order.vertex != vertex) {
            self.later(order.vertex, vertex, EdgeKind::IoUring, event.ts);
        }
    }
}
