// SPDX-License-Identifier: MIT
//! A blocked thread of Java, as its virtual machine tells of it.
//!
//! The word that it sleeps on is its own, and says nothing. Whom it waits for is read from HotSpot
//! where that notes it. Else any of Java's threads may end the wait, and none of the machine's own.

use super::hotspot::JavaWait;
use super::obstacle::{Debtor, Obstacle, Who};
use super::process::Process;
use super::report::{Kind, WaitsFor};

/// Where HotSpot notes who is to end the wait of this thread.
pub fn owed(process: &Process, tid: u32) -> Option<Obstacle> {
    let inside = process.inside.as_ref()?;
    let (kind, name, owner, reason) = match process.hot_spot()?.wait(&*inside.memory, tid)? {
        JavaWait::Enters { class, owner } => (
            Kind::Lock,
            format!("the monitor of {class}"),
            owner?,
            "the monitor names its owner",
        ),
        JavaWait::Parks { class, owner } => (
            Kind::Lock,
            class,
            owner?,
            "it is parked for this lock, which refers to its owner",
        ),
        JavaWait::Joins(other) => (
            Kind::Call,
            "the end of a Java thread".to_owned(),
            other,
            "it is in Object.wait() on that thread's java.lang.Thread, as in Thread.join()",
        ),
        JavaWait::Notified { .. } => return None,
    };
    let debtor = Debtor::seen(Who::Thread(process.pid, owner), reason);
    Some(Obstacle::owed(kind, name, vec![debtor]))
}

/// Where that is not noted. `None`: it is no thread of Java, or waits inside of the virtual
/// machine.
pub fn by_any(process: &Process, tid: u32) -> Option<Obstacle> {
    let inside = process.inside.as_ref()?;
    let machine = process.hot_spot()?;
    let (kind, name) = match machine.wait(&*inside.memory, tid)? {
        JavaWait::Enters { class, .. } => (Kind::Lock, format!("the monitor of {class}")),
        JavaWait::Parks { class, .. } => (Kind::Flag, class),
        JavaWait::Notified { class } => (Kind::Flag, format!("notify() on {class}")),
        JavaWait::Joins(_) => return None,
    };
    let waits_for = WaitsFor {
        kind,
        name,
        address: None,
    };
    let rest = machine.tids().filter(|other| *other != tid);
    let all = rest.map(|other| Who::Thread(process.pid, other)).collect();
    Some(Obstacle::by_elimination(process.pid, all, waits_for))
}
