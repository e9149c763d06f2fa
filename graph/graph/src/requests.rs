// SPDX-License-Identifier: MIT
//! io_uring: from the thread that submitted a request to the thread that its completion woke.
//!
//! In: submissions and completions, by the request's address. Out: which vertex ordered what a
//! thread goes on with. A request is completed by a thread of its process: by the one that
//! submitted it, once that was woken for it, or by another, which then wakes who waits. Blind
//! spots: what is completed without any wait (its submitter finds it there), and who takes a
//! completion out of the ring's memory later.

use rustc_hash::FxHashMap;

use crate::threads::ByCpu;

/// Time between a completion and the wake that it leads to: both come from one function of the
/// kernel.
const JUST_NOW: u64 = 100_000;

/// A vertex that ordered something, and its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub tid: u32,
    pub vertex: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Requests {
    open: FxHashMap<u64, Order>,
    /// Completed by a thread for another: who completed it, and when.
    done: ByCpu<(u32, u64, Order)>,
}

impl Requests {
    pub fn submit(&mut self, request: u64, order: Order) {
        self.open.insert(request, order);
    }

    /// The order, if the thread that completes it gave it; else the order waits for the wake.
    pub fn complete(&mut self, request: u64, by: u32, cpu: u16, ts: u64) -> Option<Order> {
        let order = self.open.remove(&request)?;
        if order.tid == by {
            return Some(order);
        }
        *self.done.of(cpu) = Some((by, ts, order));
        None
    }

    /// The order that a wake by this thread carries out.
    pub fn wakes(&mut self, by: u32, cpu: u16, ts: u64) -> Option<Order> {
        let done = self.done.known(cpu)?.take();
        let (.., order) =
            done.filter(|(completed_by, then, _)| *completed_by == by && ts - then < JUST_NOW)?;
        Some(order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: Order = Order { tid: 1, vertex: 7 };

    fn submitted() -> Requests {
        let mut requests = Requests::default();
        requests.submit(0x1000, ORDER);
        requests
    }

    #[test]
    fn a_thread_that_completes_its_own_request_goes_on_with_it() {
        let mut requests = submitted();
        assert_eq!(requests.complete(0x1000, 1, 0, 5), Some(ORDER));
        assert_eq!(requests.complete(0x1000, 1, 0, 6), None);
        assert_eq!(requests.wakes(1, 0, 7), None);
    }

    #[test]
    fn a_thread_that_completes_anothers_request_wakes_it_at_once() {
        for (by, cpu, ts, found) in [
            (2, 0, 10, Some(ORDER)),
            (3, 0, 10, None),
            (2, 1, 10, None),
            (2, 0, 10 + JUST_NOW, None),
        ] {
            let mut requests = submitted();
            assert_eq!(requests.complete(0x1000, 2, 0, 10), None);
            assert_eq!(requests.wakes(by, cpu, ts), found);
            assert_eq!(requests.wakes(2, 0, 10 + JUST_NOW), None);
        }
    }
}
