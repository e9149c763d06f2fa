// SPDX-License-Identifier: MIT
//! Mounted file systems, and the processes that answer for some of them (FUSE).
//!
//! In: /proc/PID/mountinfo. No file system is asked, as one whose server hangs would hold us too.
//! Blind spots: paths that lead into a mount by a link; servers in processes that may not be
//! looked at.

use crate::proc;

/// What the server of a FUSE file system has open.
pub const FUSE_DEVICE: &str = "/dev/fuse";
/// Functions of the kernel in which a thread waits for such a server.
pub const WAITS_FOR_SERVER_IN: [&str; 2] = ["request_wait_answer", "fuse_"];
/// File systems whose answers come from another machine.
const REMOTE: [&str; 13] = [
    "nfs", "cifs", "smb", "9p", "ceph", "afs", "coda", "gfs2", "ocfs2", "lustre", "gpfs", "beegfs",
    "orangefs",
];

/// A line of /proc/PID/mountinfo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mount<'t> {
    /// Its number in this list.
    pub id: u32,
    /// Of its device, major and minor number. With FUSE, the minor one is that of the connection to
    /// its server.
    pub device: (u32, u32),
    /// The folder on which it is mounted.
    pub place: &'t str,
    /// The file system's: `ext4`, `fuse.sshfs`.
    pub kind: &'t str,
}

impl Mount<'_> {
    /// `None`: it is no such line.
    pub fn parse(line: &str) -> Option<Mount<'_>> {
        let (own, of_system) = line.split_once(" - ")?;
        let mut own = own.split(' ');
        let id = own.next()?.parse().ok()?;
        let (major, minor) = own.nth(1)?.split_once(':')?;
        Some(Mount {
            id,
            device: (major.parse().ok()?, minor.parse().ok()?),
            place: own.nth(1)?,
            kind: of_system.split(' ').next()?,
        })
    }

    fn has(&self, path: &str) -> bool {
        let rest = path.strip_prefix(self.place.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Does a process give its answers?
    pub fn is_served(&self) -> bool {
        // Not `fusectl`, by which the kernel tells of these.
        let rest = self.kind.strip_prefix("fuse");
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.') || rest == "blk")
    }

    /// Do its answers come from a process or from another machine, so that they may never come?
    pub fn may_hang(&self) -> bool {
        self.is_served() || REMOTE.iter().any(|kind| self.kind.starts_with(kind))
    }
}

/// All mounts of such a text.
pub fn all(text: &str) -> impl Iterator<Item = Mount<'_>> {
    text.lines().filter_map(Mount::parse)
}

/// The mount that a path is in: the innermost one, and of several at one place the last.
pub fn of_path<'t>(text: &'t str, path: &str) -> Option<Mount<'t>> {
    all(text)
        .filter(|mount| mount.has(path))
        .max_by_key(|mount| mount.place.len())
}

/// A number in /proc/PID/fdinfo/FD. `field`: its name, with the colon.
pub fn number(info: &str, field: &str) -> Option<u32> {
    let line = info.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().parse().ok()
}

/// The connection that a descriptor of a server belongs to; older kernels do not tell.
pub fn connection(pid: u32, fd: i32) -> Option<u32> {
    let info = proc::text_of(pid, &format!("fdinfo/{fd}")).ok()?;
    number(&info, "fuse_connection:")
}

/// The process that serves this connection, as far as it is to be seen.
pub fn server(connection_of_mount: u32) -> Option<u32> {
    proc::processes().into_iter().find(|pid| {
        proc::descriptors(*pid).into_iter().any(|fd| {
            proc::link(*pid, fd).is_some_and(|link| link == FUSE_DEVICE)
                && connection(*pid, fd) == Some(connection_of_mount)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "22 1 254:0 / / rw - ext4 /dev/vda rw\n\
        40 22 0:45 / /mnt/a rw,nosuid shared:3 - fuse.sshfs host: rw\n\
        41 22 0:46 / /mnt/ab rw - fuse.bindfs /src rw\n\
        42 22 0:47 / /mnt/n rw - nfs4 host:/x rw\n\
        43 22 0:48 / /sys/fs/fuse/connections rw - fusectl fusectl rw\n";

    #[test]
    fn a_path_is_in_the_innermost_mount() {
        let of = |path| of_path(MOUNTS, path).map(|mount| (mount.device.1, mount.is_served()));
        assert_eq!(of("/mnt/a/x"), Some((45, true)));
        assert_eq!(of("/mnt/a"), Some((45, true)));
        assert_eq!(of("/mnt/ab/x"), Some((46, true)));
        assert_eq!(of("/mnt/abc"), Some((0, false)));
    }

    #[test]
    fn answers_of_a_process_or_of_another_machine_may_never_come() {
        let hang = |path| of_path(MOUNTS, path).map(|mount| mount.may_hang());
        assert_eq!(hang("/etc/passwd"), Some(false));
        assert_eq!(hang("/mnt/a/x"), Some(true));
        assert_eq!(hang("/mnt/n/x"), Some(true));
        assert_eq!(hang("/sys/fs/fuse/connections/45"), Some(false));
    }

    #[test]
    fn the_server_names_its_connection() {
        let info = "pos:\t0\nflags:\t02\nmnt_id:\t27\nfuse_connection:\t45\n";
        assert_eq!(number(info, "fuse_connection:"), Some(45));
        assert_eq!(number(info, "mnt_id:"), Some(27));
        assert_eq!(number("", "mnt_id:"), None);
    }
}
