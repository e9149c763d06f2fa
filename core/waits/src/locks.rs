// SPDX-License-Identifier: MIT
//! Who holds the file lock that a process waits for, as /proc/locks tells.

use std::fs;

/// It waits for a lock on a file: flock, fcntl with F_SETLKW or F_OFD_SETLKW.
pub(crate) fn takes_file_lock(number: u32, args: &[u64; 6]) -> bool {
    let waits = [libc::F_SETLKW, libc::F_OFD_SETLKW].map(|command| command as u64);
    match i64::from(number) {
        libc::SYS_flock => true,
        libc::SYS_fcntl => waits.contains(&args[1]),
        _ => false,
    }
}

/// Processes that hold the lock for which `pid` waits. A lock is told to be of who took it, also
/// where another has inherited it since: so the process itself is no answer.
pub(crate) fn holders(pid: u32) -> Vec<u32> {
    let table = fs::read_to_string("/proc/locks").unwrap_or_default();
    holders_in(&table, pid)
}

/// A lock's line, `1: FLOCK ADVISORY WRITE 12 08:01:34 0 EOF`, stands before those of who waits for
/// it, `1: -> FLOCK ADVISORY WRITE 13 ..`.
fn holders_in(table: &str, pid: u32) -> Vec<u32> {
    let mut holder = None;
    let mut found = Vec::new();
    for line in table.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let waits = fields.get(1) == Some(&"->");
        let owner = fields.get(if waits { 5 } else { 4 });
        let owner = owner.and_then(|field| field.parse::<u32>().ok());
        if !waits {
            holder = owner;
        } else if owner == Some(pid) {
            found.extend(holder.filter(|&held| held != pid && !found.contains(&held)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_leads_to_the_line_of_who_holds() {
        let table = "1: POSIX  ADVISORY  WRITE 10 08:01:7 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 12 08:01:9 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 13 08:01:9 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 14 08:01:9 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 12 08:01:9 0 EOF\n\
                     3: OFDLCK ADVISORY  WRITE -1 08:01:9 0 EOF\n\
                     3: -> OFDLCK ADVISORY  WRITE 15 08:01:9 0 EOF";
        assert_eq!(holders_in(table, 13), [12]);
        assert_eq!(holders_in(table, 14), [12]);
        assert_eq!(
            (holders_in(table, 12), holders_in(table, 15)),
            (vec![], vec![])
        );
    }
}
