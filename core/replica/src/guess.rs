// SPDX-License-Identifier: MIT
//! Calls of a dead thread whose answer is not known: what they may have answered.
//!
//! In: a call that halts a copy. Out: the answers that such a call gives a thread which asks again
//! and again; and what the copy is answered where one of them is taken. Which of them the thread
//! got, the copy's further way shows: with that one it comes round to the same call, and holds what
//! its thread held. Blind spots: data that came; what epoll descriptors watch; calls that wait.

use std::io::Result;

use flagfinder_linux::descriptors::{named, Named};
use flagfinder_linux::syscalls::{self, Role};

use crate::answer::{Answer, Halt};
use crate::guessed::{command, Guess, Guessed};
use crate::replica::Replica;

/// Most entries of a poll of which it is supposed that they are ready.
const MOST: u64 = 4;

/// A descriptor that few programs have.
const UNUSED: i64 = 1000;

/// Bytes that an eventfd or a timer gives.
const COUNTER: u64 = 8;

impl Replica<'_> {
    /// The answers that the call may have given at which the copy halted, the likeliest first.
    ///
    /// # Errors
    /// When the copy's process is gone.
    pub fn guesses(&mut self, halt: &Halt) -> Result<Vec<Guess>> {
        let (Halt::Call { number, arguments } | Halt::Blocks { number, arguments }) = halt else {
            return Ok(Vec::new());
        };
        let answers = match named(*number, arguments) {
            Some(Named::Entries { address, count }) => self.of_entries(address, count)?,
            Some(Named::Sets { addresses, count }) => self.of_sets(addresses, count)?,
            _ if matches!(halt, Halt::Blocks { .. }) => Vec::new(),
            _ => {
                let mut results = results(*number, arguments);
                if self.has_come(arguments[0] as i32) {
                    results.retain(|result| *result != -i64::from(libc::EAGAIN));
                    let is_counted = results.contains(&(COUNTER as i64));
                    results.truncate(if is_counted { 1 } else { results.len() });
                }
                results.into_iter().map(Guessed::Result).collect()
            }
        };
        let is_neutral = syscalls::role(*number, arguments) == Role::Neutral
            || i64::from(*number) == libc::SYS_sched_getaffinity;
        let guess = |answer| Guess {
            number: *number,
            descriptor: syscalls::descriptor(*number, arguments),
            command: command(*number, arguments),
            decides: !is_neutral && !is_taken(*number, &answer),
            answer,
        };
        Ok(answers.into_iter().map(guess).collect())
    }

    /// Did the last poll find something to read there?
    fn has_come(&self, fd: i32) -> bool {
        let last = self.recalled.last.as_ref();
        let found = last.and_then(|last| last.ready.get(&fd).copied());
        found.is_some_and(|found| found & libc::POLLIN != 0)
    }

    fn of_entries(&mut self, address: u64, count: u64) -> Result<Vec<Guessed>> {
        let mut ready = Vec::new();
        for number in 0..count.min(MOST) {
            let Some([entry]) = self.words::<1>(address.wrapping_add(number * 8))? else {
                break;
            };
            let (fd, asked) = (entry as i32, (entry >> 32) as i16);
            let open = [asked & libc::POLLOUT, libc::POLLHUP, asked & libc::POLLIN];
            let other = [libc::POLLNVAL, libc::POLLERR | libc::POLLHUP];
            let events = open.into_iter().chain(other).filter(|events| *events != 0);
            ready.extend(
                events
                    .map(|events| Guessed::Ready(fd, events))
                    .filter(|_| fd >= 0),
            );
        }
        Ok(ready)
    }

    fn of_sets(&mut self, sets: [u64; 3], count: u64) -> Result<Vec<Guessed>> {
        let mut ready = Vec::new();
        for (set, events) in sets.into_iter().zip([libc::POLLIN, libc::POLLOUT]) {
            let words = (set != 0)
                .then(|| self.words::<1>(set))
                .transpose()?
                .flatten();
            let [bits] = words.unwrap_or([0]);
            let fds = (0..count.min(64) as i32).filter(|fd| bits >> fd & 1 == 1);
            ready.extend(fds.take(MOST as usize).map(|fd| Guessed::Ready(fd, events)));
        }
        Ok(ready)
    }

    /// How often each guess was taken.
    pub fn guessed(&self) -> &[u32] {
        &self.guessed
    }

    /// By the rules, or as it is guessed where these know no answer.
    pub(crate) fn answer_or_guess(&mut self, number: u32, a: &[u64; 6]) -> Result<Answer> {
        let answer = self.answer(number, a)?;
        if !matches!(
            answer,
            Answer::Halt(Halt::Call { .. } | Halt::Blocks { .. })
        ) {
            return Ok(answer);
        }
        let mut guesses = self.recalled.guesses.iter();
        let Some(at) = guesses.position(|guess| guess.is_of(number, a)) else {
            return Ok(answer);
        };
        self.guessed.resize(self.recalled.guesses.len(), 0);
        self.guessed[at] += 1;
        Ok(Answer::Result(match self.recalled.guesses[at].answer {
            Guessed::Ready(fd, events) => self.tell_ready(number, a, fd, events)?,
            Guessed::Result(result) => {
                if is_taken(number, &Guessed::Result(result)) {
                    *self.moved.entry(a[0] as i32).or_default() += result as u64;
                }
                self.fill_guessed(number, a, result)?;
                result
            }
        }))
    }

    fn fill_guessed(&mut self, number: u32, a: &[u64; 6], result: i64) -> Result<()> {
        let of_child = i64::from(number) == libc::SYS_wait4;
        let filled = syscalls::outputs(number, a, result).into_iter();
        for (address, bytes) in filled.filter(|_| !of_child) {
            let mut content = vec![0; bytes as usize];
            if let Some(first) = content.first_mut() {
                // One processor; once.
                let counts = [libc::SYS_sched_getaffinity, libc::SYS_read];
                *first = u8::from(counts.contains(&i64::from(number)));
            }
            self.write(address, &content)?;
        }
        Ok(())
    }

    fn tell_ready(&mut self, number: u32, a: &[u64; 6], fd: i32, events: i16) -> Result<i64> {
        let mut found = 0;
        match named(number, a) {
            Some(Named::Entries { address, count }) => {
                for entry in (address..).step_by(8).take(count.min(1024) as usize) {
                    let Some([word]) = self.words::<1>(entry)? else {
                        break;
                    };
                    let is_it = word as i32 == fd && found == 0;
                    found += i64::from(is_it);
                    let events = if is_it { events } else { 0 };
                    self.write(entry + 6, &events.to_le_bytes())?;
                }
            }
            Some(Named::Sets { addresses, count }) => {
                let of_set = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
                for (set, of_set) in addresses
                    .into_iter()
                    .zip(of_set)
                    .filter(|(set, _)| *set != 0)
                {
                    for word in 0..count.min(1 << 16).div_ceil(64) {
                        let at = set.wrapping_add(word * 8);
                        let [asked] = self.words::<1>(at)?.unwrap_or([0]);
                        let is_here = of_set == events && fd as u64 / 64 == word;
                        let left = asked & i64::from(is_here) << (fd % 64);
                        found += i64::from(left != 0);
                        self.write(at, &left.to_le_bytes())?;
                    }
                }
            }
            _ => {}
        }
        Ok(found)
    }
}

/// Does it give data?
fn is_taken(number: u32, answer: &Guessed) -> bool {
    matches!(answer, Guessed::Result(1..)) && syscalls::consumes(number) && !syscalls::gives(number)
}

/// Results of a call that answers at once: first those that make a thread ask again.
fn results(number: u32, a: &[u64; 6]) -> Vec<i64> {
    let [again, fault, closed] = [libc::EAGAIN, libc::EIO, libc::EBADF].map(|e| -i64::from(e));
    let in_vain = [again, 0, fault, closed];
    let fails = |errors: &[i32]| errors.iter().map(|error| -i64::from(*error)).collect();
    match i64::from(number) {
        libc::SYS_accept | libc::SYS_accept4 => fails(&[libc::EMFILE, libc::EAGAIN]),
        // Which descriptor it got is of no matter to the loop.
        libc::SYS_socket | libc::SYS_eventfd2 | libc::SYS_epoll_create1 => vec![UNUSED],
        libc::SYS_connect => fails(&[libc::ECONNREFUSED, libc::EINPROGRESS]),
        libc::SYS_semop | libc::SYS_semtimedop | libc::SYS_rt_sigtimedwait => {
            fails(&[libc::EAGAIN])
        }
        libc::SYS_msgrcv => fails(&[libc::ENOMSG]),
        libc::SYS_wait4 if a[2] as i32 & libc::WNOHANG == 0 => Vec::new(),
        libc::SYS_waitid if a[3] as i32 & libc::WNOHANG == 0 => Vec::new(),
        libc::SYS_wait4 | libc::SYS_waitid => vec![0, -i64::from(libc::ECHILD)],
        libc::SYS_kill => vec![0, -i64::from(libc::ESRCH)],
        libc::SYS_access | libc::SYS_faccessat | libc::SYS_faccessat2 => {
            vec![-i64::from(libc::ENOENT), 0]
        }
        libc::SYS_fstat => fails(&[libc::EBADF]),
        libc::SYS_lseek if a[2] as i32 == libc::SEEK_SET => vec![a[1] as i64],
        libc::SYS_lseek => fails(&[libc::ESPIPE]),
        libc::SYS_fcntl if syscalls::tries_lock(number, a) => fails(&[libc::EAGAIN]),
        libc::SYS_fcntl if a[1] as i32 == libc::F_GETFL => vec![i64::from(libc::O_RDWR)],
        libc::SYS_flock if syscalls::tries_lock(number, a) => fails(&[libc::EAGAIN]),
        libc::SYS_ioctl if a[1] == libc::FIONREAD => vec![0],
        libc::SYS_ioctl => fails(&[libc::ENOTTY, libc::EIO]),
        libc::SYS_sched_getaffinity => vec![8],
        libc::SYS_getrandom => vec![a[1].min(256) as i64],
        libc::SYS_getrusage
        | libc::SYS_getdents64
        | libc::SYS_fcntl
        | libc::SYS_madvise
        | libc::SYS_fadvise64
        | libc::SYS_sched_setaffinity
        | libc::SYS_tgkill
        | libc::SYS_prctl
        | libc::SYS_times
        | libc::SYS_sysinfo
        | libc::SYS_setitimer
        | libc::SYS_timerfd_settime
        | libc::SYS_timer_settime
        | libc::SYS_rt_sigaction => vec![0],
        _ if syscalls::path(number, a).is_some() => fails(&[libc::ENOENT]),
        _ if syscalls::gives(number) => fails(&[libc::EAGAIN, libc::EPIPE]),
        // An eventfd, or a timer: how often.
        libc::SYS_read if a[2] == COUNTER => [&[COUNTER as i64][..], &in_vain].concat(),
        _ if syscalls::consumes(number) => in_vain.to_vec(),
        _ => Vec::new(),
    }
}
