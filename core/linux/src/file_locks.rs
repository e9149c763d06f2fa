// SPDX-License-Identifier: MIT
//! Lines of /proc/locks, and those of /proc/PID/fdinfo that begin with `lock:`.

/// `1: -> POSIX  ADVISORY  WRITE 1234 08:02:131 0 EOF`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line<'t> {
    /// With its colon: `1:`. A process that waits for a lock has the number of the lock.
    pub id: &'t str,
    /// The line is no lock, but a process that waits for one.
    pub is_blocked: bool,
    /// `FLOCK`, `POSIX`, `OFDLCK`.
    pub kind: &'t str,
    /// It keeps out those that read, too.
    pub writes: bool,
    /// -1: an open file's, not a process's.
    pub pid: i32,
    /// Device and inode: `08:02:131`.
    pub file: &'t str,
}

impl<'t> Line<'t> {
    /// `None`: it is no such line.
    pub fn parse(text: &'t str) -> Option<Line<'t>> {
        let mut fields = text.split_whitespace().peekable();
        let id = fields.next()?;
        let is_blocked = fields.next_if_eq(&"->").is_some();
        let kind = fields.next()?;
        let mut rest = fields.skip(1);
        Some(Line {
            id,
            is_blocked,
            kind,
            writes: rest.next()? == "WRITE",
            pid: rest.next()?.parse().ok()?,
            file: rest.next()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read() {
        let held = Line::parse("7: FLOCK  ADVISORY  WRITE 1234 08:02:131 0 EOF").unwrap();
        assert_eq!((held.id, held.kind, held.pid), ("7:", "FLOCK", 1234));
        assert_eq!((held.file, held.is_blocked), ("08:02:131", false));
        assert!(held.writes);
        let blocked = Line::parse("7: -> OFDLCK ADVISORY  READ -1 08:02:131 0 EOF").unwrap();
        assert!(blocked.is_blocked && blocked.pid == -1 && !blocked.writes);
        assert_eq!(Line::parse("7: FLOCK"), None);
    }
}
