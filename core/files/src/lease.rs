// SPDX-License-Identifier: MIT
//! Files on which another process has a lease (fcntl(2), F_SETLEASE). To open such a file takes the
//! lease away: its holder gets a signal, of which he may die, and whoever opens it waits for him.
//!
//! In: what stat(2) says of a file. Out: whether to open it to read would break a lease.
//! Called by the opener: it allocates nothing, and calls nothing but the kernel. Blind spots: a
//! lease that comes between the look and the open; one of a process that is in no pid namespace of
//! ours, which /proc/locks leaves out; overlaid files, whose lower file has it. Where file systems
//! have no device of their own, stat(2) and /proc/locks may name another one: the file's number
//! alone counts then.

use crate::message::Facts;

/// Does another process have a lease on it that opening it to read would break? The room is for
/// lines of /proc/locks.
pub(crate) fn is_leased(facts: &Facts, room: &mut [u8]) -> bool {
    // SAFETY: a text of ours.
    let locks = unsafe { libc::open(c"/proc/locks".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if locks < 0 {
        return false;
    }
    let mut held = 0;
    let mut found = false;
    while !found && held < room.len() {
        let to = &mut room[held..];
        // SAFETY: a buffer of ours, and no more than it holds.
        let got = unsafe { libc::read(locks, to.as_mut_ptr().cast(), to.len()) };
        let Ok(got @ 1..) = usize::try_from(got) else {
            break;
        };
        held += got;
        let end = room[..held].iter().rposition(|byte| *byte == b'\n');
        let end = end.map_or(0, |at| at + 1);
        let mut lines = room[..end].split(|byte| *byte == b'\n');
        found = lines.any(|line| names(line, facts));
        room.copy_within(end..held, 0);
        held -= end;
    }
    // SAFETY: it is nobody else's.
    unsafe { libc::close(locks) };
    found
}

/// `7: LEASE  ACTIVE    WRITE 4711 fe:00:1234 0 EOF`. A lease to read is not broken by who reads.
fn names(line: &[u8], facts: &Facts) -> bool {
    let Ok(line) = std::str::from_utf8(line) else {
        return false;
    };
    let mut words = line.split_ascii_whitespace().skip(1);
    let is_lease = words.next() == Some("LEASE");
    let (state, kind) = (words.next(), words.next());
    let is_broken = state == Some("BREAKING") || kind == Some("WRITE");
    let file = words.nth(1).and_then(|file| {
        let mut numbers = file.split(':');
        let mut hexadecimal = || u32::from_str_radix(numbers.next()?, 16).ok();
        let device = (hexadecimal()?, hexadecimal()?);
        let inode: u64 = numbers.next()?.parse().ok()?;
        Some((device, inode))
    });
    let device = (libc::major(facts.device), libc::minor(facts.device));
    is_lease
        && is_broken
        && file.is_some_and(|(its, inode)| {
            inode == facts.inode && (its == device || (its.0, device.0) == (0, 0))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_a_reader_breaks_is_told_from_others() {
        let facts = Facts {
            device: libc::makedev(0xfe, 1),
            inode: 77,
            ..Facts::default()
        };
        let of = |rest: &str| names(format!("3: {rest} 0 EOF").as_bytes(), &facts);
        assert!(of("LEASE  ACTIVE    WRITE 4711 fe:01:77"));
        assert!(of("LEASE  BREAKING  READ  4711 fe:01:77"));
        assert!(!of("LEASE  ACTIVE    READ  4711 fe:01:77"));
        assert!(!of("POSIX  ADVISORY  WRITE 4711 fe:01:77"));
        assert!(!of("LEASE  ACTIVE    WRITE 4711 fe:01:78"));
        assert!(!of("LEASE  ACTIVE    WRITE 4711 fe:02:77"));
        assert!(!of("LEASE  ACTIVE    WRITE 4711 00:01:77"));
        assert!(!names(b"3: LEASE  ACTIVE    WRITE", &facts) && !names(b"", &facts));
        let other = Facts {
            device: libc::makedev(0, 40),
            ..facts
        };
        assert!(names(b"3: LEASE  ACTIVE    WRITE 1 00:1f:77 0 EOF", &other));
    }
}
