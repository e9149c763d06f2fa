// SPDX-License-Identifier: MIT
//! What calls answer in a copy of a dead thread: what the thread itself last got.
//!
//! In: the registers and the memory of a thread that had just come back from a call, or that still
//! waits in one. Out: the same answer where its copy makes that call again, and what that answer
//! said of descriptors. Of other polls the memory still holds the answer: what a program is told by
//! `poll` and `epoll_wait` stays in its arrays. Calls that remain are answered by supposition, if
//! one is made. Blind spot: what is told now may not be told again.

use std::io::Result;

use flagfinder_linux::syscalls;

use crate::answer::{error, Answer};
use crate::last_call::{halves, LastCall};
use crate::replica::Replica;
use crate::source::PAGE;

/// `struct epoll_event` on x86-64.
const EVENT: usize = 12;

impl Replica<'_> {
    /// What is known of a descriptor without asking. `entry`: where a poll wants to know it.
    pub(crate) fn recalled_ready(&mut self, fd: i32, events: i16, entry: Option<u64>) -> i16 {
        let last = self.recalled.last.clone();
        let known = last.as_ref().and_then(|last| last.ready.get(&fd).copied());
        let before = || {
            let before = self.original(entry.filter(|_| !self.waited())?);
            let is_its = halves(&before)[0] == fd;
            is_its.then(|| i16::from_le_bytes([before[6], before[7]]))
        };
        let mut found = known.or_else(before).unwrap_or(0);
        if self.moved.get(&fd).is_some_and(|bytes| *bytes > 0) {
            found &= !libc::POLLIN;
        }
        let found = found & (events | libc::POLLHUP | libc::POLLERR | libc::POLLNVAL);
        self.assumed |= known.is_none();
        found
    }

    /// Did its thread wait in a call? It was told nothing then, or had done with what it was told.
    fn waited(&self) -> bool {
        let last = self.recalled.last.as_ref();
        last.is_some_and(|last| last.result.is_none())
    }

    /// Memory as its thread left it.
    fn original<const N: usize>(&self, address: u64) -> [u8; N] {
        std::array::from_fn(|at| {
            let at = address.wrapping_add(at as u64);
            self.pages.page(at & !(PAGE - 1))[(at % PAGE) as usize]
        })
    }

    /// `epoll_wait`: how many events there are, once they are written.
    pub(crate) fn recalled_events(&mut self, number: u32, a: &[u64; 6]) -> Result<i64> {
        if let Some(last) = self.recalled.last.clone() {
            let is_same = last.number == number && last.arguments[0] == a[0];
            if let Some(result @ 1..) = last.result.filter(|_| is_same) {
                self.refill(&last, a)?;
                return Ok(result);
            }
        }
        self.assumed = true;
        let event: [u8; EVENT] = self.original(a[1]);
        if self.waited() || !is_event(&event) {
            return Ok(0);
        }
        self.write(a[1], &event)?;
        Ok(1)
    }

    /// The answer that the thread last got of this call, where it was the last that it made.
    pub(crate) fn answer_recalled(&mut self, number: u32, a: &[u64; 6]) -> Result<Option<Answer>> {
        let Some(last) = self.recalled.last.clone() else {
            return Ok(None);
        };
        if let Some(result) = last.result.filter(|_| last.is(number, a)) {
            self.refill(&last, a)?;
            return Ok(Some(Answer::Result(result)));
        }
        let takes = syscalls::consumes(number) && !syscalls::gives(number);
        let found = last.ready.get(&(a[0] as i32)).filter(|_| takes);
        Ok(match found {
            // Without data, all that is left to tell is that there will be none.
            Some(found) if found & (libc::POLLHUP | libc::POLLIN) == libc::POLLHUP => {
                Some(Answer::Result(0))
            }
            Some(&libc::POLLNVAL) => Some(error(libc::EBADF)),
            _ => None,
        })
    }

    /// Writes what the kernel wrote, where the call wants it now.
    fn refill(&mut self, last: &LastCall, a: &[u64; 6]) -> Result<()> {
        for (address, content) in &last.filled {
            let at = match *address == last.arguments[1] {
                true => a[1],
                false => *address,
            };
            self.write(at, content)?;
        }
        Ok(())
    }
}

/// Is it an event as the kernel writes it?
fn is_event(event: &[u8; EVENT]) -> bool {
    let events = u32::from_le_bytes([event[0], event[1], event[2], event[3]]);
    const EVENTS: u32 = (libc::EPOLLIN
        | libc::EPOLLPRI
        | libc::EPOLLOUT
        | libc::EPOLLERR
        | libc::EPOLLHUP
        | libc::EPOLLRDHUP) as u32;
    events != 0 && events & !EVENTS == 0
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use std::sync::Arc;

    use flagfinder_code::AddressSpace;

    use super::*;
    use crate::answer::Halt;
    use crate::descriptors::Descriptors;
    use crate::guessed::Guessed;
    use crate::last_call::Recalled;
    use crate::pages::Pages;
    use crate::source::{Identity, Region, Source, ThreadState, PAGE};
    use crate::window::go_round;

    const CODE: u64 = 0x40_0000;
    const DATA: u64 = 0x50_0000;
    const FD: u64 = 5;

    /// A dead process: a loop around one system call, and data.
    struct Dead {
        regions: [Region; 2],
        data: Vec<u8>,
    }

    impl Source for Dead {
        fn regions(&self) -> &[Region] {
            &self.regions
        }

        fn read_page(&self, address: u64, page: &mut [u8; PAGE as usize]) -> bool {
            // mov eax, r12d; syscall; jmp to the first
            const LOOP: [u8; 7] = [0x44, 0x89, 0xe0, 0x0f, 0x05, 0xeb, 0xf9];
            let content = if address == CODE {
                &LOOP[..]
            } else {
                &self.data
            };
            page[..content.len()].copy_from_slice(content);
            true
        }

        fn descriptors(&self) -> Option<&Descriptors> {
            None
        }
    }

    impl AddressSpace for Dead {
        fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
            let from = address
                .checked_sub(DATA)
                .map_or(usize::MAX, |at| at as usize);
            let bytes = self.data.get(from..).unwrap_or_default();
            let got = bytes.len().min(buffer.len());
            buffer[..got].copy_from_slice(&bytes[..got]);
            got
        }
    }

    fn dead(data: &[u8]) -> Dead {
        let region = |start, protection| Region {
            start,
            end: start + PAGE,
            protection,
            fresh: false,
            anonymous: false,
        };
        Dead {
            regions: [
                region(CODE, libc::PROT_READ | libc::PROT_EXEC),
                region(DATA, libc::PROT_READ | libc::PROT_WRITE),
            ],
            data: data.to_vec(),
        }
    }

    /// The results that a copy gets that makes the call again and again; why it went no further;
    /// whether they were assumed.
    fn results(
        dead: &Dead,
        number: libc::c_long,
        a: [u64; 6],
        recalled: Recalled,
    ) -> (Vec<i64>, Option<Halt>, bool) {
        let pages = Pages::new(dead);
        let mut copy = Replica::start(&pages, &state(number, a, recalled)).expect("a copy");
        let round = go_round(&mut copy, 12, Duration::from_secs(60), |_| false);
        let round = round.expect("it goes on");
        let calls = round.window.syscalls.iter();
        let results = calls.filter_map(|call| call.result).collect();
        (results, round.halt, copy.has_assumed())
    }

    /// Before the first instruction of the loop around the call.
    fn state(number: libc::c_long, a: [u64; 6], recalled: Recalled) -> ThreadState {
        // SAFETY: plain data.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        (registers.rip, registers.r12) = (CODE, number as u64);
        (registers.cs, registers.ss, registers.eflags) = (0x33, 0x2b, 0x202);
        [registers.rdi, registers.rsi, registers.rdx] = [a[0], a[1], a[2]];
        [registers.r10, registers.r8, registers.r9] = [a[3], a[4], a[5]];
        ThreadState {
            registers,
            extended: Vec::new(),
            stack: Vec::new(),
            identity: Identity::default(),
            recalled,
        }
    }

    fn last(dead: &Dead, number: libc::c_long, a: [u64; 6], result: Option<i64>) -> Recalled {
        Recalled {
            last: Some(Arc::new(LastCall::of(dead, number as u32, a, result))),
            guesses: Vec::new(),
        }
    }

    #[test]
    fn a_call_answers_what_it_last_answered_and_no_other_call_does() {
        let dead = dead(b"");
        let accept = [FD, 0, 0, 0, 0, 0];
        let full = Some(-i64::from(libc::EMFILE));
        let known = last(&dead, libc::SYS_accept, accept, full);
        let (got, halt, assumed) = results(&dead, libc::SYS_accept, accept, known.clone());
        assert_eq!((halt, assumed), (None, false));
        assert_eq!(got, [-24; 4]);
        let of_another = [FD + 1, 0, 0, 0, 0, 0];
        let (_, halt, _) = results(&dead, libc::SYS_accept, of_another, known);
        assert!(matches!(halt, Some(Halt::Call { .. })));
    }

    #[test]
    fn a_read_of_a_pipe_whose_writer_went_brings_nothing() {
        let entry = [FD as u8, 0, 0, 0, 1, 0, libc::POLLHUP as u8, 0];
        let dead = dead(&entry);
        let polled = last(&dead, libc::SYS_poll, [DATA, 1, 0, 0, 0, 0], Some(1));
        let read = [FD, DATA + 64, 1, 0, 0, 0];
        let (got, halt, _) = results(&dead, libc::SYS_read, read, polled);
        assert_eq!((&got[..2], halt), (&[0, 0][..], None));
    }

    #[test]
    fn a_poll_finds_what_it_found_and_nothing_while_its_thread_waits() {
        let poll = [DATA, 1, u64::from(u32::MAX), 0, 0, 0];
        let entry = [FD as u8, 0, 0, 0, 1, 0, 1, 0];
        let dead = dead(&entry);
        let found = last(&dead, libc::SYS_poll, poll, Some(1));
        let (got, halt, assumed) = results(&dead, libc::SYS_poll, poll, found);
        assert_eq!((&got[..2], halt, assumed), (&[1, 1][..], None, false));
        let waits = last(&dead, libc::SYS_poll, poll, None);
        let (_, halt, assumed) = results(&dead, libc::SYS_poll, poll, waits);
        assert!(matches!(halt, Some(Halt::Blocks { .. })) && assumed);
        // Of a thread that was in no call its memory tells.
        let (got, _, assumed) = results(&dead, libc::SYS_poll, poll, Recalled::default());
        assert_eq!((&got[..2], assumed), (&[1, 1][..], true));
    }

    #[test]
    fn what_is_unknown_is_answered_as_it_is_guessed() {
        let (dead, read) = (dead(b""), [FD, DATA + 64, 1, 0, 0, 0]);
        let (_, halt, _) = results(&dead, libc::SYS_read, read, Recalled::default());
        let halt = halt.expect("nobody knows what it reads");
        let pages = Pages::new(&dead);
        let state = state(libc::SYS_read, read, Recalled::default());
        let mut copy = Replica::start(&pages, &state).expect("a copy");
        let guesses = copy.guesses(&halt).expect("it lives");
        let end = guesses
            .into_iter()
            .find(|guess| guess.answer == Guessed::Result(0));
        let ends = Recalled {
            last: None,
            guesses: end.into_iter().collect(),
        };
        let (got, halt, assumed) = results(&dead, libc::SYS_read, read, ends.clone());
        assert_eq!((&got[..2], halt, assumed), (&[0, 0][..], None, true));
        let of_another = [FD + 1, DATA + 64, 1, 0, 0, 0];
        let (_, halt, _) = results(&dead, libc::SYS_read, of_another, ends);
        assert!(matches!(halt, Some(Halt::Call { .. })));
    }

    #[test]
    fn where_a_poll_found_something_it_is_not_said_that_nothing_is_there() {
        let entry = [FD as u8, 0, 0, 0, 1, 0, libc::POLLIN as u8, 0];
        let dead = dead(&entry);
        let pages = Pages::new(&dead);
        let answers = |bytes, found| {
            let recalled = last(&dead, libc::SYS_poll, [DATA, 1, 0, 0, 0, 0], found);
            let read = [FD, DATA + 64, bytes, 0, 0, 0];
            let state = state(libc::SYS_read, read, recalled);
            let mut copy = Replica::start(&pages, &state).expect("a copy");
            let halt = Halt::Call {
                number: libc::SYS_read as u32,
                arguments: read,
            };
            let guesses = copy.guesses(&halt).expect("it lives").into_iter();
            guesses.map(|guess| guess.answer).collect::<Vec<_>>()
        };
        let again = Guessed::Result(-i64::from(libc::EAGAIN));
        assert!(answers(1, None).contains(&again));
        assert!(!answers(1, Some(1)).contains(&again));
        assert_eq!(
            answers(8, Some(1)),
            [Guessed::Result(8)],
            "a timer has ticked"
        );
    }

    #[test]
    fn what_is_said_to_be_taken_is_not_ready_any_more() {
        let entry = [FD as u8, 0, 0, 0, 1, 0, libc::POLLIN as u8, 0];
        let dead = dead(&entry);
        let pages = Pages::new(&dead);
        let read = [FD, DATA + 64, 8, 0, 0, 0];
        let mut copy = Replica::start(&pages, &state(libc::SYS_read, read, Recalled::default()))
            .expect("a copy");
        assert_eq!(
            copy.ready(FD as i32, libc::POLLIN, Some(DATA)),
            Some(libc::POLLIN)
        );
        let halt = Halt::Call {
            number: libc::SYS_read as u32,
            arguments: read,
        };
        copy.recalled.guesses = copy.guesses(&halt).expect("it lives");
        let counts = copy.answer_or_guess(libc::SYS_read as u32, &read);
        assert!(matches!(counts, Ok(Answer::Result(8))), "an eventfd");
        assert_eq!(copy.ready(FD as i32, libc::POLLIN, Some(DATA)), Some(0));
    }

    #[test]
    fn a_poll_is_told_that_one_descriptor_is_ready() {
        let entry = |fd: u64| [fd as u8, 0, 0, 0, 1, 0, 0, 0];
        let dead = dead(&[entry(FD), entry(FD + 1)].concat());
        let poll = [DATA, 2, u64::from(u32::MAX), 0, 0, 0];
        let pages = Pages::new(&dead);
        let state = state(libc::SYS_poll, poll, Recalled::default());
        let mut copy = Replica::start(&pages, &state).expect("a copy");
        let round = go_round(&mut copy, 12, Duration::from_secs(60), |_| false);
        let halt = round.expect("it goes on").halt.expect("it would wait");
        let guesses = copy.guesses(&halt).expect("it lives");
        let hung_up = Guessed::Ready(FD as i32 + 1, libc::POLLHUP);
        let guess = guesses.into_iter().find(|guess| guess.answer == hung_up);
        let recalled = Recalled {
            last: None,
            guesses: vec![guess.expect("it may have hung up")],
        };
        let state = self::state(libc::SYS_poll, poll, recalled);
        let mut copy = Replica::start(&pages, &state).expect("a copy");
        let round = go_round(&mut copy, 12, Duration::from_secs(60), |_| false);
        assert_eq!(round.expect("it goes on").halt, None);
        let found = copy
            .words::<2>(DATA)
            .expect("it lives")
            .expect("it is there");
        assert_eq!(
            found.map(|entry| (entry as u64 >> 48) as i16),
            [0, libc::POLLHUP]
        );
        assert_eq!(copy.changed_words().expect("it lives"), 1);
    }
}
