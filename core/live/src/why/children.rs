// SPDX-License-Identifier: MIT
//! Waits for the end of a child, and for the signal that tells of one.

use flagfinder_code::own_id;
use flagfinder_linux::proc::{is_over, threads, Status};

use super::obstacle::{Debtor, End, Obstacle, Who};
use super::process::name;
use super::report::{Kind, Known, RootKind};
use crate::effects::Effect;
use flagfinder_waits::proc::Call;
use flagfinder_waits::{awaited, children};

/// `call`: none if the thread asks for any child, again and again.
pub fn ends(pid: u32, call: Option<&Call>) -> Vec<Obstacle> {
    let awaited = call.map_or_else(
        || children(pid),
        |call| awaited(pid, call.number, &call.args),
    );
    let what = match &awaited[..] {
        [one] => format!("the end of child {one} ({})", name(*one, *one)),
        _ => "the end of any child".into(),
    };
    let debtors = awaited.into_iter().map(|child| {
        let reason = format!("its child {child} ({}) has not ended", name(child, child));
        Debtor::seen(Who::Thread(child, child), reason)
    });
    vec![Obstacle::owed(Kind::Child, what, debtors.collect())]
}

/// The ends of all other threads of a process, for which an execve waits. One that is traced has
/// ended for the kernel once its tracer has asked for its status.
pub fn others_end(pid: u32, tid: u32) -> Vec<Obstacle> {
    let others = threads(pid).into_iter().flatten();
    let debtor = |other: u32| {
        let status = Status::of_thread(pid, other).ok()?;
        let has_ended = status.text("State:")?.starts_with(is_over);
        let tracer = status.number("TracerPid:").filter(|tracer| *tracer != 0);
        match (has_ended, tracer) {
            (false, _) => Some(Debtor::seen(
                Who::Thread(pid, other),
                format!("thread {other} of process {pid} has not ended"),
            )),
            (true, Some(tracer)) => Some(Debtor::seen(
                Who::Thread(tracer, tracer),
                format!(
                    "it traces thread {other} of process {pid}, which has ended, and has not asked \
                     for its status"
                ),
            )),
            (true, None) => None,
        }
    };
    let debtors: Vec<Debtor> = others
        .filter(|other| *other != tid)
        .filter_map(debtor)
        .collect();
    if debtors.is_empty() {
        return Vec::new();
    }
    let name = format!("the end of all other threads of process {pid}");
    vec![Obstacle::owed(Kind::Child, name, debtors)]
}

/// The children that a process may look at between its waits. flagfinder itself, if the process
/// started it, is none of them.
pub fn asked_about(pid: u32) -> Vec<Obstacle> {
    assumed(pid, "the thread waits for a limited time, again and again")
}

/// The children of whose end a process hears by one of these signals, if SIGCHLD is among them.
pub fn by_signal(pid: u32, signals: u64) -> Vec<Obstacle> {
    match has(signals, libc::SIGCHLD) {
        true => assumed(pid, "SIGCHLD would tell of that"),
        false => Vec::new(),
    }
}

/// The signals for which the process has handlers.
pub fn handled(pid: u32) -> u64 {
    Status::of(pid).map_or(0, |status| status.mask("SigCgt:"))
}

/// The signals with handlers that are the program's own: not of faults, nor what a language or its
/// library handles by itself, as Python does SIGINT and glibc its first real-time signals.
pub fn own_handlers(pid: u32) -> Option<String> {
    const OWN: [(i32, &str); 7] = [
        (libc::SIGHUP, "SIGHUP"),
        (libc::SIGUSR1, "SIGUSR1"),
        (libc::SIGUSR2, "SIGUSR2"),
        (libc::SIGALRM, "SIGALRM"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGIO, "SIGIO"),
        (libc::SIGVTALRM, "SIGVTALRM"),
    ];
    const NAMED: usize = 4;
    let handled = handled(pid);
    let own = OWN.iter().filter(|(signal, _)| has(handled, *signal));
    let mut names: Vec<String> = own.map(|(_, name)| (*name).to_owned()).collect();
    let real = libc::SIGRTMIN()..=libc::SIGRTMAX();
    names.extend(
        real.filter(|one| has(handled, *one))
            .map(|one| format!("signal {one}")),
    );
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    let more = (more > 0).then(|| format!(" and {more} more"));
    (!names.is_empty()).then(|| names.join(", ") + &more.unwrap_or_default())
}

fn has(signals: u64, signal: i32) -> bool {
    signals & 1 << (signal - 1) != 0
}

fn assumed(pid: u32, why: &str) -> Vec<Obstacle> {
    let mut obstacles = ends(pid, None);
    for obstacle in &mut obstacles {
        let us = std::process::id();
        let is_us = |who: &Who| matches!(who, Who::Thread(pid, _) if *pid == us);
        obstacle.debtors.retain(|debtor| !is_us(&debtor.who));
    }
    obstacles.retain(|obstacle| !obstacle.debtors.is_empty());
    for debtor in obstacles
        .iter_mut()
        .flat_map(|obstacle| &mut obstacle.debtors)
    {
        debtor.known = Known::Assumed;
        debtor.reason += &format!(", and {why}");
    }
    obstacles
}

/// A call that only a signal ends.
pub fn signal(pid: u32, tid: u32, name: &str) -> Vec<Obstacle> {
    let status = Status::of_thread(pid, tid).ok();
    let mask = |field| status.as_ref().map_or(0, |status| status.mask(field));
    let kept = (mask("SigPnd:") | mask("ShdPnd:")) & mask("SigBlk:");
    if kept == 0 && is_for_a_child(mask("SigCgt:") & !mask("SigBlk:")) && !children(pid).is_empty()
    {
        return for_a_child(pid, name);
    }
    // Threads of its own process may send it; and as a listener waits for any client, many a server
    // waits for requests to end.
    let others: Vec<u32> = threads(pid).unwrap_or_default();
    let others: Vec<u32> = others.into_iter().filter(|other| *other != tid).collect();
    let end = match kept {
        0 => End::idle(RootKind::Input, "no signal has come"),
        kept => End::fault(
            RootKind::Input,
            format!(
                "signal {} has come, but the thread blocks it",
                kept.trailing_zeros() + 1
            ),
        )
        .of(pid, Some(tid), self::name(pid, tid)),
    };
    let mut obstacles = vec![Obstacle::ends(Kind::Call, format!("{name}, a signal"), end)];
    let any = Debtor::any_of(pid, others, "it is one of those that could send it");
    if let Some(any) = any.filter(|_| kept == 0) {
        let effect = Effect::Signal {
            process: own_id(pid, pid),
            thread: own_id(pid, tid),
        };
        let waits_for = obstacles[0].waits_for.clone();
        obstacles.push(Obstacle::by_elimination(
            pid,
            vec![any.with(effect)],
            waits_for,
        ));
    }
    obstacles
}

/// Whether a thread with these handlers waits in [`signal`] for a child, as the `wait` of dash
/// does: one for SIGCHLD, and beside it only those for requests to end. SIGALRM is a time limit of
/// its own. SIGHUP is such a request where all are handled that a terminal sends; a daemon takes it
/// for another.
fn is_for_a_child(handled: u64) -> bool {
    let bit = |signal: i32| 1u64 << (signal - 1);
    let of_terminal = bit(libc::SIGINT) | bit(libc::SIGQUIT) | bit(libc::SIGHUP);
    let mut to_end = bit(libc::SIGINT) | bit(libc::SIGTERM) | bit(libc::SIGQUIT);
    if handled & of_terminal == of_terminal {
        to_end |= bit(libc::SIGHUP) | bit(libc::SIGALRM);
    }
    handled & !to_end == bit(libc::SIGCHLD)
}

fn for_a_child(pid: u32, name: &str) -> Vec<Obstacle> {
    let mut obstacles = ends(pid, None);
    for obstacle in &mut obstacles {
        obstacle.waits_for.name += &format!(", in {name}");
        for debtor in &mut obstacle.debtors {
            debtor.known = Known::ByCode;
            debtor.reason += ", and the thread handles only SIGCHLD and requests to end";
        }
    }
    obstacles
}

#[cfg(test)]
mod tests {
    use super::is_for_a_child;

    #[test]
    fn a_shell_waits_for_a_child_and_a_daemon_for_any_signal() {
        const CHLD: u64 = 1 << (libc::SIGCHLD - 1);
        let other = |signal: i32| CHLD | 1 << (signal - 1);
        assert!(is_for_a_child(CHLD));
        assert!(is_for_a_child(other(libc::SIGTERM)));
        assert!(!is_for_a_child(other(libc::SIGHUP)));
        let limits = [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGALRM];
        let limits = limits.iter().fold(0, |all, signal| all | other(*signal));
        assert!(is_for_a_child(limits), "timeout");
        assert!(!is_for_a_child(limits | other(libc::SIGUSR1)));
        assert!(!is_for_a_child(0));
    }
}
