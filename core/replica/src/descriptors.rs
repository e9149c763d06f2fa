// SPDX-License-Identifier: MIT
//! What a process's descriptors would answer, asked without changing anything.
//!
//! A duplicate of the descriptor (pidfd_getfd) is asked by `poll` with no wait, by reading a
//! regular file at a place (which moves no position), by peeking at a socket. Nothing is taken out
//! of a queue.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};

use flagfinder_linux::descriptors::{watches, Watch};
use flagfinder_linux::proc::{self, Stat};

/// The character device that is always at its end (/dev/null).
const NULL_DEVICE: u64 = 1 << 8 | 3;

/// Bytes of the kernel's `struct termios`.
const TERMINAL: usize = 36;

/// The descriptors of a live process.
pub struct Descriptors {
    pid: u32,
    process: OwnedFd,
}

/// What a read would bring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    Data(Vec<u8>),
    End,
    /// Nothing is there, and the descriptor does not wait.
    Again,
    /// Nothing is there, and the reader would wait.
    Blocks,
    /// Only taking the data would tell.
    Unknown,
}

impl Descriptors {
    /// # Errors
    /// When the process is gone.
    pub fn open(pid: u32) -> Result<Descriptors> {
        // SAFETY: plain numbers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        Ok(Descriptors {
            pid,
            process: owned(fd)?,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// A duplicate of the descriptor.
    ///
    /// # Errors
    /// EBADF where it has no such descriptor; EPERM without the right to trace the process.
    pub fn duplicate(&self, descriptor: i32) -> Result<OwnedFd> {
        // SAFETY: plain numbers.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_pidfd_getfd,
                self.process.as_raw_fd(),
                descriptor,
                0,
            )
        };
        owned(fd)
    }

    /// What `poll` says of it now.
    ///
    /// # Errors
    /// As [`Self::duplicate`].
    pub fn ready(&self, descriptor: i32, events: i16) -> Result<i16> {
        let duplicate = match self.duplicate(descriptor) {
            Err(error) if error.raw_os_error() == Some(libc::EBADF) => return Ok(libc::POLLNVAL),
            other => other?,
        };
        poll(&duplicate, events)
    }

    /// The status flags (O_NONBLOCK and so on).
    ///
    /// # Errors
    /// As [`Self::duplicate`].
    pub fn flags(&self, descriptor: i32) -> Result<i32> {
        flags(&self.duplicate(descriptor)?)
    }

    /// Bytes that wait to be read (FIONREAD).
    ///
    /// # Errors
    /// As [`Self::duplicate`], and where the descriptor knows no such number.
    pub fn waiting(&self, descriptor: i32) -> Result<i32> {
        let duplicate = self.duplicate(descriptor)?;
        let mut bytes = 0i32;
        // SAFETY: the kernel writes an int.
        let result = unsafe { libc::ioctl(duplicate.as_raw_fd(), libc::FIONREAD, &mut bytes) };
        if result < 0 {
            return Err(Error::last_os_error());
        }
        Ok(bytes)
    }

    /// The settings of a terminal (TCGETS).
    ///
    /// # Errors
    /// As [`Self::duplicate`]; ENOTTY where it is none.
    pub fn terminal(&self, descriptor: i32) -> Result<[u8; TERMINAL]> {
        let duplicate = self.duplicate(descriptor)?;
        let mut settings = [0u8; TERMINAL];
        let to = settings.as_mut_ptr();
        // SAFETY: the kernel writes a structure of that size.
        match unsafe { libc::ioctl(duplicate.as_raw_fd(), libc::TCGETS, to) } {
            0 => Ok(settings),
            _ => Err(Error::last_os_error()),
        }
    }

    /// What reading up to `most` bytes would bring; `moved` is what the copy has read of a file
    /// before.
    ///
    /// # Errors
    /// As [`Self::duplicate`].
    pub fn read(&self, descriptor: i32, most: usize, moved: u64) -> Result<Read> {
        let duplicate = self.duplicate(descriptor)?;
        let file = File::from(duplicate.try_clone()?);
        let kind = file.metadata()?;
        let mut buffer = vec![0; most.min(1 << 16)];
        let ended = |got: usize, mut buffer: Vec<u8>| match got {
            0 => Read::End,
            got => {
                buffer.truncate(got);
                Read::Data(buffer)
            }
        };
        if kind.is_file() {
            let got = file.read_at(&mut buffer, self.position(descriptor)? + moved)?;
            return Ok(ended(got, buffer));
        }
        if kind.file_type().is_char_device() && kind.rdev() == NULL_DEVICE {
            return Ok(Read::End);
        }
        if kind.file_type().is_socket() && moved > 0 {
            // A peek would show the same bytes again; we do not assume that more have come.
            return match empty(&duplicate)? {
                Read::Again => Ok(Read::Again),
                _ => Ok(Read::Unknown),
            };
        }
        if kind.file_type().is_socket() {
            // SAFETY: the buffer is ours; a peek takes nothing.
            let got = unsafe {
                libc::recv(
                    duplicate.as_raw_fd(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    libc::MSG_PEEK | libc::MSG_DONTWAIT,
                )
            };
            if let Ok(got) = usize::try_from(got) {
                return Ok(ended(got, buffer));
            }
            if Error::last_os_error().kind() != ErrorKind::WouldBlock {
                return Ok(Read::Unknown);
            }
            return empty(&duplicate);
        }
        let ready = poll(&duplicate, libc::POLLIN)?;
        // Of a named pipe that was opened without waiting, and that nobody has opened for writing
        // since, poll says the same as of one whose writer is silent; a read would return its end.
        let is_named = || Ok::<_, Error>(!self.link(descriptor)?.starts_with("pipe:"));
        match ready {
            0 if kind.file_type().is_fifo()
                && flags(&duplicate)? & libc::O_NONBLOCK != 0
                && is_named()? =>
            {
                Ok(Read::Unknown)
            }
            0 => empty(&duplicate),
            // The other end of a pipe is gone, and nothing is left in it.
            _ if ready & libc::POLLIN == 0 && kind.file_type().is_fifo() => Ok(Read::End),
            _ => Ok(Read::Unknown),
        }
    }

    /// What reading a regular file at `position` would bring; `None`: it is no regular file.
    ///
    /// # Errors
    /// As [`Self::duplicate`], and those of the read.
    pub fn read_at(&self, descriptor: i32, most: usize, position: u64) -> Result<Option<Vec<u8>>> {
        let file = File::from(self.duplicate(descriptor)?);
        if !file.metadata()?.is_file() {
            return Ok(None);
        }
        let mut buffer = vec![0; most.min(1 << 16)];
        let got = file.read_at(&mut buffer, position)?;
        buffer.truncate(got);
        Ok(Some(buffer))
    }

    /// What an epoll descriptor watches.
    ///
    /// # Errors
    /// When the process is gone, or has no such descriptor.
    pub fn watched(&self, descriptor: i32) -> Result<Vec<Watch>> {
        Ok(watches(&self.information(descriptor)?))
    }

    fn link(&self, descriptor: i32) -> Result<String> {
        let link = std::fs::read_link(proc::path(self.pid, &format!("fd/{descriptor}")))?;
        Ok(link.to_string_lossy().into_owned())
    }

    pub(crate) fn information(&self, descriptor: i32) -> Result<String> {
        proc::text_of(self.pid, &format!("fdinfo/{descriptor}"))
    }

    fn position(&self, descriptor: i32) -> Result<u64> {
        let text = self.information(descriptor)?;
        let position = text.lines().find_map(|line| line.strip_prefix("pos:"));
        position
            .and_then(|text| text.trim().parse().ok())
            .ok_or_else(|| Error::from(ErrorKind::InvalidData))
    }

    /// Does a process live that is not a zombie? `None`: there is no such process.
    pub fn lives(&self, pid: i32) -> Option<bool> {
        Stat::of(pid as u32).map(|_| proc::lives(pid as u32))
    }
}

fn empty(descriptor: &OwnedFd) -> Result<Read> {
    let waits = flags(descriptor)? & libc::O_NONBLOCK == 0;
    Ok(if waits { Read::Blocks } else { Read::Again })
}

fn flags(descriptor: &OwnedFd) -> Result<i32> {
    // SAFETY: plain numbers.
    match unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_GETFL) } {
        -1 => Err(Error::last_os_error()),
        flags => Ok(flags),
    }
}

fn poll(descriptor: &OwnedFd, events: i16) -> Result<i16> {
    let mut entry = libc::pollfd {
        fd: descriptor.as_raw_fd(),
        events,
        revents: 0,
    };
    // SAFETY: one entry of ours.
    match unsafe { libc::poll(&mut entry, 1, 0) } {
        -1 => Err(Error::last_os_error()),
        _ => Ok(entry.revents),
    }
}

fn owned(fd: i64) -> Result<OwnedFd> {
    if fd < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: the kernel just made it, nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use super::*;

    fn own() -> Descriptors {
        Descriptors::open(std::process::id()).expect("this process")
    }

    fn pipe() -> (OwnedFd, File) {
        let mut ends = [0i32; 2];
        // SAFETY: two integers to fill; fresh descriptors that nobody else owns.
        unsafe {
            assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK), 0);
            (
                OwnedFd::from_raw_fd(ends[0]),
                File::from(OwnedFd::from_raw_fd(ends[1])),
            )
        }
    }

    #[test]
    fn a_pipe_is_asked_and_not_emptied() {
        let (output, mut input) = pipe();
        let (own, fd) = (own(), output.as_raw_fd());
        assert_eq!(own.read(fd, 8, 0).expect("asked"), Read::Again);
        input.write_all(b"word").expect("room");
        assert_eq!(own.ready(fd, libc::POLLIN).expect("asked"), libc::POLLIN);
        assert_eq!(own.read(fd, 8, 0).expect("asked"), Read::Unknown);
        assert_eq!(own.waiting(fd).expect("asked"), 4);
        let mut word = [0; 4];
        std::io::Read::read_exact(&mut File::from(output), &mut word).expect("still there");
        assert_eq!(&word, b"word");
    }

    #[test]
    fn a_pipe_is_no_terminal() {
        let (output, _input) = pipe();
        let terminal = own().terminal(output.as_raw_fd());
        let number = terminal.map_err(|error| error.raw_os_error());
        assert_eq!(number, Err(Some(libc::ENOTTY)));
    }

    #[test]
    fn a_pipe_whose_writer_is_gone_is_at_its_end() {
        let (output, input) = pipe();
        drop(input);
        let read = own().read(output.as_raw_fd(), 8, 0).expect("asked");
        assert_eq!(read, Read::End);
    }

    #[test]
    fn of_a_named_pipe_without_a_writer_nothing_is_known() {
        let path = std::env::temp_dir().join(format!("ff-replica-fifo-{}", std::process::id()));
        let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).expect("no zero");
        // SAFETY: a text of ours.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let mut without_waiting = File::options();
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut without_waiting, libc::O_NONBLOCK);
        let reader = without_waiting.read(true).open(&path);
        std::fs::remove_file(&path).expect("its name");
        let reader = reader.expect("opened");
        let read = own().read(reader.as_raw_fd(), 8, 0).expect("asked");
        assert_eq!(read, Read::Unknown);
    }

    #[test]
    fn a_file_is_read_where_it_stands_and_stays_there() {
        let path = std::env::temp_dir().join(format!("ff-replica-{}", std::process::id()));
        let mut file = File::options();
        file.read(true).write(true).create(true).truncate(true);
        let mut file = file.open(&path).expect("a file");
        std::fs::remove_file(&path).expect("its name");
        file.write_all(b"0123456789").expect("room");
        file.seek(std::io::SeekFrom::Start(4)).expect("a place");
        let (own, fd) = (own(), file.as_raw_fd());
        let read = |moved| own.read(fd, 3, moved).expect("asked");
        assert_eq!(read(0), Read::Data(b"456".to_vec()));
        assert_eq!(read(3), Read::Data(b"789".to_vec()));
        assert_eq!(read(6), Read::End);
        assert_eq!(file.stream_position().expect("a place"), 4);
    }

    #[test]
    fn a_closed_descriptor_is_invalid() {
        assert_eq!(
            own().ready(999_999, libc::POLLIN).expect("asked"),
            libc::POLLNVAL
        );
    }
}
