// SPDX-License-Identifier: MIT
//! Where a chain comes to what a core file does not hold: other processes, descriptors, children,
//! file locks, signals.
//!
//! Such an end is unknown, and weighs as much as one that is seen outside of a living process: a
//! thread that waits outside is no less likely to be the one that owes than another is.

use super::obstacle::{End, Obstacle, Weight};
use super::process::Process;
use super::report::{Kind, RootKind, WaitsFor};
use crate::report::ThreadReport;
use flagfinder_linux::futex;
use flagfinder_waits::proc::Call;

fn end(what: impl Into<String>) -> End {
    End::new(RootKind::Unknown, Weight::Outside, what)
}

/// A call that something outside of the process's memory ends.
pub fn outside(call: &Call, name: &str, descriptors: &[i32]) -> Obstacle {
    let first = call.args[0];
    let (kind, label, what) = match (i64::from(call.number), descriptors) {
        (libc::SYS_flock | libc::SYS_fcntl, _) => (
            Kind::Lock,
            format!("the lock on the file of fd {first}"),
            format!("who holds the lock on the file of fd {first}"),
        ),
        (libc::SYS_wait4, _) if first as i32 > 0 => (
            Kind::Child,
            format!("the end of child {first}"),
            format!("what keeps child {first}"),
        ),
        (libc::SYS_wait4 | libc::SYS_waitid | libc::SYS_vfork, _) => (
            Kind::Child,
            "the end of a child".to_owned(),
            "which children it has, and what keeps them,".to_owned(),
        ),
        (libc::SYS_pause | libc::SYS_rt_sigsuspend | libc::SYS_rt_sigtimedwait, _) => (
            Kind::Call,
            format!("{name}, a signal"),
            "who was to send the signal".to_owned(),
        ),
        (_, []) => (Kind::Call, name.to_owned(), format!("what ends {name}")),
        (_, [fd]) => (
            Kind::Call,
            format!("{name} on fd {fd}"),
            format!("what fd {fd} is, and who holds its other end,"),
        ),
        (_, [fd, others @ ..]) => (
            Kind::Call,
            format!("{name} on {} descriptors", others.len() + 1),
            format!("what fd {fd} and {} more are", others.len()),
        ),
    };
    Obstacle::ends(kind, label, end(format!("{what} is not in a core")))
}

/// May other processes map the page of a futex? A core does not tell, but memory without a file,
/// and the data of a program and its libraries, are private to it.
pub fn may_be_shared(process: &Process, call: &Call) -> bool {
    let is_private = futex::is_private(&call.args);
    let Some(inside) = process.inside.as_ref().filter(|_| !is_private) else {
        return false;
    };
    let address = call.args[0];
    let mut maps = inside.names.input().maps.iter();
    let has_file = maps.any(|maps| maps.at(address).is_some_and(|m| m.inode != 0));
    has_file && inside.names.module_place(address).is_none()
}

/// A word in such a page.
pub fn shared(waits_for: WaitsFor) -> Obstacle {
    let end = end("another process may share it and owe the change, which is not in a core");
    let obstacle = Obstacle::ends(waits_for.kind, "", end);
    Obstacle {
        waits_for,
        ..obstacle
    }
}

/// A call that is made again and again: `poll on fd 3 returns 0`.
pub fn asks(name: &str) -> Obstacle {
    let what = format!("it asks again and again: {name}; what was ready is not in a core");
    Obstacle::ends(Kind::Call, name, end(what))
}

/// A thread that was in no call, and polls no word.
pub fn runs(looked: Option<&ThreadReport>) -> End {
    let Some(looked) = looked.filter(|looked| looked.verdict.is_some()) else {
        return end("it was in no call, and what it was doing is not known");
    };
    if looked.is_assumed {
        return end(
            "it was in no call; what it asked for may have been ready, which is not in a core",
        );
    }
    // What it comes to behind that call is not known, but where it is seen to work on something.
    let is_seen = looked.spin_loop.is_some() && looked.facts.gets_on;
    if let (false, Some(why)) = (is_seen, &looked.halted) {
        return end(format!(
            "it was in no call; its copy went no further: {why}"
        ));
    }
    let at = looked
        .spin_loop
        .as_ref()
        .and_then(|at| at.function.as_deref());
    let place = at.map_or(String::new(), |function| format!(" in {function}"));
    let what = format!("it was in no call, and a copy of it computes{place}");
    End::computes(what, looked.facts.gets_on)
}

/// The owner of a lock is none of the threads.
pub fn owner(process: &Process, call: &Call, id: u32) -> End {
    let held = format!("the lock is held by thread {id}");
    if process.left_out.contains(&id) {
        return end(format!(
            "{held}, which did not stop while the core was written, and is not in it"
        ));
    }
    if may_be_shared(process, call) {
        return end(format!(
            "{held}, which may be another process's that shares the lock: that is not in a core"
        ));
    }
    let what = format!("{held}, which had ended without unlocking it, or stayed behind at a fork");
    End::fault(RootKind::Ended, what).of(process.pid, Some(id), "")
}

#[cfg(test)]
mod tests {
    use flagfinder_code::Code;
    use flagfinder_flags::{LoopKind, LoopReport, Verdict};

    use super::*;
    use crate::report::Class;

    fn spin_loop() -> LoopReport {
        LoopReport {
            kind: LoopKind::Busy,
            function: None,
            module: None,
            iterations: 3,
            header: Code::default(),
            at: None,
        }
    }

    #[test]
    fn a_copy_that_stops_at_a_call_computes_nothing() {
        let mut looked = ThreadReport::blank(7, Class::RepeatedYield);
        looked.verdict = Some(Verdict::NoFlag);
        assert_eq!(runs(Some(&looked)).kind, RootKind::Computes);
        looked.halted = Some("it comes to read, whose answer is not known".into());
        looked.spin_loop = Some(spin_loop());
        looked.facts.gets_on = true;
        assert_eq!(runs(Some(&looked)).kind, RootKind::Computes);
        looked.facts.gets_on = false;
        let end = runs(Some(&looked));
        assert_eq!(end.kind, RootKind::Unknown);
        assert!(end
            .what
            .ends_with("it comes to read, whose answer is not known"));
    }
}
