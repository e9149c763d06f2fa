// SPDX-License-Identifier: MIT
//! What came to a process, and its event loops do not ask for.
//!
//! In: a thread that asks about descriptors. Out: a connection of its process from which something
//! can be read, and which no loop asks about: the program has stopped to read there, and whoever
//! waits for the rest, or for the connection, waits for ever. Blind spots: pipes, which many
//! programs never read; processes of which other threads may come to read; descriptors that a poll
//! asks about for other reasons.

use std::time::Duration;

use flagfinder_linux::proc::{descriptors, link};
use flagfinder_linux::traits;
use flagfinder_waits::descriptor::{is_epoll, socket, watches_of};
use flagfinder_waits::internet::connection;
use flagfinder_waits::{unix, untaken};

use super::obstacle::{End, Obstacle, Weight};
use super::process::{Process, Processes};
use super::report::{Kind, RootKind};

/// A process with more descriptors is not asked.
const MOST: usize = 256;
/// A loop that stopped to read for a moment goes on sooner.
const AGAIN: Duration = Duration::from_millis(20);

/// `asked`: the descriptors of the thread's call, which has this name.
pub fn left(
    processes: &mut Processes,
    pid: u32,
    tid: u32,
    asked: &[i32],
    call: &str,
) -> Option<Obstacle> {
    let all = descriptors(pid);
    if all.len() > MOST || !processes.get(pid).is_some_and(are_loops) {
        return None;
    }
    let epolls = all.iter().filter(|fd| is_epoll(pid, **fd));
    let watches = epolls.flat_map(|fd| watches_of(pid, *fd));
    let watches = watches.filter(|watch| watch.events & libc::EPOLLIN as u32 != 0);
    let watched: Vec<i32> = watches.map(|watch| watch.descriptor).collect();
    let mut rest = all.into_iter();
    rest.find_map(|fd| {
        let target = link(pid, fd).filter(|_| !asked.contains(&fd) && !watched.contains(&fd))?;
        let inode = socket(&target)?;
        let there = untaken(pid, fd)?;
        let owners = processes.owners.of(&target);
        if owners.iter().any(|owner| owner.pid != pid) {
            return None;
        }
        let name = connected(pid, inode)?;
        std::thread::sleep(AGAIN);
        if untaken(pid, fd)? != there {
            return None;
        }
        let what = format!(
            "fd {fd}, {name}, has {there} to read, and thread {tid} does not ask for that: the \
             program has stopped to read there"
        );
        let end = End {
            assumed: true,
            ..End::new(RootKind::Input, Weight::Circle, what)
        };
        let of = format!("{call} on other descriptors");
        Some(Obstacle::ends(Kind::Call, of, end))
    })
}

/// Do all threads that run the program's code ask about descriptors?
fn are_loops(process: &Process) -> bool {
    let looks = |tid| {
        let call = process.activity(tid).and_then(|activity| activity.call);
        call.is_some_and(|call| traits::looks(call.number))
    };
    process.of_program().into_iter().all(looks)
}

/// The name of a connection by which data come as a stream.
fn connected(pid: u32, inode: u32) -> Option<String> {
    match connection(pid, inode) {
        Some(one) => (!one.is_listening && !one.is_datagram).then_some(one.name),
        None => {
            let one = unix::name(pid, inode).filter(|one| !one.is_listening)?;
            let path = one.path.map_or(String::new(), |path| format!(" {path}"));
            Some(format!("Unix socket{path}"))
        }
    }
}
