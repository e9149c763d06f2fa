// SPDX-License-Identifier: MIT
//! What a call on a descriptor waits for: who holds the other end, or what from outside.

use std::fs;
use std::time::Duration;

use flagfinder_linux::descriptors::Watch;
use flagfinder_linux::proc::{file_kind, link, path};

use super::children;
use super::obstacle::{Debtor, End, Obstacle, Side, Weight, Who};
use super::place::{is_on, Place, MOST_HOLDERS};
use super::process::{descends, name, Process, Processes};
use super::report::{Kind, RootKind};
use super::served::{self, of_side};
use super::sockets::socket;
use super::terminal;
use crate::effects::Effect;
use flagfinder_waits::descriptor::{self, between, is_epoll, tells_once, watches_of};
use flagfinder_waits::internet::connection;
use flagfinder_waits::{eventfd, is_fifo, is_queue, untaken, Owner};

const MOST_WATCHED: usize = 16;
/// A thread that has been woken goes on sooner.
const AGAIN: Duration = Duration::from_millis(20);

/// One for each thing that may end the call; several only for an epoll descriptor.
pub fn obstacles(
    processes: &mut Processes,
    pid: u32,
    tid: u32,
    fd: i32,
    call: &str,
) -> Vec<Obstacle> {
    let Some(target) = link(pid, fd) else {
        let end = End::unknown(format!("descriptor {fd} is not open at the moment"));
        return vec![Obstacle::ends(
            Kind::Call,
            format!("{call} on fd {fd}"),
            end,
        )];
    };
    let place = Place {
        pid,
        tid,
        fd,
        call,
        target,
    };
    if let Some(inode) = descriptor::socket(&place.target) {
        return socket(processes, &place, inode);
    }
    if place.target.starts_with("pipe:") || is_named(&place) {
        return pipe(processes, &place);
    }
    if is_epoll(pid, fd) {
        let mut inner = watches_of(pid, fd);
        inner.truncate(MOST_WATCHED);
        if inner.is_empty() {
            let end = End::unknown("the epoll descriptor watches nothing");
            return place.ends("epoll", end);
        }
        let found = inner.iter().flat_map(|watch| match watch.descriptor {
            // An epoll descriptor within another is rare, and may form a circle.
            one if is_epoll(pid, one) => Vec::new(),
            one => match missed(pid, tid, watch, call) {
                Some(obstacle) => vec![obstacle],
                None => obstacles(processes, pid, tid, one, call),
            },
        });
        return beside_others(found.collect());
    }
    if let Some(kind) = between(&place.target, "anon_inode:[") {
        return anonymous(processes, &place, kind);
    }
    if place.target.starts_with("anon_inode:inotify") {
        let end = End::idle(
            RootKind::Input,
            "nothing changed in the files that it watches",
        );
        return place.ends("inotify", end);
    }
    if let Some(terminal) = terminal::of_master(pid, fd, &place.target) {
        return programs_at(processes, &place, &terminal);
    }
    if place.target.starts_with("/dev/pts/") && matches!(call, "write" | "writev") {
        return shown_by(processes, &place);
    }
    device(&place)
}

/// What a thread that waits in epoll does not come back for, though it is there: epoll told of it
/// once, and it was not all taken then. Looked at twice: a thread that is about to take it does so
/// between.
fn missed(pid: u32, tid: u32, watch: &Watch, call: &str) -> Option<Obstacle> {
    let (fd, how) = (watch.descriptor, tells_once(watch)?);
    let there = untaken(pid, fd)?;
    std::thread::sleep(AGAIN);
    if untaken(pid, fd)? != there {
        return None;
    }
    let target = link(pid, fd)?;
    let what = match descriptor::socket(&target).and_then(|inode| connection(pid, inode)) {
        Some(connection) => connection.name,
        None => target,
    };
    let told = format!(
        "fd {fd}, {what}, has {there} to read, and epoll told of that only once ({how}): nothing \
         wakes thread {tid} for it"
    );
    let end = End::new(RootKind::Input, Weight::Circle, told);
    Some(Obstacle::ends(
        Kind::Call,
        format!("{call} on fd {fd}, {what}"),
        end,
    ))
}

/// Has the channel a name, by which other processes may open it?
fn is_named(place: &Place) -> bool {
    is_fifo(place.pid, place.fd) || is_queue(place.pid, place.fd, &place.target)
}

/// Who is to read what a program writes to its terminal: the process that shows it.
fn shown_by(processes: &mut Processes, place: &Place) -> Vec<Obstacle> {
    let terminal = &place.target;
    let what = format!("room in terminal {terminal}");
    let masters = terminal::MASTERS.map(|master| processes.owners.of(master).to_vec());
    let masters = masters.concat();
    let shows = |o: &&flagfinder_waits::Owner| {
        terminal::of_master(o.pid, o.fd, terminal::MASTERS[0]).as_ref() == Some(terminal)
    };
    let Some(owner) = masters.iter().find(shows) else {
        let end = End::outside(RootKind::Input, format!("nobody reads terminal {terminal}"));
        return place.ends(&what, end);
    };
    let shown = format!("process {} ({}) shows it", owner.pid, owner.name);
    let file = link(owner.pid, owner.fd).unwrap_or_default();
    if is_on(processes, owner.pid, owner.pid, &file) {
        let text = format!("{shown} and reads: its output may be held by Ctrl-S");
        return place.ends(&what, End::unknown(text));
    }
    let reason = format!("{shown}, and does not read what is written");
    place.owed(
        &what,
        vec![Debtor::seen(Who::Thread(owner.pid, owner.pid), reason)],
    )
}

/// The programs that read and write a terminal, for the one that shows it.
fn programs_at(processes: &mut Processes, place: &Place, terminal: &str) -> Vec<Obstacle> {
    let owners = processes.owners.of(terminal);
    let mut debtors: Vec<Debtor> = Vec::new();
    for owner in owners.iter().filter(|owner| owner.pid != place.pid) {
        let who = Who::Process(owner.pid, Some(terminal.to_owned()));
        if debtors.len() < MOST_HOLDERS && !debtors.iter().any(|debtor| debtor.who == who) {
            let reason = format!("process {} ({}) has it open", owner.pid, owner.name);
            debtors.push(Debtor::seen(who, reason));
        }
    }
    let what = format!("the other side of terminal {terminal}");
    if debtors.is_empty() {
        let end = End::outside(RootKind::Input, "no process is seen that has it open");
        return place.ends(&what, end);
    }
    of_side(Side::Programs, place.owed(&what, debtors))
}

/// A call on several descriptors ends by any of them.
pub fn each(
    processes: &mut Processes,
    pid: u32,
    tid: u32,
    descriptors: &[i32],
    name: &str,
) -> Vec<Obstacle> {
    const MOST: usize = 16;
    let each = descriptors.iter().take(MOST);
    let found = each.flat_map(|fd| obstacles(processes, pid, tid, *fd, name));
    beside_others(found.collect())
}

/// A timer is set only while something is due, and a channel to itself wakes a thread only when
/// there is news: beside other descriptors neither explains anything.
fn beside_others(mut all: Vec<Obstacle>) -> Vec<Obstacle> {
    served::mark(&mut all);
    let is_own = |obstacle: &Obstacle| {
        let end = &obstacle.otherwise;
        let is_own = matches!(end.kind, RootKind::Timer | RootKind::Deadlock);
        let is_own = is_own && end.weight == Weight::Fault;
        (is_own || obstacle.side == Some(Side::Own)) && obstacle.debtors.is_empty()
    };
    if all.iter().any(|obstacle| !is_own(obstacle)) {
        all.retain(|obstacle| !is_own(obstacle));
    }
    all
}

fn device(place: &Place) -> Vec<Obstacle> {
    let path = &place.target;
    let is_terminal = ["/dev/pts/", "/dev/tty", "/dev/console"]
        .iter()
        .any(|p| path.starts_with(p));
    if is_terminal {
        let end = End::outside(
            RootKind::Input,
            format!("nobody has typed at terminal {path}"),
        );
        return place.ends(&format!("terminal {path}"), end);
    }
    let kind = file_kind(place.pid, place.fd);
    if kind == Some(libc::S_IFREG) && looks(place.call) {
        // It would be ready at once: the call does not ask about it.
        let end = End::idle(RootKind::Input, format!("nothing is asked about {path}"));
        return of_side(Side::Own, place.ends(path, end));
    }
    let what = match kind {
        Some(libc::S_IFCHR) => format!("device {path} is not ready"),
        Some(libc::S_IFBLK | libc::S_IFREG) => {
            format!("the disk or file system has not answered for {path}")
        }
        _ => {
            return place.ends(
                path,
                End::unknown(format!("what makes {path} ready is not known")),
            )
        }
    };
    place.ends(path, End::outside(RootKind::Input, what))
}

fn anonymous(processes: &mut Processes, place: &Place, kind: &str) -> Vec<Obstacle> {
    let path = path(place.pid, &format!("fdinfo/{}", place.fd));
    let info = fs::read_to_string(path).unwrap_or_default();
    let field = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim())
    };
    match kind {
        "eventfd" => {
            let own = Effect::Write(vec![place.fd]);
            let own = by_own_threads(processes, place, "an eventfd", own);
            match own.iter().all(|one| one.debtors.is_empty()) {
                true => eventfd_of_others(processes, place).unwrap_or(own),
                false => own,
            }
        }
        "timerfd" => {
            let left = field("it_value:").and_then(timer);
            let end = match left {
                Some((0, 0)) | None => {
                    End::fault(RootKind::Timer, "its timer is not set: it never fires")
                }
                Some((seconds, part)) => {
                    let left = std::time::Duration::new(seconds, part);
                    End::outside(RootKind::Timer, format!("its timer is due in {left:.1?}"))
                }
            };
            place.ends("a timer", end)
        }
        "signalfd" => {
            let mask = field("sigmask:").and_then(|mask| u64::from_str_radix(mask, 16).ok());
            let children = children::by_signal(place.pid, mask.unwrap_or(0));
            match children.is_empty() {
                true => place.ends("a signal", End::idle(RootKind::Input, "no signal has come")),
                false => children,
            }
        }
        "pidfd" => {
            let child = field("Pid:").and_then(|pid| pid.parse::<i32>().ok());
            match child.and_then(|pid| u32::try_from(pid).ok()) {
                Some(child) => place.owed(
                    &format!("the end of process {child}"),
                    vec![Debtor::seen(
                        Who::Process(child, None),
                        format!("process {child} ({}) has not ended", name(child, child)),
                    )],
                ),
                None => place.ends(
                    "the end of a process",
                    End::unknown("which process is not to be seen"),
                ),
            }
        }
        "inotify" => place.ends(
            "inotify",
            End::idle(
                RootKind::Input,
                "nothing changed in the files that it watches",
            ),
        ),
        other => place.ends(
            other,
            End::unknown(format!(
                "what makes a descriptor of {other} ready is not known"
            )),
        ),
    }
}

/// `(0, 250000000)`
fn timer(text: &str) -> Option<(u64, u32)> {
    let (seconds, part) = text.trim_matches(['(', ')']).split_once(',')?;
    Some((seconds.trim().parse().ok()?, part.trim().parse().ok()?))
}

/// A descriptor by which the process's own threads wake each other.
/// No other thread of its process can write to it: it was made for those who inherited it.
fn eventfd_of_others(processes: &mut Processes, place: &Place) -> Option<Vec<Obstacle>> {
    let key = eventfd(place.pid, place.fd);
    let is_foreign = |one: &&Owner| ![place.pid, std::process::id()].contains(&one.pid);
    let others = processes.owners.of(&key).iter().filter(is_foreign);
    let debtors = others.take(MOST_HOLDERS).map(|owner| {
        let reason = format!("it has the eventfd, fd {}", owner.fd);
        let who = Who::Process(owner.pid, Some(key.clone()));
        Debtor::seen(who, reason).with(Effect::Write(vec![owner.fd]))
    });
    let debtors: Vec<Debtor> = debtors.collect();
    (!debtors.is_empty()).then(|| place.owed("an eventfd", debtors))
}

fn by_own_threads(
    processes: &mut Processes,
    place: &Place,
    what: &str,
    effect: Effect,
) -> Vec<Obstacle> {
    let tids = processes
        .get(place.pid)
        .map_or_else(Vec::new, Process::tids);
    let reason = format!("process {} has both ends of it", place.pid);
    let others = tids.into_iter().filter(|tid| *tid != place.tid);
    let debtors = Debtor::any_of(place.pid, others.collect(), reason).map(|one| one.with(effect));
    let end = End::unknown(format!(
        "no other thread of process {} is left that could write to it",
        place.pid
    ));
    vec![Obstacle {
        by_elimination: true,
        otherwise: end,
        ..Obstacle::owed(Kind::Call, place.named(what), debtors.into_iter().collect())
    }]
}

fn pipe(processes: &mut Processes, place: &Place) -> Vec<Obstacle> {
    let kind = match place.target.starts_with("pipe:") {
        true => "a pipe".to_owned(),
        false if is_fifo(place.pid, place.fd) => format!("FIFO {}", place.target),
        false => format!("message queue {}", place.target),
    };
    let owners = processes.owners.of(&place.target).to_vec();
    let own = owners
        .iter()
        .find(|o| o.pid == place.pid && o.fd == place.fd);
    let reads = place.call != "mq_timedsend" && own.is_none_or(|own| own.reads);
    let (does, full) = match reads {
        true => ("writes to", ""),
        false => ("reads from", "a full "),
    };
    let what = format!(
        "{}{}",
        full,
        kind.trim_start_matches(if full.is_empty() { "" } else { "a " })
    );
    let at_end = |o: &&flagfinder_waits::Owner| match reads {
        true => o.writes,
        false => o.reads,
    };
    let all: Vec<_> = owners.iter().filter(at_end).collect();
    // This process has inherited the file as well, and owes nothing.
    let is_foreign = |pid: u32| pid != place.pid && pid != std::process::id();
    let others: Vec<_> = all.iter().filter(|o| is_foreign(o.pid)).collect();
    let own: Vec<_> = all
        .iter()
        .filter(|o| o.pid == place.pid && (o.fd != place.fd || !(o.reads && o.writes)))
        .collect();
    let uses = if reads { Effect::Write } else { Effect::Read };
    if others.is_empty() {
        let own: Vec<i32> = own.iter().map(|o| o.fd).collect();
        return alone(processes, place, &what, (does, reads), own);
    }
    let mut debtors: Vec<Debtor> = Vec::new();
    for owner in others.iter().take(MOST_HOLDERS) {
        let who = Who::Process(owner.pid, Some(place.target.clone()));
        let reason = format!("it holds the end that {does} it, fd {}", owner.fd);
        let on = others.iter().filter(|one| one.pid == owner.pid);
        if !debtors.iter().any(|debtor| debtor.who == who) {
            debtors.push(Debtor::seen(who, reason).with(uses(on.map(|one| one.fd).collect())));
        }
    }
    let mut owed = place.owed(&what, debtors);
    // Where others inherited it from this process, its own threads may use it as well.
    if !own.is_empty() && others.iter().all(|o| descends(o.pid, place.pid)) {
        let own = uses(own.iter().map(|o| o.fd).collect());
        let own = by_own_threads(processes, place, &what, own);
        for (one, own) in owed.iter_mut().zip(own) {
            one.by_elimination = !own.debtors.is_empty();
            one.debtors.extend(own.debtors);
        }
    }
    let owed = owed.into_iter();
    owed.map(|one| Obstacle {
        for_room: !reads,
        ..one
    })
    .collect()
}

/// Does a call of this name ask about descriptors, rather than read or write one?
fn looks(call: &str) -> bool {
    let calls = ["poll", "ppoll", "select", "pselect6", "epoll_"];
    calls.iter().any(|begins| call.starts_with(begins))
}

/// No other process holds the other end.
fn alone(
    processes: &mut Processes,
    place: &Place,
    what: &str,
    (does, reads): (&str, bool),
    own: Vec<i32>,
) -> Vec<Obstacle> {
    let threads = processes
        .get(place.pid)
        .map_or(0, |process| process.tids().len());
    let uses = if reads { Effect::Write } else { Effect::Read };
    if !own.is_empty() && threads > 1 {
        let owed = by_own_threads(processes, place, what, uses(own)).into_iter();
        let owed = owed.map(|one| Obstacle {
            for_room: !reads,
            ..one
        });
        return owed.collect();
    }
    let own = own.first().copied();
    let pid = place.pid;
    if processes.owners.partial {
        let end = End::unknown("not every process could be looked at for the other end");
        return place.ends(what, end);
    }
    let end = match own {
        // So a program tells itself of its signals.
        Some(fd) if looks(place.call) => End::idle(
            RootKind::Input,
            format!("only process {pid} itself can write to {what} (fd {fd})"),
        ),
        // Its name is there for others: one that comes later may still write.
        Some(fd) if place.target.starts_with('/') => End::outside(
            RootKind::Input,
            format!("nobody else has {what} open, only process {pid} itself (fd {fd})"),
        ),
        Some(fd) => End::fault(
            RootKind::Ended,
            format!(
                "no other process is left that {does} {what}; process {pid} holds that end itself \
                 (fd {fd}), so no end of file comes"
            ),
        ),
        // It was opened for both ways, or else the call would not block.
        None if is_named(place) => {
            End::outside(RootKind::Input, format!("no other process {does} {what}"))
        }
        None => End::fault(
            RootKind::Ended,
            format!("no process is left that {does} {what}"),
        ),
    };
    match own {
        Some(_) => of_side(Side::Own, place.ends(what, end)),
        None => place.ends(what, end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_timer_is_read() {
        assert_eq!(timer("(3, 250000000)"), Some((3, 250_000_000)));
        assert_eq!(timer("(0, 0)"), Some((0, 0)));
        assert_eq!(timer(""), None);
    }

    #[test]
    fn a_timer_that_is_not_set_or_a_pipe_to_itself_explains_nothing_beside_others() {
        let timer = || {
            let end = End::fault(RootKind::Timer, "its timer is not set: it never fires");
            Obstacle::ends(Kind::Call, "epoll_wait on fd 5, a timer", end)
        };
        let socket = || {
            let end = End::idle(RootKind::Peer, "no datagram has come");
            Obstacle::ends(Kind::Call, "epoll_wait on fd 6", end)
        };
        let kinds = |all: Vec<Obstacle>| -> Vec<RootKind> {
            let ends = beside_others(all).into_iter().map(|one| one.otherwise);
            ends.map(|end| end.kind).collect()
        };
        let own_pipe = || {
            let end = End::fault(RootKind::Ended, "no other process is left");
            Obstacle {
                side: Some(Side::Own),
                ..Obstacle::ends(Kind::Call, "poll on fd 3", end)
            }
        };
        assert_eq!(kinds(vec![own_pipe(), socket()]), [RootKind::Peer]);
        assert_eq!(kinds(vec![timer()]), [RootKind::Timer]);
        assert_eq!(kinds(vec![timer(), socket()]), [RootKind::Peer]);
    }
}
