// SPDX-License-Identifier: MIT
//! A process's Unix sockets: their names, and their other ends.

use std::io;

use crate::sockets::Sockets;
pub use crate::sockets::UnixEnd;

/// What /proc tells of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixName {
    /// `None`: it has no name.
    pub path: Option<String>,
    /// It takes connections.
    pub is_listening: bool,
}

/// `None`: it is no Unix socket of the process's network namespace.
pub fn name(pid: u32, inode: u32) -> Option<UnixName> {
    /// SO_ACCEPTCON in the column of flags.
    const LISTENS: &str = "00010000";
    let table = flagfinder_linux::proc::text(format!("/proc/{pid}/net/unix")).unwrap_or_default();
    let inode = inode.to_string();
    let of = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (fields.get(6) == Some(&&*inode)).then(|| UnixName {
            path: fields.get(7).map(|&path| path.to_owned()),
            is_listening: fields.get(3) == Some(&LISTENS),
        })
    };
    table.lines().skip(1).find_map(of)
}

/// The other end of one, which the kernel alone tells; `None`: it has none.
///
/// # Errors
/// When the kernel has no sock_diag, or the process's namespace may not be entered.
pub fn end(pid: u32, inode: u32) -> io::Result<Option<UnixEnd>> {
    Sockets::of(pid)?.unix_end(inode)
}
