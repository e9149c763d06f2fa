// SPDX-License-Identifier: MIT
//! What /proc tells about the threads that are there, and where a process has code.

use std::fs::{self, File};
use std::io::Read;

use flagfinder_linux::proc::{self, Stat};

use crate::facts::ThreadFact;
use crate::protocol::Member;

/// Empty if the process is gone.
pub(crate) fn thread_name(pid: u32, tid: u32) -> String {
    proc::name(pid, tid).unwrap_or_default()
}

/// Its threads, with their names.
pub(crate) fn threads_of(pid: u32) -> Vec<ThreadFact> {
    // Kernel threads have no memory and so no map.
    let maps = File::open(proc::path(pid, "maps"));
    let begins = maps.and_then(|mut maps| maps.read(&mut [0]));
    let kernel =
        begins.is_ok_and(|got| got == 0) && fs::read_link(format!("/proc/{pid}/exe")).is_err();
    let stat = Stat::of(pid);
    let parent = stat.and_then(|stat| stat.field(Stat::PARENT)).unwrap_or(0);
    let tids = proc::threads(pid).unwrap_or_default();
    tids.into_iter()
        .map(|tid| ThreadFact {
            tid,
            pid,
            name: thread_name(pid, tid),
            kernel,
            parent,
        })
        .collect()
}

pub(crate) fn all_threads() -> Vec<ThreadFact> {
    let pids = proc::processes().into_iter();
    pids.flat_map(threads_of).collect()
}

/// The executable lines of /proc/PID/maps; `None` when it is gone or has none.
pub(crate) fn code_maps(pid: u32) -> Option<String> {
    let text = proc::text_of(pid, "maps").ok()?;
    let is_code = |line: &&str| {
        line.split(' ')
            .nth(1)
            .is_some_and(|flags| flags.contains('x'))
    };
    let lines: Vec<&str> = text.lines().filter(is_code).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

pub(crate) fn span(line: &str) -> Option<(u64, u64, &str)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let path = rest.split_whitespace().nth(4).unwrap_or("");
    Some((hex(start)?, hex(end)?, path))
}

/// The program's code, and from the first to the last byte of all other code below the stack.
pub(crate) fn code_ranges(maps: &str, program: &str) -> Member {
    let spans: Vec<(u64, u64, &str)> = maps.lines().filter_map(span).collect();
    let extent = |wanted: &dyn Fn(&str) -> bool| {
        let matching = || spans.iter().filter(|(_, _, path)| wanted(path));
        let start = matching().map(|span| span.0).min().unwrap_or(0);
        let end = matching().map(|span| span.1).max().unwrap_or(0);
        (start, end - start)
    };
    let (program_start, program_bytes) = extent(&|path| path == program);
    let (libraries, libraries_bytes) = extent(&|path| path != program && !path.starts_with('['));
    Member {
        program: program_start,
        program_bytes,
        libraries,
        libraries_bytes,
        ..Member::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_and_the_rest_are_told_apart() {
        let maps = "1000-2000 r-xp 00001000 08:01 12 /bin/app\n\
                    7000-8000 r-xp 00000000 08:01 13 /lib/a.so\n\
                    9000-a000 r-xp 00000000 08:01 14 /lib/b.so\n\
                    f000-f800 r-xp 00000000 00:00 0 [vdso]";
        let ranges = code_ranges(maps, "/bin/app");
        assert_eq!((ranges.program, ranges.program_bytes), (0x1000, 0x1000));
        assert_eq!((ranges.libraries, ranges.libraries_bytes), (0x7000, 0x3000));
        assert_eq!(code_ranges("", "/bin/app"), Member::default());
    }
}
