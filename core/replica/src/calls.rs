// SPDX-License-Identifier: MIT
//! How each system call of a copy is answered. None is made.
//!
//! By rule: clocks, sleeps, ids, futex (by comparing the word), signal masks. In the copy alone:
//! memory. Asked of the process's descriptors without changing them: poll, select, read, FIONREAD;
//! and of the kernel (`asked.rs`, `locked.rs`): what paths name, whether children have ended, who
//! has a lock on a file. Read by us: files that the copy opens (`opened.rs`). In an experiment
//! output is said to succeed, and goes nowhere. Calls that only set how a descriptor is used are
//! said to succeed as well. What remains halts the copy. Blind spot: a copy does not wait for a
//! descriptor that it added to an epoll set itself.

use std::io::Result;

use flagfinder_linux::futex;
use flagfinder_linux::timeout::{limit, Limit};

use crate::answer::{error, Answer, Halt};
use crate::descriptors::Read;
use crate::replica::Replica;
use crate::source::PAGE;

type Arguments = [u64; 6];

const SECOND: i128 = 1_000_000_000;

/// Time-outs as calls give them.
enum Patience {
    For(i128),
    Until(i32, i128),
    Ever,
}

impl Replica<'_> {
    pub(crate) fn answer(&mut self, number: u32, arguments: &Arguments) -> Result<Answer> {
        let answered = self
            .answer_ids(number)
            .map_or_else(
                || self.answer_time(number, arguments).transpose(),
                |it| Some(Ok(it)),
            )
            .or_else(|| self.answer_memory(number, arguments).transpose())
            .or_else(|| self.answer_signals(number, arguments).transpose())
            .or_else(|| self.answer_locked(number, arguments).transpose())
            .or_else(|| self.answer_opened(number, arguments).transpose())
            .or_else(|| self.answer_output(number, arguments).transpose())
            .or_else(|| self.answer_descriptors(number, arguments).transpose())
            .or_else(|| self.answer_asked(number, arguments).transpose())
            .or_else(|| self.answer_recalled(number, arguments).transpose());
        let unknown = Answer::Halt(Halt::Call {
            number,
            arguments: *arguments,
        });
        answered.unwrap_or(Ok(unknown))
    }

    fn answer_ids(&self, number: u32) -> Option<Answer> {
        let id = self.identity;
        let value = match i64::from(number) {
            libc::SYS_getpid => id.pid,
            libc::SYS_gettid => id.tid,
            libc::SYS_getppid => id.parent,
            libc::SYS_getuid => id.user[0],
            libc::SYS_geteuid => id.user[1],
            libc::SYS_getgid => id.group[0],
            libc::SYS_getegid => id.group[1],
            libc::SYS_sched_yield | libc::SYS_membarrier | libc::SYS_set_robust_list => 0,
            libc::SYS_exit | libc::SYS_exit_group => return Some(Answer::Halt(Halt::Exits)),
            _ => return None,
        };
        Some(Answer::Result(value.into()))
    }

    fn answer_time(&mut self, number: u32, a: &Arguments) -> Result<Option<Answer>> {
        let answer = match i64::from(number) {
            libc::SYS_nanosleep => match self.timespec(a[0])? {
                Some(time) => self.wait(number, a, Patience::For(time), 0),
                None => error(libc::EFAULT),
            },
            libc::SYS_clock_nanosleep => {
                let id = a[0] as i32;
                let absolute = a[1] as i32 & libc::TIMER_ABSTIME != 0;
                match self.timespec(a[2])? {
                    Some(at) if absolute => self.wait(number, a, Patience::Until(id, at), 0),
                    Some(time) => self.wait(number, a, Patience::For(time), 0),
                    None => error(libc::EFAULT),
                }
            }
            libc::SYS_pause => self.wait(number, a, Patience::Ever, 0),
            libc::SYS_clock_gettime => match self.clock.read(a[0] as i32) {
                Some(now) => self.give_time(a[1], now, 1)?,
                None => return Ok(None),
            },
            libc::SYS_gettimeofday if a[1] == 0 => {
                let now = self.clock.read(libc::CLOCK_REALTIME).unwrap_or_default();
                self.give_time(a[0], now, 1000)?
            }
            libc::SYS_time => {
                let now = self.clock.read(libc::CLOCK_REALTIME).unwrap_or_default() / SECOND;
                if a[0] != 0 && !self.write(a[0], &(now as i64).to_le_bytes())? {
                    return Ok(Some(error(libc::EFAULT)));
                }
                Answer::Result(now as i64)
            }
            libc::SYS_getcpu => {
                for place in [a[0], a[1]] {
                    if place != 0 && !self.write(place, &[0; 4])? {
                        return Ok(Some(error(libc::EFAULT)));
                    }
                }
                Answer::Result(0)
            }
            libc::SYS_futex => return self.futex(number, a),
            _ => return Ok(None),
        };
        Ok(Some(answer))
    }

    /// `unit`: ns of the second member (timespec 1, timeval 1000).
    fn give_time(&mut self, address: u64, time: i128, unit: i128) -> Result<Answer> {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&((time / SECOND) as i64).to_le_bytes());
        bytes[8..].copy_from_slice(&((time % SECOND / unit) as i64).to_le_bytes());
        let given = self.write(address, &bytes)?;
        Ok(match given {
            true => Answer::Result(0),
            false => error(libc::EFAULT),
        })
    }

    pub(crate) fn words<const N: usize>(&mut self, address: u64) -> Result<Option<[i64; N]>> {
        let mut bytes = vec![0; N * 8];
        let whole = self.read(address, &mut bytes)?;
        let mut words = bytes.chunks_exact(8);
        let mut word = || {
            let bytes = words.next().and_then(|word| word.try_into().ok());
            bytes.map_or(0, i64::from_le_bytes)
        };
        Ok(whole.then(|| std::array::from_fn(|_| word())))
    }

    /// ns; `None` where nothing can be read.
    fn timespec(&mut self, address: u64) -> Result<Option<i128>> {
        let words = self.words::<2>(address)?;
        Ok(words.map(|[seconds, rest]| i128::from(seconds) * SECOND + i128::from(rest)))
    }

    /// Nothing happens until the time is over.
    fn wait(&mut self, number: u32, a: &Arguments, patience: Patience, then: i64) -> Answer {
        match patience {
            Patience::For(time) => self.clock.sleep(time),
            Patience::Until(id, at) => self.clock.sleep_until(id, at),
            Patience::Ever => {
                return Answer::Halt(Halt::Blocks {
                    number,
                    arguments: *a,
                })
            }
        }
        Answer::Result(then)
    }

    /// The word decides whether the thread would wait. No other thread can wake it or be woken.
    fn futex(&mut self, number: u32, a: &Arguments) -> Result<Option<Answer>> {
        let operation = a[1] as i32;
        let clock = match operation & libc::FUTEX_CLOCK_REALTIME {
            0 => libc::CLOCK_MONOTONIC,
            _ => libc::CLOCK_REALTIME,
        };
        let command = futex::command(a);
        match command {
            libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET => return Ok(Some(Answer::Result(0))),
            _ if futex::waits_for_word(command) => {}
            _ => return Ok(None),
        }
        let mut word = [0; 4];
        if !self.read(a[0], &mut word)? {
            return Ok(Some(error(libc::EFAULT)));
        }
        if u32::from_le_bytes(word) != a[2] as u32 {
            return Ok(Some(error(libc::EAGAIN)));
        }
        let patience = match (a[3], command) {
            (0, _) => Patience::Ever,
            (at, libc::FUTEX_WAIT) => Patience::For(self.timespec(at)?.unwrap_or_default()),
            (at, _) => Patience::Until(clock, self.timespec(at)?.unwrap_or_default()),
        };
        let timed_out = -i64::from(libc::ETIMEDOUT);
        Ok(Some(self.wait(number, a, patience, timed_out)))
    }

    fn answer_memory(&mut self, number: u32, a: &Arguments) -> Result<Option<Answer>> {
        let whole = a[0] % PAGE == 0;
        let end = |length: u64| {
            let end = a[0].checked_add(length)?.checked_next_multiple_of(PAGE)?;
            (end > a[0] && i64::try_from(end).is_ok()).then_some(end)
        };
        Ok(Some(match i64::from(number) {
            libc::SYS_mmap => {
                let flags = a[3] as i32;
                let needed = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                if flags & needed != needed || flags & libc::MAP_GROWSDOWN != 0 {
                    return Ok(None);
                }
                let fixed = flags & libc::MAP_FIXED != 0 && whole;
                let Some(length) = a[1].checked_next_multiple_of(PAGE).filter(|l| *l > 0) else {
                    return Ok(Some(error(libc::EINVAL)));
                };
                let place = if fixed {
                    end(length).map(|_| a[0])
                } else {
                    self.free_place(length)
                };
                let Some(start) = place else {
                    return Ok(Some(error(libc::ENOMEM)));
                };
                self.map(start, start + length, a[2] as i32)?;
                Answer::Result(start as i64)
            }
            libc::SYS_munmap => match end(a[1]).filter(|_| whole) {
                Some(end) => {
                    self.unmap(a[0], end)?;
                    Answer::Result(0)
                }
                None => error(libc::EINVAL),
            },
            libc::SYS_mprotect => match end(a[1]).filter(|_| whole) {
                Some(end) if self.protect(a[0], end, a[2] as i32)? => Answer::Result(0),
                Some(_) => error(libc::ENOMEM),
                None => error(libc::EINVAL),
            },
            libc::SYS_madvise => match a[2] as i32 {
                libc::MADV_DONTNEED => return self.drop_pages(a[0], end(a[1]).filter(|_| whole)),
                libc::MADV_FREE
                | libc::MADV_NORMAL
                | libc::MADV_RANDOM
                | libc::MADV_SEQUENTIAL
                | libc::MADV_WILLNEED
                | libc::MADV_HUGEPAGE
                | libc::MADV_NOHUGEPAGE
                | libc::MADV_DONTDUMP => Answer::Result(0),
                _ => return Ok(None),
            },
            _ => return Ok(None),
        }))
    }

    /// Only memory without a file reads as zeroes afterwards.
    fn drop_pages(&mut self, start: u64, end: Option<u64>) -> Result<Option<Answer>> {
        let Some(end) = end else {
            return Ok(Some(error(libc::EINVAL)));
        };
        let own = self
            .regions
            .iter()
            .find(|region| region.anonymous && region.start <= start && end <= region.end);
        let Some(protection) = own.map(|region| region.protection) else {
            return Ok(None);
        };
        self.map(start, end, protection)?;
        Ok(Some(Answer::Result(0)))
    }

    fn answer_signals(&mut self, number: u32, a: &Arguments) -> Result<Option<Answer>> {
        if i64::from(number) != libc::SYS_rt_sigprocmask {
            return Ok(None);
        }
        let before = self.mask;
        if a[1] != 0 {
            let Some([given]) = self.words::<1>(a[1])? else {
                return Ok(Some(error(libc::EFAULT)));
            };
            let given = given as u64;
            self.mask = match a[0] as i32 {
                libc::SIG_BLOCK => before | given,
                libc::SIG_UNBLOCK => before & !given,
                libc::SIG_SETMASK => given,
                _ => return Ok(Some(error(libc::EINVAL))),
            };
        }
        if a[2] != 0 && !self.write(a[2], &before.to_le_bytes())? {
            return Ok(Some(error(libc::EFAULT)));
        }
        Ok(Some(Answer::Result(0)))
    }

    fn answer_output(&mut self, number: u32, a: &Arguments) -> Result<Option<Answer>> {
        if !self.pretends {
            return Ok(None);
        }
        Ok(match i64::from(number) {
            libc::SYS_write | libc::SYS_pwrite64 | libc::SYS_sendto => {
                Some(Answer::Result(a[2].min(i32::MAX as u64) as i64))
            }
            libc::SYS_writev => {
                const MOST: u64 = 1024;
                let mut all = 0;
                for entry in 0..a[2].min(MOST) {
                    let Some([_, length]) = self.words::<2>(a[1].wrapping_add(entry * 16))? else {
                        return Ok(Some(error(libc::EFAULT)));
                    };
                    all += length;
                }
                Some(Answer::Result(all))
            }
            libc::SYS_close
            | libc::SYS_fsync
            | libc::SYS_fdatasync
            | libc::SYS_epoll_ctl
            | libc::SYS_setsockopt
            | libc::SYS_shutdown => Some(Answer::Result(0)),
            _ => None,
        })
    }

    fn answer_descriptors(&mut self, number: u32, a: &Arguments) -> Result<Option<Answer>> {
        let fd = a[0] as i32;
        // If the kernel refuses us (no right, an odd descriptor), the call has no answer.
        let answer = match i64::from(number) {
            libc::SYS_poll | libc::SYS_ppoll => {
                let patience = self.patience(number, a)?;
                return self.poll(number, a, patience);
            }
            libc::SYS_select | libc::SYS_pselect6 => {
                let patience = self.patience(number, a)?;
                return self.select(number, a, patience);
            }
            libc::SYS_epoll_wait | libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => {
                let patience = self.patience(number, a)?;
                let ready = match self.descriptors() {
                    Some(_) => self.ready_in_epoll(a)?,
                    None => Some(self.recalled_events(number, a)?),
                };
                match ready {
                    Some(0) => self.wait(number, a, patience, 0),
                    Some(count) => Answer::Result(count),
                    None => return Ok(None),
                }
            }
            libc::SYS_read => return self.take(number, a),
            libc::SYS_recvfrom if a[4] == 0 && a[3] as i32 & !libc::MSG_DONTWAIT == 0 => {
                return match self.take(number, a)? {
                    Some(Answer::Halt(Halt::Blocks { .. })) if a[3] != 0 => {
                        Ok(Some(error(libc::EAGAIN)))
                    }
                    other => Ok(other),
                };
            }
            libc::SYS_ioctl if a[1] == libc::FIONREAD => {
                let Some(Ok(bytes)) = self.descriptors().map(|d| d.waiting(fd)) else {
                    return Ok(None);
                };
                match self.write(a[2], &bytes.to_le_bytes())? {
                    true => Answer::Result(0),
                    false => error(libc::EFAULT),
                }
            }
            // A program that prints for the first time asks whether its output is a terminal.
            libc::SYS_ioctl if a[1] == libc::TCGETS => {
                match self.descriptors().map(|d| d.terminal(fd)) {
                    Some(Ok(settings)) => match self.write(a[2], &settings)? {
                        true => Answer::Result(0),
                        false => error(libc::EFAULT),
                    },
                    Some(Err(failure)) if failure.raw_os_error() == Some(libc::ENOTTY) => {
                        error(libc::ENOTTY)
                    }
                    _ => return Ok(None),
                }
            }
            libc::SYS_fcntl if a[1] as i32 == libc::F_GETFL => {
                match self.descriptors().map(|d| d.flags(fd)) {
                    Some(Ok(flags)) => Answer::Result(flags.into()),
                    _ => return Ok(None),
                }
            }
            _ => return Ok(None),
        };
        Ok(Some(answer))
    }

    /// How long the call is to wait, at most. If the limit can't be read, there is none.
    fn patience(&mut self, number: u32, a: &Arguments) -> Result<Patience> {
        let time = match limit(number, a) {
            Some(Limit::Milliseconds(time @ 0..)) => Some(i128::from(time) * 1_000_000),
            Some(Limit::Time { address, unit, .. }) if address != 0 => {
                let words = self.words::<2>(address)?;
                let ns = |[seconds, rest]: [i64; 2]| {
                    i128::from(seconds) * SECOND + i128::from(rest) * i128::from(unit)
                };
                words.map(ns)
            }
            _ => None,
        };
        Ok(time.map_or(Patience::Ever, Patience::For))
    }

    fn poll(&mut self, number: u32, a: &Arguments, patience: Patience) -> Result<Option<Answer>> {
        const ENTRY: usize = 8;
        const MOST: u64 = 4096;
        if a[1] > MOST {
            return Ok(None);
        }
        let mut entries = vec![0; a[1] as usize * ENTRY];
        if !self.read(a[0], &mut entries)? {
            return Ok(Some(error(libc::EFAULT)));
        }
        let mut ready = 0;
        for (at, entry) in (a[0]..).step_by(ENTRY).zip(entries.chunks_exact_mut(ENTRY)) {
            let fd = i32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
            let events = i16::from_le_bytes([entry[4], entry[5]]);
            let Some(now) = self.ready(fd, events, Some(at)) else {
                return Ok(None);
            };
            entry[6..].copy_from_slice(&now.to_le_bytes());
            ready += i64::from(now != 0);
        }
        self.write(a[0], &entries)?;
        if ready > 0 {
            return Ok(Some(Answer::Result(ready)));
        }
        // That nothing comes is never more than assumed where nobody can be asked.
        self.assumed |= self.descriptors().is_none();
        Ok(Some(self.wait(number, a, patience, 0)))
    }

    /// `None`: not known. In a core file nobody can be asked; `entry` is where a poll has
    /// the answer.
    pub(crate) fn ready(&mut self, fd: i32, events: i16, entry: Option<u64>) -> Option<i16> {
        match (fd, self.descriptors()) {
            (..0, _) => Some(0),
            (_, None) => Some(self.recalled_ready(fd, events, entry)),
            (_, Some(descriptors)) => descriptors.ready(fd, events).ok(),
        }
    }

    fn select(&mut self, number: u32, a: &Arguments, patience: Patience) -> Result<Option<Answer>> {
        const EVENTS: [i16; 3] = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
        // Events that select counts as ready besides those that were asked for.
        const ALSO: [i16; 3] = [libc::POLLHUP | libc::POLLERR, libc::POLLERR, 0];
        const MOST: u64 = 1 << 16;
        if a[0] > MOST {
            return Ok(None);
        }
        let bytes = (a[0].div_ceil(64) * 8) as usize;
        let mut ready = 0;
        let mut results = Vec::new();
        for (set, (events, also)) in a[1..4].iter().zip(EVENTS.into_iter().zip(ALSO)) {
            if *set == 0 {
                continue;
            }
            let mut bits = vec![0; bytes];
            if !self.read(*set, &mut bits)? {
                return Ok(Some(error(libc::EFAULT)));
            }
            for fd in 0..a[0] as usize {
                if bits[fd / 8] >> (fd % 8) & 1 == 0 {
                    continue;
                }
                let Some(now) = self.ready(fd as i32, events, None) else {
                    return Ok(None);
                };
                if now & libc::POLLNVAL != 0 {
                    return Ok(Some(error(libc::EBADF)));
                }
                if now & (events | also) == 0 {
                    bits[fd / 8] &= !(1 << (fd % 8));
                } else {
                    ready += 1;
                }
            }
            results.push((*set, bits));
        }
        for (set, bits) in results {
            self.write(set, &bits)?;
        }
        if ready > 0 {
            return Ok(Some(Answer::Result(ready)));
        }
        // That nothing comes is never more than assumed where nobody can be asked.
        self.assumed |= self.descriptors().is_none();
        Ok(Some(self.wait(number, a, patience, 0)))
    }

    /// `read`, and `recvfrom` without an address.
    fn take(&mut self, number: u32, a: &Arguments) -> Result<Option<Answer>> {
        let fd = a[0] as i32;
        let moved = self.moved.get(&fd).copied().unwrap_or(0);
        let asked = self.descriptors().map(|d| d.read(fd, a[2] as usize, moved));
        Ok(Some(match asked {
            Some(Ok(Read::Data(bytes))) => {
                if !self.write(a[1], &bytes)? {
                    return Ok(Some(error(libc::EFAULT)));
                }
                *self.moved.entry(fd).or_default() += bytes.len() as u64;
                Answer::Result(bytes.len() as i64)
            }
            Some(Ok(Read::End)) => Answer::Result(0),
            Some(Ok(Read::Again)) => error(libc::EAGAIN),
            Some(Ok(Read::Blocks)) => self.wait(number, a, Patience::Ever, 0),
            Some(Ok(Read::Unknown) | Err(_)) | None => return Ok(None),
        }))
    }
}
