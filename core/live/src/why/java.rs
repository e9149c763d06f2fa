// SPDX-License-Identifier: MIT
//! A blocked thread of Java, as its virtual machine tells of it.
//!
//! The futex that it sleeps on belongs to this thread alone and names nobody. HotSpot's structures
//! name the owner of a lock, and the thread that is joined. Another wait may be ended by any of
//! Java's threads, but by none of the virtual machine's own.

use flagfinder_code::{ByPages, Spot, Whose};

use super::hotspot::{HotSpot, JavaWait, MACHINES, OF_MACHINE};
use super::java_code::Field;
use super::java_owes::owes;
use super::java_polls::polled;
use super::obstacle::{Debtor, End, Obstacle, Who};
use super::process::Process;
use super::report::{Kind, Known, RootKind, WaitsFor};
use crate::report::ThreadReport;
use crate::sample::Activity;
use crate::thread_ways::HOT;

const UNRUN: &str = "the result of a FutureTask that no thread runs";

/// The virtual machine of the process, and its memory, of which each page is read once.
fn machine(process: &Process) -> Option<(&HotSpot, ByPages<'_>)> {
    let memory = &process.inside.as_ref()?.memory;
    let read = |address, buffer: &mut [u8]| memory.read(address, buffer);
    Some((process.hot_spot()?, ByPages::new(read)))
}

/// What this thread waits for, where HotSpot names the thread that is to end the wait.
pub fn owed(process: &Process, tid: u32) -> Option<Obstacle> {
    let (machine, memory) = machine(process)?;
    let children = match process.is_dead {
        true => Vec::new(),
        false => flagfinder_waits::children(process.pid),
    };
    if let Some(child) = machine.child(&memory, tid, &children) {
        let reason = "it waits in waitFor() on the object that holds this process's id";
        let debtor = Debtor::seen(Who::Process(child, None), reason);
        let name = format!("the end of child {child}");
        return Some(Obstacle::owed(Kind::Child, name, vec![debtor]));
    }
    let (kind, name, owner, reason) = match machine.wait(&memory, tid)? {
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
        wait @ (JavaWait::Queued(_) | JavaWait::Task { owner: None, .. }) => {
            let (name, pool) = match wait {
                JavaWait::Queued(pool) => ("the result of a task that no thread runs", pool),
                JavaWait::Task { pool, .. } => (UNRUN, pool),
                _ => return None,
            };
            let who = match pool[..] {
                [] => return None,
                [only] => Who::Thread(process.pid, only),
                _ => Who::AnyOf(process.pid, pool.into()),
            };
            let reason = "the task is in the queue of the pool whose thread this is";
            let debtor = Debtor::seen(who, reason);
            return Some(Obstacle::owed(Kind::Call, name, vec![debtor]));
        }
        JavaWait::Task { owner, .. } => (
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

/// Does it sleep for a time, and wait for nothing else?
pub fn sleeps(process: &Process, tid: u32) -> bool {
    machine(process).is_some_and(|(machine, memory)| machine.sleeps(&memory, tid))
}

/// Does it sleep in code of Java? Then HotSpot tells what it waits for, and its bytecode which
/// fields it polls: it is not stepped, which takes long where code was compiled.
pub fn tells(process: &Process, tid: u32) -> bool {
    let sleeps = process.activity(tid).is_some_and(|one| one.wants < HOT);
    let known = || {
        let (machine, memory) = machine(process)?;
        let wait = machine.wait(&memory, tid)?;
        Some(wait != JavaWait::Unknown { class: None } || machine.sleeps(&memory, tid))
    };
    sleeps && known() == Some(true)
}

/// What the thread has open in Java, innermost first.
pub fn calls(process: &Process, tid: u32) -> Vec<(Whose, Spot)> {
    machine(process).map_or_else(Vec::new, |(machine, memory)| machine.calls(&memory, tid))
}

/// Where the thread stands in the program. Which classes are a library's is not known: beside the
/// innermost one is told where one of the author's came to it, if those lie with the main class.
pub fn place(process: &Process, tid: u32) -> Option<Spot> {
    let (machine, memory) = machine(process)?;
    let calls = machine.calls(&memory, tid);
    let mut place = Spot::first_own(calls.iter().map(|(whose, spot)| (*whose, spot)))?;
    let folder = machine.folder_of_main(&memory);
    let is_authors = |spot: &Spot| {
        let file = spot.file.as_deref().zip(folder.as_deref());
        file.is_some_and(|(file, folder)| match folder {
            "" => !file.contains('/'),
            _ => file.starts_with(folder),
        })
    };
    if !is_authors(&place) {
        let mut authors = calls.into_iter().filter(|(_, spot)| is_authors(spot));
        if let Some((_, caller)) = authors.next() {
            place.called_at = Some(Box::new(caller));
        }
    }
    Some(place)
}

/// So much more than the thread itself they have to use: it is held for most of the time.
const LARGER: f64 = 1.5;

/// A thread of Java that uses a processor, or that the machine holds, while a collector of garbage
/// works more than it does: the collector keeps it.
pub fn collects(process: &Process, activity: &Activity) -> Option<End> {
    let is_collector = |one: &&Activity| {
        let mut names = MACHINES.iter();
        names.any(|begins| one.name.starts_with(begins))
    };
    let all = || process.activities.iter().filter(is_collector);
    let used: f64 = all().map(|one| one.wants).sum();
    let most = |one: &&Activity| (one.wants * 1000.0) as u64;
    let collector = all().max_by_key(most)?;
    if used < HOT || used < LARGER * activity.wants {
        return None;
    }
    let (machine, memory) = machine(process)?;
    let is_held = || {
        let wait = machine.wait(&memory, activity.tid);
        wait == Some(JavaWait::Unknown { class: None })
    };
    if machine.is_of_machine(&memory, activity.tid) || activity.wants < HOT && !is_held() {
        return None;
    }
    let what = format!(
        "it collects garbage, with {:.0} % of a processor for that; thread {} is held meanwhile",
        used * 100.0,
        activity.tid
    );
    let end = End::outside(RootKind::Computes, what);
    Some(end.of(process.pid, Some(collector.tid), collector.name.clone()))
}

/// The fields that a loop polls in which the thread is, and the loop's place. `looked`: what `spin`
/// saw of it.
pub fn polls(
    process: &Process,
    tid: u32,
    looked: Option<&ThreadReport>,
) -> Option<(Obstacle, Option<Spot>)> {
    let (machine, memory) = machine(process)?;
    let header = looked.and_then(|looked| Some(&looked.spin_loop.as_ref()?.header));
    let pc = header
        .filter(|code| code.module.is_none())
        .map(|code| code.offset);
    let others: Vec<u32> = machine.like(&memory, tid).collect();
    let found = polled(machine, &memory, (tid, pc), &others)?;
    let name = |field: &Field| {
        let class = field.class.rsplit('/').next().unwrap_or(&field.class);
        format!("{class}.{}", field.name)
    };
    let names: Vec<String> = found.fields.iter().map(name).collect();
    let names = names.join(" or ");
    let debtor = |(tid, is_same): &(u32, bool)| {
        let known = match *is_same && found.owing.len() == 1 {
            true => Known::ByCode,
            false => Known::Assumed,
        };
        let reason = match is_same {
            true => "its code writes there further on",
            false => "its code writes there further on, if it is the same object's",
        };
        Debtor {
            known,
            ..Debtor::seen(Who::Thread(process.pid, *tid), reason)
        }
    };
    let debtors: Vec<Debtor> = found.owing.iter().map(debtor).collect();
    let obstacle = match debtors.is_empty() {
        true => Obstacle::ends(
            Kind::Flag,
            names,
            End::unknown("no thread comes to write it, as far as their code could be followed"),
        ),
        false => Obstacle::owed(Kind::Flag, names, debtors),
    };
    Some((obstacle, found.at))
}

/// What this thread waits for, where HotSpot names nobody. `None`: it is no thread of Java, or it
/// waits inside the virtual machine.
pub fn by_any(process: &Process, tid: u32) -> Option<Obstacle> {
    let (machine, memory) = machine(process)?;
    if machine.is_of_machine(&memory, tid) {
        let end = End::unknown("it is a thread of the virtual machine itself, which has no work");
        return Some(Obstacle::ends(Kind::Call, "work", end));
    }
    let (kind, name) = match machine.wait(&memory, tid)? {
        JavaWait::Enters { class, .. } => (Kind::Lock, format!("the monitor of {class}")),
        JavaWait::Parks { class, .. } => (Kind::Flag, class),
        JavaWait::Notified { class } => (Kind::Flag, format!("notify() on {class}")),
        JavaWait::Task { .. } => (Kind::Flag, UNRUN.to_owned()),
        JavaWait::Unknown { class } => {
            let name = "what it is parked for, or the virtual machine";
            (Kind::Flag, class.unwrap_or_else(|| name.to_owned()))
        }
        JavaWait::Joins(_) | JavaWait::Queued(_) => return None,
    };
    let is_of_machine = |other: &u32| {
        let activity = process.activity(*other);
        activity.is_some_and(|one| OF_MACHINE.contains(&&*one.name))
    };
    let others = machine.like(&memory, tid);
    let mut others: Vec<u32> = others.filter(|other| !is_of_machine(other)).collect();
    let owes = owes(machine, &memory, tid, &others).unwrap_or_default();
    let name = Some(owes.entry)
        .filter(|entry| !entry.is_empty())
        .unwrap_or(name);
    let who = |tid: u32| Who::Thread(process.pid, tid);
    if !owes.owing.is_empty() {
        let reason = "it can reach the object, and comes to end such waits further on";
        let known = match owes.is_known {
            true => Known::ByReference,
            false => Known::Assumed,
        };
        let debtors = owes.owing.iter().map(|tid| Debtor {
            known,
            ..Debtor::seen(who(*tid), reason)
        });
        let may = owes.unsure.iter();
        let may = may.map(|tid| Debtor::assumed(who(*tid), "it may come to end such waits"));
        return Some(Obstacle::owed(kind, name, debtors.chain(may).collect()));
    }
    if machine.runs_virtual(&memory) {
        let end = End::unknown(
            "no thread is known to end it; the process has virtual threads, which are not followed",
        );
        return Some(Obstacle::ends(kind, name, end));
    }
    let waits_for = WaitsFor {
        kind,
        name,
        address: None,
        statement: None,
    };
    others.retain(|tid| !owes.out.contains(tid));
    let reason = "it is one of those that could change it";
    let any = Debtor::any_of(process.pid, others, reason);
    // It is no circle: nobody who is left is known to wait for this thread in turn.
    let nobody = format!(
        "no thread that is left comes to end {}: who was to has ended, was never started, or did \
         it too early",
        waits_for.name
    );
    let any = any.into_iter().collect();
    let obstacle = Obstacle::by_elimination(process.pid, any, waits_for);
    Some(Obstacle {
        otherwise: End::unknown(nobody),
        ..obstacle
    })
}
