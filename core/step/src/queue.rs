// SPDX-License-Identifier: MIT
//! For how long a thread has waited for a processor since its start.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Enough for three numbers.
const LINE: usize = 64;

/// Of any thread; `None` where the kernel does not count it.
pub(crate) fn of(tid: u32) -> Option<Duration> {
    parse(&std::fs::read_to_string(format!("/proc/{tid}/schedstat")).ok()?)
}

/// Of the calling thread, which asks again and again.
pub(crate) struct Own(Option<File>);

impl Own {
    pub fn open() -> Own {
        Own(File::open("/proc/thread-self/schedstat").ok())
    }

    /// Zero where the kernel does not count it.
    pub fn waited(&self) -> Duration {
        let read = |file: &File| {
            let mut line = [0; LINE];
            let got = file.read_at(&mut line, 0).ok()?;
            parse(std::str::from_utf8(&line[..got]).ok()?)
        };
        self.0.as_ref().and_then(read).unwrap_or_default()
    }
}

fn parse(text: &str) -> Option<Duration> {
    let waited = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(waited))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_number_counts() {
        assert_eq!(parse("71 500 3\n"), Some(Duration::from_nanos(500)));
        assert_eq!(parse("71"), None);
        let own = Own::open();
        // SAFETY: cannot fail.
        let before = of(unsafe { libc::gettid() } as u32);
        assert!(before.is_none_or(|before| before <= own.waited()));
    }
}
