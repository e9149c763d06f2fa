// SPDX-License-Identifier: MIT
//! A call that a file system keeps, whose answers a process gives (FUSE): which process that is.
//!
//! The file system itself is not asked, as we would wait for the same answer. Blind spots: paths
//! that lead there by a link; servers in processes that may not be looked at.

use std::fs;

use flagfinder_linux::mounts::{
    self, connection, number, of_path, Mount, FUSE_DEVICE, WAITS_FOR_SERVER_IN,
};
use flagfinder_linux::proc::{self, link, text_of};
use flagfinder_linux::syscalls;
use flagfinder_waits::call::descriptors;
use flagfinder_waits::proc::Call;

use super::obstacle::{Debtor, End, Obstacle, Who};
use super::process::Processes;
use super::report::{Kind, Known, RootKind};

/// What ends a call of a thread that sleeps in this function of the kernel. `path`: that the call
/// names. `None`: it does not wait for such a server.
pub fn served(
    processes: &mut Processes,
    pid: u32,
    call: &Call,
    path: Option<&str>,
    sleeps_in: &str,
) -> Option<Obstacle> {
    if !WAITS_FOR_SERVER_IN
        .iter()
        .any(|begins| sleeps_in.starts_with(begins))
    {
        return None;
    }
    let table = text_of(pid, "mountinfo").unwrap_or_default();
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
        let mut all = mounts::all(&table);
        all.find(|mount| mount.id == id)
    };
    let mount = match &whole {
        Some(path) => of_path(&table, path),
        None => of_fd(),
    };
    let mount = mount.filter(Mount::is_served);
    let what = match &mount {
        Some(mount) => format!("the file system {} ({})", mount.place, mount.kind),
        None => "a file system of FUSE".to_owned(),
    };
    let call = syscalls::name(call.number);
    let mut debtors: Vec<Debtor> = Vec::new();
    for owner in processes.owners.of(FUSE_DEVICE) {
        let connection = connection(owner.pid, owner.fd);
        let wanted = mount.as_ref().map(|mount| mount.device.1);
        if connection.is_some() && wanted.is_some() && connection != wanted {
            continue;
        }
        let who = Who::Process(owner.pid, link(owner.pid, owner.fd));
        if debtors.iter().any(|debtor| debtor.who == who) {
            continue;
        }
        let reason = format!(
            "process {} ({}) answers for it, by fd {} ({FUSE_DEVICE})",
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
