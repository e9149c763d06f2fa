// SPDX-License-Identifier: MIT
//! A call that a file system keeps, whose answers a process gives (FUSE): which process that is.
//!
//! The file system itself is not asked, as we would wait for the same answer. Blind spots: paths
//! that lead there by a link; servers in processes that may not be looked at.

use std::fs;

use flagfinder_linux::proc::{self, link, text_of};
use flagfinder_linux::syscalls;
use flagfinder_waits::call::descriptors;
use flagfinder_waits::proc::Call;

use super::obstacle::{Debtor, End, Obstacle, Who};
use super::process::Processes;
use super::report::{Kind, Known, RootKind};

/// What the server of a FUSE file system has open.
const DEVICE: &str = "/dev/fuse";
/// Functions of the kernel in which a thread waits for such a server.
const WAITS_IN: [&str; 2] = ["request_wait_answer", "fuse_"];

/// A line of /proc/PID/mountinfo.
#[derive(Debug, PartialEq, Eq)]
struct Mount<'t> {
    id: u32,
    /// Of its device: the number of the connection to its server.
    minor: u32,
    place: &'t str,
    kind: &'t str,
}

impl Mount<'_> {
    fn parse(line: &str) -> Option<Mount<'_>> {
        let (own, of_system) = line.split_once(" - ")?;
        let mut own = own.split(' ');
        Some(Mount {
            id: own.next()?.parse().ok()?,
            minor: own.nth(1)?.split_once(':')?.1.parse().ok()?,
            place: own.nth(1)?,
            kind: of_system.split(' ').next()?,
        })
    }

    fn has(&self, path: &str) -> bool {
        let rest = path.strip_prefix(self.place.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    fn is_served(&self) -> bool {
        self.kind.starts_with("fuse")
    }
}

/// The mount that a path is in: the innermost one, and of several at one place the last.
fn of_path<'t>(mounts: &'t str, path: &str) -> Option<Mount<'t>> {
    let all = mounts.lines().filter_map(Mount::parse);
    all.filter(|mount| mount.has(path))
        .max_by_key(|mount| mount.place.len())
}

/// What ends a call of a thread that sleeps in this function of the kernel. `path`: that the call
/// names. `None`: it does not wait for such a server.
pub fn served(
    processes: &mut Processes,
    pid: u32,
    call: &Call,
    path: Option<&str>,
    sleeps_in: &str,
) -> Option<Obstacle> {
    if !WAITS_IN.iter().any(|begins| sleeps_in.starts_with(begins)) {
        return None;
    }
    let mounts = text_of(pid, "mountinfo").unwrap_or_default();
    let whole = path.map(|path| match path.starts_with('/') {
        true => path.to_owned(),
        false => {
            let folder = fs::read_link(proc::path(pid, "cwd")).unwrap_or_default();
            folder.join(path).to_string_lossy().into_owned()
        }
    });
    let mut of_fd = || {
        let inside = processes.get(pid)?.inside.as_ref()?;
        let fd = descriptors(call, &*inside.memory).first().copied()?;
        let info = text_of(pid, &format!("fdinfo/{fd}")).ok()?;
        let id = number(&info, "mnt_id:")?;
        let mut all = mounts.lines().filter_map(Mount::parse);
        all.find(|mount| mount.id == id)
    };
    let mount = match &whole {
        Some(path) => of_path(&mounts, path),
        None => of_fd(),
    };
    let mount = mount.filter(Mount::is_served);
    let what = match &mount {
        Some(mount) => format!("the file system {} ({})", mount.place, mount.kind),
        None => "a file system of FUSE".to_owned(),
    };
    let call = syscalls::name(call.number);
    let of = |owner: &flagfinder_waits::Owner| {
        let info = text_of(owner.pid, &format!("fdinfo/{}", owner.fd)).ok()?;
        number(&info, "fuse_connection:")
    };
    let mut debtors: Vec<Debtor> = Vec::new();
    for owner in processes.owners.of(DEVICE) {
        let connection = of(owner);
        let wanted = mount.as_ref().map(|mount| mount.minor);
        if connection.is_some() && wanted.is_some() && connection != wanted {
            continue;
        }
        let who = Who::Process(owner.pid, link(owner.pid, owner.fd));
        if debtors.iter().any(|debtor| debtor.who == who) {
            continue;
        }
        let reason = format!(
            "process {} ({}) answers for it, by fd {} ({DEVICE})",
            owner.pid, owner.name, owner.fd
        );
        debtors.push(Debtor {
            known: match connection == wanted && wanted.is_some() {
                true => Known::Seen,
                false => Known::Assumed,
            },
            ..Debtor::seen(who, reason)
        });
    }
    let name = format!("{call} in {what}");
    if debtors.is_empty() {
        let end = End::outside(
            RootKind::Peer,
            format!("no process is seen that serves {what}"),
        );
        return Some(Obstacle::ends(Kind::Call, name, end));
    }
    Some(Obstacle::owed(Kind::Call, name, debtors))
}

fn number(info: &str, field: &str) -> Option<u32> {
    let line = info.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "22 1 254:0 / / rw - ext4 /dev/vda rw\n\
        40 22 0:45 / /mnt/a rw,nosuid shared:3 - fuse.sshfs host: rw\n\
        41 22 0:46 / /mnt/ab rw - fuse.bindfs /src rw\n";

    #[test]
    fn a_path_is_in_the_innermost_mount() {
        let of = |path| of_path(MOUNTS, path).map(|mount| (mount.minor, mount.is_served()));
        assert_eq!(of("/mnt/a/x"), Some((45, true)));
        assert_eq!(of("/mnt/a"), Some((45, true)));
        assert_eq!(of("/mnt/ab/x"), Some((46, true)));
        assert_eq!(of("/mnt/abc"), Some((0, false)));
    }

    #[test]
    fn the_server_names_its_connection() {
        let info = "pos:\t0\nflags:\t02\nmnt_id:\t27\nfuse_connection:\t45\n";
        assert_eq!(number(info, "fuse_connection:"), Some(45));
        assert_eq!(number(info, "mnt_id:"), Some(27));
        assert_eq!(number("", "mnt_id:"), None);
    }
}
