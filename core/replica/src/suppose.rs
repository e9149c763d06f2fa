// SPDX-License-Identifier: MIT
//! What a thread would do if the call came back that it waits in: the caller supposes an answer.
//!
//! In: what happens in the world ([`Supposition`]). Out: results of calls whose answer is not known
//! otherwise, with the memory that they fill; and what was supposed of which call ([`Supposed`]).
//! All other calls are answered by the rules of `calls.rs`. Blind spots: data are made up, so a
//! thread that looks at what it reads may take another way than with what will really come; of a
//! call that fills a structure only what programs look at first is filled in.

use std::io::Result;

use flagfinder_linux::descriptors::Watch;
use flagfinder_linux::futex;

use crate::answer::{Answer, Halt};
use crate::replica::Replica;
use crate::supposition::{MadeCall, Supposed, Supposing, Supposition};

/// Most answers that are supposed in one copy.
const MOST_SUPPOSED: usize = 16;
/// Most calls that are remembered.
const MOST_MADE: usize = 1024;
/// More than so many bytes are no message of a fixed size.
const LARGEST_MESSAGE: usize = 64;
/// The descriptor that accept is said to return; the process does not have it.
const NEW_DESCRIPTOR: i64 = 1_000_003;
/// The descriptor that open is said to return: a file that holds one message.
const NEW_FILE: i64 = 1_000_004;

/// A made-up result, and the descriptor that it is about, if the arguments alone do not name it.
type Made = Option<(i64, Option<i32>)>;

impl Replica<'_> {
    /// From now on calls that would halt the copy are answered as supposed; the one that it stands
    /// before is, too, where it is one that waits. Output is said to succeed.
    ///
    /// # Errors
    /// When the copy's process is gone.
    pub fn suppose(&mut self, how: Supposition) -> Result<()> {
        self.pretend_output();
        let first = self.is_before_call()?;
        self.supposing = Some(Supposing::of_wait(how, first));
        Ok(())
    }

    /// From now on a wait for a futex's word ends that would halt the copy: others give it what it
    /// waits for.
    pub fn let_others_give_back(&mut self) {
        self.given_back = Some(0);
    }

    /// How many waits ended that way.
    pub fn given_back(&self) -> u32 {
        self.given_back.unwrap_or(0)
    }

    /// A thread that sleeps on 0 waits for a count; one that sleeps on a count waits until it is 0.
    /// A mutex has further words that say who holds it.
    fn give_back(&mut self, number: u32, a: &[u64; 6]) -> Result<Option<Answer>> {
        const HELD_MUTEX: u64 = 2;
        if !futex::is_futex(number) {
            return Ok(None);
        }
        let how = match futex::expected(a) {
            HELD_MUTEX => return Ok(None),
            0 => Supposition::Number,
            _ => Supposition::Line,
        };
        let Some((result, _)) = self.make_futex(how, a)? else {
            return Ok(None);
        };
        self.given_back = self.given_back.map(|count| count + 1);
        Ok(Some(Answer::Result(result)))
    }

    /// Is a system call what it executes next?
    ///
    /// # Errors
    /// When the copy's process is gone.
    pub fn is_before_call(&mut self) -> Result<bool> {
        const SYSCALL: [u8; 2] = [0x0f, 0x05];
        let mut code = [0; 2];
        Ok(self.read(self.registers().rip, &mut code)? && code == SYSCALL)
    }

    /// The calls whose answers were supposed, the first first.
    pub fn supposed(&self) -> &[Supposed] {
        self.supposing.as_ref().map_or(&[], |s| &s.answered)
    }

    /// The first calls that it made since then, answered or not.
    pub fn made(&self) -> &[MadeCall] {
        self.supposing.as_ref().map_or(&[], |s| &s.made)
    }

    /// By supposition where there is one and the rules know no answer, else by the rules.
    pub(crate) fn answer_or_suppose(&mut self, number: u32, a: &[u64; 6]) -> Result<Answer> {
        if let Some(supposing) = self.supposing.as_mut().filter(|s| s.made.len() < MOST_MADE) {
            supposing.made.push(MadeCall {
                number,
                arguments: *a,
                supposed: supposing.answered.len(),
            });
        }
        let Some(supposing) = &mut self.supposing else {
            let answer = self.answer_or_guess(number, a)?;
            return match (self.given_back.is_some(), &answer) {
                (true, Answer::Halt(Halt::Blocks { .. })) => {
                    Ok(self.give_back(number, a)?.unwrap_or(answer))
                }
                _ => Ok(answer),
            };
        };
        let goes_on =
            supposing.how != Supposition::Nothing && supposing.answered.len() < MOST_SUPPOSED;
        if std::mem::take(&mut supposing.first) && goes_on {
            if let Some(answer) = self.make_up(number, a)? {
                return Ok(answer);
            }
        }
        let ready = is_read(number)
            && self
                .supposing
                .as_mut()
                .is_some_and(|s| s.ready.remove(&(a[0] as i32)));
        let answer = self.answer_or_guess(number, a)?;
        const AGAIN: i64 = -(libc::EAGAIN as i64);
        let unknown = match answer {
            Answer::Halt(Halt::Blocks { .. } | Halt::Call { .. }) => true,
            Answer::Result(AGAIN) => ready,
            _ => false,
        };
        if !unknown || !goes_on {
            return Ok(answer);
        }
        if let Some(made) = self.make_up(number, a)? {
            return Ok(made);
        }
        Ok(self.let_succeed(number, a)?.map_or(answer, Answer::Result))
    }

    /// What a call answers that only changes the world, or asks for something new: it succeeds. One
    /// that asks for a place in a file is told that there is none: the thread waits at a channel.
    fn let_succeed(&mut self, number: u32, a: &[u64; 6]) -> Result<Option<i64>> {
        Ok(match i64::from(number) {
            libc::SYS_sendmsg => {
                let Some([_, _, vectors, count]) = self.words::<4>(a[1])? else {
                    return Ok(None);
                };
                let mut all = 0;
                for entry in 0..(count as u64).min(16) {
                    let at = (vectors as u64).wrapping_add(entry * 16);
                    all += self.words::<2>(at)?.map_or(0, |[_, length]| length);
                }
                Some(all)
            }
            libc::SYS_sendmmsg => Some(a[2] as u32 as i64),
            libc::SYS_sendfile => Some(a[3].min(i32::MAX as u64) as i64),
            libc::SYS_lseek => Some(-i64::from(libc::ESPIPE)),
            libc::SYS_socket
            | libc::SYS_eventfd2
            | libc::SYS_epoll_create1
            | libc::SYS_timerfd_create
            | libc::SYS_dup
            | libc::SYS_memfd_create => Some(NEW_DESCRIPTOR),
            libc::SYS_fcntl => match a[1] as i32 {
                libc::F_GETFL => Some(i64::from(libc::O_RDWR)),
                libc::F_SETFL | libc::F_SETFD | libc::F_GETFD => Some(0),
                _ => None,
            },
            libc::SYS_unlink
            | libc::SYS_unlinkat
            | libc::SYS_rename
            | libc::SYS_renameat2
            | libc::SYS_rmdir
            | libc::SYS_ftruncate
            | libc::SYS_fchmod
            | libc::SYS_kill
            | libc::SYS_tgkill
            | libc::SYS_timerfd_settime
            | libc::SYS_timer_settime
            | libc::SYS_setitimer
            | libc::SYS_prctl
            | libc::SYS_madvise
            | libc::SYS_fadvise64
            | libc::SYS_sched_setaffinity
            | libc::SYS_flock => Some(0),
            _ => None,
        })
    }

    fn make_up(&mut self, number: u32, a: &[u64; 6]) -> Result<Option<Answer>> {
        let Some(how) = self.supposing.as_ref().map(|s| s.how) else {
            return Ok(None);
        };
        let made = match i64::from(number) {
            libc::SYS_open | libc::SYS_openat => match how {
                Supposition::Nothing => None,
                Supposition::Failure => Some((-i64::from(libc::ENOENT), None)),
                _ => Some((NEW_FILE, None)),
            },
            libc::SYS_read if i64::from(a[0] as i32) == NEW_FILE && self.has_handed_out() => {
                Some((0, None))
            }
            libc::SYS_read | libc::SYS_pread64 => self.make_read(how, a[1], a[2])?,
            libc::SYS_recvfrom => {
                if a[5] != 0 {
                    self.write(a[5], &[0; 4])?;
                }
                self.make_read(how, a[1], a[2])?
            }
            libc::SYS_readv => self.make_vector(how, a[1], a[2])?,
            libc::SYS_recvmsg => self.make_message(how, a[1])?,
            libc::SYS_poll | libc::SYS_ppoll => self.make_poll(how, a[0], a[1])?,
            libc::SYS_select | libc::SYS_pselect6 => self.make_select(how, a)?,
            libc::SYS_epoll_wait | libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => {
                self.make_epoll(how, a)?
            }
            libc::SYS_accept | libc::SYS_accept4 => {
                Self::choose(how, NEW_DESCRIPTOR, None, libc::ECONNABORTED)
            }
            libc::SYS_connect => Self::choose(how, 0, None, libc::ECONNREFUSED),
            libc::SYS_flock => Self::choose(how, 0, None, libc::EINTR),
            libc::SYS_fcntl if matches!(a[1] as i32, libc::F_SETLKW | libc::F_OFD_SETLKW) => {
                Self::choose(how, 0, None, libc::EINTR)
            }
            libc::SYS_wait4 if a[0] as i32 > 0 && a[2] as i32 & libc::WNOHANG == 0 => {
                if a[1] != 0 && how == Supposition::Line {
                    self.write(a[1], &[0; 4])?;
                }
                Self::choose(how, i64::from(a[0] as i32), None, libc::ECHILD)
            }
            libc::SYS_futex => self.make_futex(how, a)?,
            _ => None,
        };
        let Some((result, descriptor)) = made else {
            return Ok(None);
        };
        if let Some(supposing) = &mut self.supposing {
            supposing.answered.push(Supposed {
                number,
                arguments: *a,
                descriptor,
                result,
            });
        }
        Ok(Some(Answer::Result(result)))
    }

    /// A call with one way to succeed and one to fail. `end`: what it says at the end of things.
    fn choose(how: Supposition, success: i64, end: Option<i64>, failure: i32) -> Made {
        let result = match how {
            Supposition::Nothing | Supposition::Number => None,
            Supposition::Line => Some(success),
            Supposition::End => end,
            Supposition::Failure => Some(-i64::from(failure)),
        };
        result.map(|result| (result, None))
    }

    fn make_read(&mut self, how: Supposition, buffer: u64, room: u64) -> Result<Made> {
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let Some(supposing) = &mut self.supposing else {
            return Ok(None);
        };
        let bytes = content(how, room, supposing.handed);
        supposing.handed += bytes.len();
        let given = bytes.is_empty() || self.write(buffer, &bytes)?;
        Ok(match how {
            Supposition::Nothing => None,
            Supposition::Failure => Some((-i64::from(libc::EIO), None)),
            _ if given => Some((bytes.len() as i64, None)),
            _ => None,
        })
    }

    /// `struct iovec`s: only the first with room is filled.
    fn make_vector(&mut self, how: Supposition, vectors: u64, count: u64) -> Result<Made> {
        for number in 0..count.min(16) {
            let Some([base, length]) = self.words::<2>(vectors.wrapping_add(number * 16))? else {
                return Ok(None);
            };
            if length > 0 {
                return self.make_read(how, base as u64, length as u64);
            }
        }
        Ok(None)
    }

    /// `struct msghdr`: no name, no control data.
    fn make_message(&mut self, how: Supposition, header: u64) -> Result<Made> {
        const NAME_LENGTH: u64 = 8;
        const CONTROL_LENGTH: u64 = 40;
        let Some([_, _, vectors, count]) = self.words::<4>(header)? else {
            return Ok(None);
        };
        self.write(header + NAME_LENGTH, &[0; 4])?;
        // And the flags behind it.
        self.write(header + CONTROL_LENGTH, &[0; 12])?;
        self.make_vector(how, vectors as u64, count as u64)
    }

    fn has_handed_out(&self) -> bool {
        self.supposing.as_ref().is_some_and(|s| s.handed > 0)
    }

    fn is_ready(&mut self, descriptor: i32) {
        if let Some(supposing) = &mut self.supposing {
            supposing.ready.insert(descriptor);
        }
    }

    fn make_poll(&mut self, how: Supposition, entries: u64, count: u64) -> Result<Made> {
        const ENTRY: u64 = 8;
        let mut made = None;
        for number in 0..count.min(4096) {
            let at = entries.wrapping_add(number * ENTRY);
            let Some([entry]) = self.words::<1>(at)? else {
                return Ok(None);
            };
            let (descriptor, asked) = (entry as i32, (entry >> 32) as i16);
            let wanted = asked & (libc::POLLIN | libc::POLLOUT);
            let found = match how {
                Supposition::Line | Supposition::Number => wanted,
                Supposition::End => libc::POLLIN & asked | libc::POLLHUP,
                Supposition::Failure => libc::POLLERR,
                Supposition::Nothing => return Ok(None),
            };
            let is_it = made.is_none() && descriptor >= 0 && wanted != 0;
            if is_it {
                made = Some((1, Some(descriptor)));
                self.is_ready(descriptor);
            }
            let found = if is_it { found } else { 0 };
            self.write(at + 6, &found.to_le_bytes())?;
        }
        Ok(made)
    }

    /// The lowest descriptor of the first set that has one is ready.
    fn make_select(&mut self, how: Supposition, a: &[u64; 6]) -> Result<Made> {
        if !matches!(
            how,
            Supposition::Line | Supposition::Number | Supposition::End
        ) {
            return Ok(None);
        }
        let mut made = None;
        for set in a[1..4].iter().filter(|set| **set != 0) {
            for word in 0..a[0].min(1 << 16).div_ceil(64) {
                let at = set.wrapping_add(word * 8);
                let Some([bits]) = self.words::<1>(at)? else {
                    return Ok(None);
                };
                let mut left = 0u64;
                if made.is_none() && bits != 0 {
                    let descriptor = (word * 64) as i32 + bits.trailing_zeros() as i32;
                    left = 1 << bits.trailing_zeros();
                    made = Some((1, Some(descriptor)));
                    self.is_ready(descriptor);
                }
                self.write(at, &left.to_le_bytes())?;
            }
        }
        Ok(made)
    }

    fn make_epoll(&mut self, how: Supposition, a: &[u64; 6]) -> Result<Made> {
        let events = match how {
            Supposition::Line | Supposition::Number => libc::EPOLLIN | libc::EPOLLOUT,
            Supposition::End => libc::EPOLLIN | libc::EPOLLHUP,
            Supposition::Failure => libc::EPOLLERR,
            Supposition::Nothing => return Ok(None),
        } as u32;
        let watched = self.descriptors().map(|d| d.watched(a[0] as i32));
        let Some(Ok(watched)) = watched else {
            return Ok(None);
        };
        let unasked = (libc::EPOLLHUP | libc::EPOLLERR) as u32;
        let found = |watch: &Watch| events & (watch.events | unasked);
        let told: Vec<Watch> = watched
            .into_iter()
            .filter(|watch| found(watch) != 0)
            .take(usize::try_from(a[2]).unwrap_or(0))
            .collect();
        for watch in &told {
            self.is_ready(watch.descriptor);
        }
        let events: Vec<_> = told
            .iter()
            .map(|watch| (found(watch), watch.data))
            .collect();
        self.tell_events(a[1], &events)?;
        let one = match told[..] {
            [watch] => Some(watch.descriptor),
            _ => None,
        };
        Ok((!told.is_empty()).then_some((told.len() as i64, one)))
    }

    fn make_futex(&mut self, how: Supposition, a: &[u64; 6]) -> Result<Made> {
        let command = futex::command(a);
        let takes_lock = futex::takes_lock(command);
        if !takes_lock && !futex::waits_for_word(command) {
            return Ok(None);
        }
        let expected = futex::expected(a) as u32;
        // A lock is freed, a thread has ended; a semaphore counts up, something is signalled.
        let set = match how {
            Supposition::Nothing => return Ok(None),
            Supposition::Line if takes_lock => Some(self.identity.tid),
            Supposition::Line if expected != 0 => Some(0),
            Supposition::Line | Supposition::Number if takes_lock => return Ok(None),
            Supposition::Line => Some(1),
            // Two is added: the lowest bit of a condition variable's word is a mark.
            Supposition::Number => Some(expected.wrapping_add(2)),
            Supposition::End | Supposition::Failure => None,
        };
        if let Some(set) = set {
            if !self.write(a[0], &set.to_le_bytes())? {
                return Ok(None);
            }
            if set == 0 {
                self.forget_owner(a[0])?;
            }
        }
        Ok(Some(match how {
            Supposition::Failure => (-i64::from(libc::ETIMEDOUT), None),
            _ => (0, None),
        }))
    }

    /// A mutex of glibc also says who has it, and its code asserts that nobody does once the word
    /// is free.
    fn forget_owner(&mut self, mutex: u64) -> Result<()> {
        const OWNER: u64 = 8;
        let mut fields = [0; 20];
        let is_there = self.read(mutex, &mut fields)?;
        if is_there && is_held_mutex(&fields) {
            self.write(mutex.wrapping_add(OWNER), &[0; 4])?;
        }
        Ok(())
    }
}

/// Behind the word: how often it is taken, by which thread, how many use it, and of which kind it
/// is (`struct __pthread_mutex_s`).
fn is_held_mutex(fields: &[u8; 20]) -> bool {
    const MOST_THREADS: u32 = 1 << 22;
    const ELISION: u32 = 0x300;
    const SHARED: u32 = 0x80;
    let field = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| fields[at + byte]));
    let (count, owner, users, kind) = (field(4), field(8), field(12), field(16));
    let is_id = |number: u32| (1..=MOST_THREADS).contains(&number);
    count <= 1 && is_id(owner) && is_id(users) && kind & !(ELISION | SHARED) <= 3
}

fn is_read(number: u32) -> bool {
    matches!(
        i64::from(number),
        libc::SYS_read | libc::SYS_readv | libc::SYS_recvfrom | libc::SYS_recvmsg
    )
}

/// Made-up data for a buffer with so much room; so much was handed out before.
fn content(how: Supposition, room: usize, handed: usize) -> Vec<u8> {
    const LINE: &[u8] = b"1\n";
    match how {
        Supposition::Line if room == 1 => vec![LINE[handed % LINE.len()]],
        // A program that asks for a few bytes takes fewer bytes for an error.
        Supposition::Line if room <= LARGEST_MESSAGE => {
            let mut message = vec![b'1'; room];
            if let Some(last) = message.last_mut() {
                *last = b'\n';
            }
            message
        }
        Supposition::Line => LINE.to_vec(),
        Supposition::Number => {
            let mut message = vec![0; room.min(LARGEST_MESSAGE)];
            if let Some(first) = message.first_mut() {
                *first = 1;
            }
            message
        }
        Supposition::Nothing | Supposition::End | Supposition::Failure => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutex_that_is_held_is_told_by_its_fields() {
        let fields = |words: [u32; 5]| {
            let mut bytes = [0; 20];
            for (at, word) in words.iter().enumerate() {
                bytes[at * 4..][..4].copy_from_slice(&word.to_le_bytes());
            }
            bytes
        };
        assert!(is_held_mutex(&fields([0, 0, 4711, 1, 0])));
        assert!(
            is_held_mutex(&fields([0, 0, 4711, 1, 0x80])),
            "of several processes"
        );
        assert!(!is_held_mutex(&fields([0, 0, 0, 1, 0])), "nobody has it");
        assert!(
            !is_held_mutex(&fields([0, 0, 4711, 0, 0])),
            "nobody uses it"
        );
        assert!(!is_held_mutex(&fields([0, 0x5555, 4711, 1, 0])));
    }

    #[test]
    fn data_fill_a_small_buffer_and_are_a_line_in_a_large_one() {
        let text = |room| content(Supposition::Line, room, 0);
        assert_eq!(text(9), b"11111111\n");
        assert_eq!(text(4096), b"1\n");
        assert_eq!(content(Supposition::Line, 1, 1), b"\n");
        assert_eq!(content(Supposition::Number, 8, 0), 1u64.to_le_bytes());
        assert_eq!(content(Supposition::End, 8, 0), b"");
    }
}
