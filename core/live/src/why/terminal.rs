// SPDX-License-Identifier: MIT
//! Who is at the other side of a pseudo terminal, for the program that made it: expect, script,
//! sshd, a terminal's window. For a program that reads the terminal, the wait ends at the person
//! who would type.

/// What descriptors of masters link to.
pub const MASTERS: [&str; 2] = ["/dev/ptmx", "/dev/pts/ptmx"];

/// The terminal whose master this descriptor is, as /proc/PID/fd links to it.
pub fn of_master(pid: u32, fd: i32, target: &str) -> Option<String> {
    if !MASTERS.contains(&target) {
        return None;
    }
    number(&flagfinder_linux::proc::text_of(pid, &format!("fdinfo/{fd}")).ok()?)
        .map(|number| format!("/dev/pts/{number}"))
}

fn number(info: &str) -> Option<u32> {
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("tty-index:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_master_tells_its_terminals_number() {
        assert_eq!(number("pos:\t0\nflags:\t02\ntty-index:\t12\n"), Some(12));
        assert_eq!(number("pos:\t0\n"), None);
        assert_eq!(of_master(1, 0, "/dev/pts/3"), None);
    }
}
