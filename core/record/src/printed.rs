// SPDX-License-Identifier: MIT
//! What the program prints, on its way through the recorder, which waits for a text in it.
//!
//! The program gets a terminal if the recorder's own stream is one, else a pipe, so it buffers,
//! colours and breaks lines as it does without us. Bytes pass unchanged, as soon as they come. If
//! two of our streams are the same, the program's are too, so that its output keeps its order.
//!
//! Blind spots: a text that the program holds in a buffer is not printed yet; a program that asks
//! its output for input (curses does, on some terminals) gets none.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::user::User;

/// Most bytes that are copied at once.
const MOST: usize = 1 << 16;
/// Time between looks whether to stop, and how large the terminal is, in ms.
const LOOK_MS: i32 = 100;

/// The streams that go through the recorder.
pub struct Printed {
    shared: Arc<Shared>,
    pumps: Vec<JoinHandle<Option<Stream>>>,
    /// What the program is to write to, until it is started: its stdout, its stderr.
    ends: Option<[OwnedFd; 2]>,
}

#[derive(Default)]
struct Shared {
    seen: AtomicBool,
    stop: AtomicBool,
}

/// A way from the program to the recorder's own output.
struct Stream {
    from: OwnedFd,
    to: OwnedFd,
    is_terminal: bool,
}

impl Printed {
    /// Makes the streams. `user`: whom the program runs as, if not as this process.
    pub fn new(text: &[u8], user: Option<&User>) -> io::Result<Printed> {
        let shared = Arc::new(Shared::default());
        let own = [libc::STDOUT_FILENO, libc::STDERR_FILENO];
        let (first, out) = Stream::new(own[0], user)?;
        let (second, err) = if is_same(own[0], own[1]) {
            (None, out.try_clone()?)
        } else {
            let (stream, end) = Stream::new(own[1], user)?;
            (Some(stream), end)
        };
        let pump = |mut stream: Stream| {
            let (shared, text) = (shared.clone(), text.to_vec());
            let run = move || stream.pump(&text, &shared).then_some(stream);
            std::thread::Builder::new().spawn(run)
        };
        let pumps = std::iter::once(first).chain(second).map(pump);
        Ok(Printed {
            pumps: pumps.collect::<io::Result<_>>()?,
            shared,
            ends: Some([out, err]),
        })
    }

    /// What the program is to have as stdout and stderr, once.
    pub fn take_ends(&mut self) -> Option<[OwnedFd; 2]> {
        self.ends.take()
    }

    /// Was the text printed?
    pub fn is_seen(&self) -> bool {
        self.shared.seen.load(Ordering::Acquire)
    }

    /// Passes on what was printed by now. Streams to which somebody still prints are handed to a
    /// process that goes on.
    pub fn finish(mut self) -> io::Result<()> {
        drop(self.ends.take());
        self.shared.stop.store(true, Ordering::Release);
        for pump in self.pumps.drain(..) {
            // A pump that panicked has closed its stream.
            if let Ok(Some(stream)) = pump.join() {
                stream.hand_over()?;
            }
        }
        Ok(())
    }
}

impl Stream {
    /// A way to what this process has open as `own`, and its beginning, for the program.
    fn new(own: RawFd, user: Option<&User>) -> io::Result<(Stream, OwnedFd)> {
        // SAFETY: plain system calls; the descriptor is nobody else's.
        let to = checked(unsafe { libc::fcntl(own, libc::F_DUPFD_CLOEXEC, 3) })?;
        // SAFETY: as above.
        let (to, is_terminal) = unsafe { (OwnedFd::from_raw_fd(to), libc::isatty(own) == 1) };
        let (from, end) = if is_terminal {
            terminal_like(own)?
        } else {
            pipe()?
        };
        if let Some(user) = user {
            // So that it can open /dev/stdout. Without it all else works.
            // SAFETY: a plain system call on an open descriptor.
            unsafe { libc::fchown(end.as_raw_fd(), user.uid, user.gid) };
        }
        let stream = Stream {
            from,
            to,
            is_terminal,
        };
        Ok((stream, end))
    }

    /// Copies until the end, or until asked to stop. `false`: nobody can print here any more, or
    /// nobody reads it.
    fn pump(&mut self, text: &[u8], shared: &Shared) -> bool {
        let mut search = Search::new(text);
        let mut buffer = vec![0; MOST];
        loop {
            let stop = shared.stop.load(Ordering::Acquire);
            if self.is_terminal {
                self.keep_size();
            }
            if !is_ready(
                self.from.as_raw_fd(),
                libc::POLLIN,
                if stop { 0 } else { LOOK_MS },
            ) {
                if stop {
                    return true;
                }
                continue;
            }
            // SAFETY: the buffer has that length.
            let got =
                unsafe { libc::read(self.from.as_raw_fd(), buffer.as_mut_ptr().cast(), MOST) };
            if got < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
                continue;
            }
            // A terminal that nobody has open any more gives EIO.
            if got <= 0 {
                return false;
            }
            let bytes = &buffer[..got as usize];
            if write_all(self.to.as_raw_fd(), bytes).is_err() {
                return false;
            }
            // Only now has it been printed.
            if search.finds(bytes) {
                shared.seen.store(true, Ordering::Release);
            }
            if stop {
                return true;
            }
        }
    }

    /// Gives the program's terminal the size of ours.
    fn keep_size(&self) {
        // SAFETY: the structure is plain numbers, and of the size that the kernel writes.
        unsafe {
            let (mut ours, mut theirs): (libc::winsize, libc::winsize) = std::mem::zeroed();
            let got = libc::ioctl(self.to.as_raw_fd(), libc::TIOCGWINSZ, &mut ours) == 0
                && libc::ioctl(self.from.as_raw_fd(), libc::TIOCGWINSZ, &mut theirs) == 0;
            if got && (ours.ws_row, ours.ws_col) != (theirs.ws_row, theirs.ws_col) {
                libc::ioctl(self.from.as_raw_fd(), libc::TIOCSWINSZ, &ours);
            }
        }
    }

    /// A program that runs on without us must not die because it prints.
    fn hand_over(self) -> io::Result<()> {
        let mut cat = Command::new("cat");
        cat.stdin(self.from).stdout(self.to).stderr(Stdio::null());
        // It goes on until the program has ended; nobody waits for it.
        cat.spawn().map(drop)
    }
}

/// Looks for a text in what comes piece by piece.
struct Search {
    text: Vec<u8>,
    /// The last bytes, if the text may have begun in them.
    tail: Vec<u8>,
}

impl Search {
    fn new(text: &[u8]) -> Search {
        Search {
            text: text.to_vec(),
            tail: Vec::new(),
        }
    }

    fn finds(&mut self, bytes: &[u8]) -> bool {
        let most = self.text.len().saturating_sub(1);
        let begin = &bytes[..bytes.len().min(most)];
        self.tail.extend_from_slice(begin);
        let found = contains(&self.tail, &self.text) || contains(bytes, &self.text);
        // `begin` is all of a short piece, and stands in the tail already.
        if bytes.len() > most {
            self.tail = bytes[bytes.len() - most..].to_vec();
        } else {
            self.tail.drain(..self.tail.len().saturating_sub(most));
        }
        found
    }
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    // SAFETY: both are as long as they say.
    let found = unsafe {
        libc::memmem(
            bytes.as_ptr().cast(),
            bytes.len(),
            text.as_ptr().cast(),
            text.len(),
        )
    };
    !found.is_null()
}

fn is_ready(fd: RawFd, event: i16, timeout_ms: i32) -> bool {
    let mut wanted = libc::pollfd {
        fd,
        events: event,
        revents: 0,
    };
    // SAFETY: one pollfd.
    unsafe { libc::poll(&mut wanted, 1, timeout_ms) > 0 }
}

fn write_all(fd: RawFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        // SAFETY: the bytes are there.
        let written = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
        if written >= 0 {
            bytes = &bytes[written as usize..];
            continue;
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            // Another process has made it non-blocking.
            io::ErrorKind::WouldBlock => {
                is_ready(fd, libc::POLLOUT, LOOK_MS);
            }
            _ => return Err(error),
        }
    }
    Ok(())
}

/// Are both the same file, pipe or terminal?
fn is_same(a: RawFd, b: RawFd) -> bool {
    let of = |fd| {
        // SAFETY: the structure is plain numbers; an error leaves it unused.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            (libc::fstat(fd, &mut stat) == 0).then_some((stat.st_dev, stat.st_ino))
        }
    };
    of(a).is_some() && of(a) == of(b)
}

/// Both ends of a pipe: to read from, to write to.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: two numbers, as pipe2 wants; the descriptors are nobody else's.
    unsafe {
        checked(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC))?;
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// Both ends of a terminal like `own`: one to read from, one to write to. It passes bytes
/// unchanged; `own` changes them.
fn terminal_like(own: RawFd) -> io::Result<(OwnedFd, OwnedFd)> {
    // SAFETY: plain system calls on descriptors that are nobody else's; the structure is plain
    // numbers.
    unsafe {
        let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
        let from = OwnedFd::from_raw_fd(checked(libc::posix_openpt(flags))?);
        checked(libc::grantpt(from.as_raw_fd()))?;
        checked(libc::unlockpt(from.as_raw_fd()))?;
        // Also where /dev/pts is another mount's.
        let end = libc::ioctl(from.as_raw_fd(), libc::TIOCGPTPEER, flags);
        let end = OwnedFd::from_raw_fd(checked(end)?);
        let mut settings: libc::termios = std::mem::zeroed();
        checked(libc::tcgetattr(own, &mut settings))?;
        settings.c_oflag &= !libc::OPOST;
        settings.c_lflag &= !(libc::ECHO | libc::ECHONL);
        checked(libc::tcsetattr(end.as_raw_fd(), libc::TCSANOW, &settings))?;
        Ok((from, end))
    }
}

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_wherever_it_is_cut() {
        let all = b"one two READY three";
        for size in 1..=all.len() {
            let mut search = Search::new(b"READY");
            let found: Vec<bool> = all.chunks(size).map(|piece| search.finds(piece)).collect();
            assert_eq!(found.iter().filter(|found| **found).count(), 1, "{size}");
            let end = all.len() - b" three".len();
            let at = found.iter().position(|found| *found);
            assert_eq!(at, Some((end - 1) / size), "{size}");
        }
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        let mut search = Search::new(b"aab");
        assert!(!search.finds(b"aa"));
        assert!(!search.finds(b"a"));
        assert!(search.finds(b"b"));
        let mut one = Search::new(b"x");
        assert!(!one.finds(b"abc"));
        assert!(one.finds(b"x"));
    }

    /// Bytes go from a program's end to another pipe, unchanged.
    #[test]
    fn bytes_pass_unchanged() {
        let (from, end) = pipe().expect("a pipe");
        let (read, to) = pipe().expect("a pipe");
        let mut stream = Stream {
            from,
            to,
            is_terminal: false,
        };
        let shared = Arc::new(Shared::default());
        let other = shared.clone();
        let pump = std::thread::spawn(move || stream.pump(b"\x02\x00", &other));
        let sent = [0u8, 1, 2, 0, 255, b'\n', b'\r'];
        write_all(end.as_raw_fd(), &sent).expect("written");
        let mut got = [0u8; 7];
        // SAFETY: the buffer has that length.
        let count = unsafe { libc::read(read.as_raw_fd(), got.as_mut_ptr().cast(), 7) };
        assert_eq!((count, got), (7, sent));
        drop(end);
        assert!(!pump.join().expect("a pump"), "nobody prints any more");
        assert!(shared.seen.load(Ordering::Acquire));
    }
}
