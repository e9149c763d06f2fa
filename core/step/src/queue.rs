// SPDX-License-Identifier: MIT
//! For how long a thread has run, and has waited for a processor, since its start.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Enough for three numbers.
const LINE: usize = 64;

/// For how long a thread ran, and waited for a processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    pub ran: Duration,
    pub waited: Duration,
}

/// For how long any thread waited; `None` where the kernel does not count it.
pub(crate) fn of(tid: u32) -> Option<Duration> {
    Counts::of(tid).now().map(|times| times.waited)
}

/// The counts of a thread, which are asked again and again.
pub(crate) struct Counts(Option<File>);

impl Counts {
    /// Of the calling thread.
    pub fn own() -> Counts {
        Counts(File::open("/proc/thread-self/schedstat").ok())
    }

    pub fn of(tid: u32) -> Counts {
        Counts(File::open(format!("/proc/{tid}/schedstat")).ok())
    }

    /// `None` where the kernel does not count.
    pub fn now(&self) -> Option<Times> {
        let mut line = [0; LINE];
        let got = self.0.as_ref()?.read_at(&mut line, 0).ok()?;
        parse(std::str::from_utf8(&line[..got]).ok()?)
    }

    /// Zero where the kernel does not count it.
    pub fn waited(&self) -> Duration {
        self.now().unwrap_or_default().waited
    }
}

fn parse(text: &str) -> Option<Times> {
    let mut numbers = text.split_whitespace().map(|number| number.parse().ok());
    let mut next = || numbers.next().flatten().map(Duration::from_nanos);
    Some(Times {
        ran: next()?,
        waited: next()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_two_numbers_count() {
        let times = Times {
            ran: Duration::from_nanos(71),
            waited: Duration::from_nanos(500),
        };
        assert_eq!(parse("71 500 3\n"), Some(times));
        assert_eq!(parse("71"), None);
        let own = Counts::own();
        // SAFETY: cannot fail.
        let before = of(unsafe { libc::gettid() } as u32);
        assert!(before.is_none_or(|before| before <= own.waited()));
    }
}
