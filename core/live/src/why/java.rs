// SPDX-License-Identifier: MIT
//! A blocked thread of Java, as its virtual machine tells of it.
//!
//! The futex that it sleeps on belongs to this thread alone and names nobody. HotSpot's structures
//! name the owner of a lock, and the thread that is joined. Another wait may be ended by any of
//! Java's threads, but by none of the virtual machine's own.

use super::hotspot::JavaWait;
use super::obstacle::{Debtor, End, Obstacle, Who};
use super::process::Process;
use super::report::{Kind, WaitsFor};

/// What this thread waits for, where HotSpot names the thread that is to end the wait.
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
        JavaWait::Task { owner } => (
            Kind::Call,
            "the result of a FutureTask".to_owned(),
            owner?,
            "the task refers to the thread that runs it",
        ),
        JavaWait::Notified { .. } | JavaWait::Unknown { .. } => return None,
    };
    let debtor = Debtor::seen(Who::Thread(process.pid, owner), reason);
    Some(Obstacle::owed(kind, name, vec![debtor]))
}

/// What this thread waits for, where HotSpot names nobody. `None`: it is no thread of Java, or it
/// waits inside the virtual machine.
pub fn by_any(process: &Process, tid: u32) -> Option<Obstacle> {
    let inside = process.inside.as_ref()?;
    let machine = process.hot_spot()?;
    if machine.is_of_machine(&*inside.memory, tid) {
        let end = End::unknown("it is a thread of the virtual machine itself, which has no work");
        return Some(Obstacle::ends(Kind::Call, "work", end));
    }
    let (kind, name) = match machine.wait(&*inside.memory, tid)? {
        JavaWait::Enters { class, .. } => (Kind::Lock, format!("the monitor of {class}")),
        JavaWait::Parks { class, .. } => (Kind::Flag, class),
        JavaWait::Notified { class } => (Kind::Flag, format!("notify() on {class}")),
        JavaWait::Task { .. } => {
            let name = "the result of a FutureTask that no thread runs";
            (Kind::Flag, name.to_owned())
        }
        JavaWait::Unknown { class } => {
            let name = class.unwrap_or_else(|| "what it is parked for".to_owned());
            (Kind::Flag, name)
        }
        JavaWait::Joins(_) => return None,
    };
    let waits_for = WaitsFor {
        kind,
        name,
        address: None,
        statement: None,
    };
    let others = machine.like(&*inside.memory, tid).collect();
    let reason = "it is one of those that could change it";
    let any = Debtor::any_of(process.pid, others, reason);
    Some(Obstacle::by_elimination(
        process.pid,
        any.into_iter().collect(),
        waits_for,
    ))
}
