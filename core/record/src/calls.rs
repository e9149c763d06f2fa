// SPDX-License-Identifier: MIT
//! What a thread's system calls say about it: does it take data, and do its waits end without any?

use flagfinder_linux::syscalls::{self, Role};
use flagfinder_linux::timeout::{self, Limit};
use flagfinder_trace::Event;

/// Does the thread have new data when the call ends?
pub fn takes_data(event: &Event) -> bool {
    let &Event::SyscallExit { number, result, .. } = event else {
        return false;
    };
    result > 0 && syscalls::consumes(number) && !syscalls::gives(number)
}

/// Does one of the calls wait for descriptors until its time limit?
pub fn times_out<'a>(events: impl Iterator<Item = &'a Event>) -> bool {
    let mut waits = None;
    for event in events {
        match event {
            Event::SyscallEnter(call) => {
                let polls = syscalls::role(call.number, &call.args) == Role::Poll;
                let waits_at_all = match timeout::limit(call.number, &call.args) {
                    Some(Limit::Milliseconds(most)) => most > 0,
                    Some(Limit::Time { address, .. }) => address != 0,
                    None => false,
                };
                waits = (polls && waits_at_all).then_some(call.number);
            }
            Event::SyscallExit {
                number, result: 0, ..
            } if waits == Some(*number) => return true,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_for_descriptors_that_ends_by_its_time_limit_is_told() {
        let call = |number: i64, args: [u64; 6]| Event::enter(1, number as u32, args);
        let returned = |number: i64, result| Event::SyscallExit {
            ts: 2,
            number: number as u32,
            result,
        };
        let waits = |limit, result| {
            let number = libc::SYS_epoll_wait;
            let events = [
                call(number, [3, 0x1000, 8, limit, 0, 0]),
                returned(number, result),
            ];
            times_out(events.iter())
        };
        assert!(waits(100, 0));
        assert!(!waits(100, 1), "something was ready");
        assert!(!waits(0, 0), "it only asks");
        let sleep = [
            call(libc::SYS_poll, [0, 0, 100, 0, 0, 0]),
            returned(libc::SYS_poll, 0),
        ];
        assert!(!times_out(sleep.iter()), "it asks for no descriptor");
    }
}
