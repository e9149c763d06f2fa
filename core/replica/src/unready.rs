// SPDX-License-Identifier: MIT
//! Descriptors on which a copy found nothing, asked again at other moments.
//!
//! A copy sees one moment of its descriptors. Whoever sends may just be off its processor then, so
//! that a server seems to poll in vain. In: what copies did. Out: a descriptor that is ready by
//! now. Blind spots: what was ready only between two looks; descriptors of `select`, whose sets the
//! answer overwrites.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use flagfinder_linux::descriptors::{named, Named};
use flagfinder_linux::syscalls::{consumes, gives, role, Role};
use flagfinder_machine::Window;
use flagfinder_step::is_abandoned;

use crate::live::Live;
use crate::source::Source;

/// Most descriptors of one call that are asked.
const MOST: u64 = 64;
/// The time between two looks.
const BETWEEN: Duration = Duration::from_micros(200);
/// Bytes of `struct pollfd`.
const ENTRY: u64 = 8;

/// Descriptors that were not ready, and for what.
#[derive(Default)]
pub struct Unready {
    asked: BTreeSet<(i32, i16)>,
}

impl Unready {
    /// Those of calls that answered that nothing is ready.
    pub fn of(windows: &[Window], live: &Live) -> Unready {
        const AGAIN: i64 = -(libc::EAGAIN as i64);
        let mut asked = BTreeSet::new();
        for call in windows.iter().flat_map(|window| &window.syscalls) {
            let polls = role(call.number, &call.args) == Role::Poll;
            let in_vain = polls && call.result == Some(0)
                || consumes(call.number) && call.result == Some(AGAIN);
            match named(call.number, &call.args).filter(|_| in_vain) {
                Some(Named::One(descriptor)) => {
                    let events = match gives(call.number) {
                        true => libc::POLLOUT,
                        false => libc::POLLIN,
                    };
                    asked.insert((descriptor, events));
                }
                Some(Named::Entries { address, count }) => {
                    for number in 0..count.min(MOST) {
                        asked.extend(entry(live, address.wrapping_add(number * ENTRY)));
                    }
                }
                Some(Named::Sets { .. }) | None => {}
            }
        }
        Unready { asked }
    }

    /// A descriptor that is ready at one of many looks within this time. If none is, the whole time
    /// passes. The looks are many because a thread that asks all the time takes its data at once.
    pub fn ready_within(&self, live: &Live, time: Duration) -> Option<i32> {
        let begin = Instant::now();
        loop {
            if let Some(descriptor) = self.ready(live) {
                return Some(descriptor);
            }
            let left = time.saturating_sub(begin.elapsed());
            if left.is_zero() || is_abandoned() {
                return None;
            }
            let some = !self.asked.is_empty();
            std::thread::sleep(if some { left.min(BETWEEN) } else { left });
        }
    }

    /// A descriptor that is ready now.
    fn ready(&self, live: &Live) -> Option<i32> {
        let descriptors = live.descriptors()?;
        let is_ready = |(descriptor, events): &&(i32, i16)| {
            let found = descriptors.ready(*descriptor, *events);
            found.is_ok_and(|found| found & libc::POLLNVAL == 0 && found != 0)
        };
        self.asked.iter().find(is_ready).map(|(fd, _)| *fd)
    }
}

/// The descriptor of a `struct pollfd`, and what it is asked for.
fn entry(live: &Live, address: u64) -> Option<(i32, i16)> {
    let mut bytes = [0; 6];
    let [a, b, c, d, e, f] = live.bytes(address, &mut bytes).then_some(bytes)?;
    let descriptor = i32::from_le_bytes([a, b, c, d]);
    (descriptor >= 0).then_some((descriptor, i16::from_le_bytes([e, f])))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::{AsRawFd, FromRawFd};

    use flagfinder_machine::Syscall;

    use super::*;

    fn windows(number: i64, args: [u64; 6], result: i64) -> [Window; 1] {
        let mut window = Window::default();
        window.syscalls.push(Syscall {
            step: 0,
            number: number as u32,
            args,
            result: Some(result),
            written: Vec::new(),
        });
        [window]
    }

    #[test]
    fn a_pipe_that_was_empty_is_ready_once_something_is_sent() {
        let mut ends = [0i32; 2];
        // SAFETY: two integers to fill; fresh descriptors that nobody else owns.
        let (output, mut input) = unsafe {
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]))
        };
        let live = Live::open(std::process::id()).expect("this process");
        let fd = output.as_raw_fd();
        let entry = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let at = (&raw const entry) as u64;
        let polled = Unready::of(&windows(libc::SYS_poll, [at, 1, 0, 0, 0, 0], 0), &live);
        let read = [fd as u64, at, 1, 0, 0, 0];
        let again = Unready::of(&windows(libc::SYS_read, read, -11), &live);
        let taken = Unready::of(&windows(libc::SYS_read, read, 1), &live);
        let is_known = |unready: &Unready| !unready.asked.is_empty();
        assert!(!is_known(&taken) && is_known(&polled));
        assert_eq!((polled.ready(&live), again.ready(&live)), (None, None));
        input.write_all(b"x").expect("room");
        assert_eq!(
            (polled.ready(&live), again.ready(&live)),
            (Some(fd), Some(fd))
        );
    }
}
