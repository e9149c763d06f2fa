// SPDX-License-Identifier: MIT
//! What a wake means.

use flagfinder_events::{Call, Context, Event};
use flagfinder_linux::{life, traits};

use crate::edge::EdgeKind;

/// Which kind of edge a wake is, and whether the thread that ran is its cause. The rules are those
/// of docs/graph.md.
pub fn classify(event: &Event, waited: Option<Call>) -> (EdgeKind, bool) {
    let on_descriptor = waited.is_some_and(|call| {
        call.descriptor().is_some() || traits::looks_at_a_set(call.number.into())
    });
    let sends = event.waker_call().is_some_and(Call::sends);
    match event.context() {
        Context::Timer | Context::Timeout => (EdgeKind::Timer, false),
        Context::SoftIrq if on_descriptor && sends => (EdgeKind::Ipc, true),
        Context::SoftIrq | Context::HardIrq | Context::Nmi => (EdgeKind::Interrupt, false),
        Context::Unknown => (EdgeKind::Unknown, true),
        Context::Task
            if event
                .waker_call()
                .is_some_and(|call| life::exits(call.into())) =>
        {
            (EdgeKind::Exit, true)
        }
        Context::Task if waited.is_some_and(|call| life::waits_for_child(call.number.into())) => {
            (EdgeKind::Exit, true)
        }
        Context::Task if on_descriptor => (EdgeKind::Ipc, true),
        Context::Task => (EdgeKind::Wake, true),
    }
}
