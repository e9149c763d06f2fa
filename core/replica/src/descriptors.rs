// SPDX-License-Identifier: MIT
//! What a process's descriptors would answer, asked without changing anything.
//!
//! A duplicate of the descriptor (pidfd_getfd) is asked by `poll` with no wait, by reading a file
//! of this machine at a place (which moves no position), by peeking at a stream in which bytes
//! wait. Nothing is taken out of a queue. Only devices are asked of which it is known that this
//! leaves them as they are. Of a file that lies elsewhere there is no duplicate: its server would
//! have to answer when it is closed. Of one that the kernel makes up neither: reading or polling it
//! may take away what the process waits for.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;
use std::path::PathBuf;

use flagfinder_files::Kind;

use flagfinder_linux::descriptors::{object, watches, Object, Watch};
use flagfinder_linux::pidfd;
use flagfinder_linux::proc::{self, Stat};

/// The character device that is always at its end (/dev/null).
const NULL_DEVICE: u64 = 1 << 8 | 3;

/// So deep epoll descriptors within each other are looked into.
const NESTED: u32 = 4;

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
        let process = pidfd::open(pid)?;
        Ok(Descriptors { pid, process })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// A duplicate of the descriptor.
    ///
    /// # Errors
    /// EBADF where it has no such descriptor; EPERM without the right to trace the process;
    /// `Unsupported`: a duplicate might change something, or wait.
    pub fn duplicate(&self, descriptor: i32) -> Result<OwnedFd> {
        let unsafe_to_have = || Error::from(ErrorKind::Unsupported);
        let place = self.place(descriptor);
        let link = std::fs::read_link(&place).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Error::from_raw_os_error(libc::EBADF),
            _ => error,
        })?;
        // Pipes, sockets and their like have no path.
        if link.has_root() {
            let (kind, facts) = flagfinder_files::kind_of(&place)?;
            let holds_names = facts.is(libc::S_IFREG) || facts.is(libc::S_IFDIR);
            let is_device = facts.is(libc::S_IFCHR) || facts.is(libc::S_IFBLK);
            if (holds_names && kind != Kind::Local)
                || (is_device && object(self.pid, descriptor) != Some(Object::Plain))
            {
                return Err(unsafe_to_have());
            }
        } else if !self.is_harmless(descriptor, &link, NESTED) {
            return Err(unsafe_to_have());
        }
        let duplicate = self.duplicated(descriptor)?;
        let own = format!("/proc/self/fd/{}", duplicate.as_raw_fd());
        if std::fs::read_link(own)? != link {
            // The process has put another file there meanwhile. To close it may wait for a server.
            std::mem::forget(duplicate);
            return Err(unsafe_to_have());
        }
        Ok(duplicate)
    }

    /// Does asking such a descriptor change nothing? To poll a performance event takes its wake-up,
    /// and to poll an epoll descriptor asks all that is in it.
    fn is_harmless(&self, descriptor: i32, link: &Path, nested: u32) -> bool {
        if link.as_os_str() == "anon_inode:[eventpoll]" {
            let Ok(all) = self.watched(descriptor) else {
                return false;
            };
            return nested > 0
                && all.iter().all(|watch| {
                    // Once its number is given to another file, nobody knows what is asked.
                    let link = std::fs::read_link(self.place(watch.descriptor));
                    link.is_ok_and(|link| self.is_harmless(watch.descriptor, &link, nested - 1))
                });
        }
        object(self.pid, descriptor).is_some_and(|object| object != Object::Other)
    }

    fn duplicated(&self, descriptor: i32) -> Result<OwnedFd> {
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
        let duplicate = match self.duplicate(descriptor) {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                let position = self.position(descriptor)? + moved;
                return Ok(match self.read_elsewhere(descriptor, most, position)? {
                    bytes if bytes.is_empty() => Read::End,
                    bytes => Read::Data(bytes),
                });
            }
            other => other?,
        };
        let file = File::from(duplicate.try_clone()?);
        let kind = file.metadata()?;
        let mut buffer = vec![0; most.min(1 << 16)];
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
            return peeked(&duplicate, buffer);
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
        let file = match self.duplicate(descriptor) {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                return self.read_elsewhere(descriptor, most, position).map(Some);
            }
            other => File::from(other?),
        };
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

    /// Of a file of another machine, if the process may read by this descriptor.
    fn read_elsewhere(&self, descriptor: i32, most: usize, position: u64) -> Result<Vec<u8>> {
        let information = self.information(descriptor)?;
        let flags = information.lines().find_map(|l| l.strip_prefix("flags:"));
        let flags = flags.and_then(|text| i32::from_str_radix(text.trim(), 8).ok());
        match flags.map(|flags| flags & (libc::O_ACCMODE | libc::O_PATH)) {
            Some(libc::O_RDONLY | libc::O_RDWR) => {
                flagfinder_files::read_at(&self.place(descriptor), most, position)
            }
            _ => Err(Error::from(ErrorKind::Unsupported)),
        }
    }

    /// Where the kernel tells of the descriptor.
    fn place(&self, descriptor: i32) -> PathBuf {
        proc::path(self.pid, &format!("fd/{descriptor}"))
    }

    fn link(&self, descriptor: i32) -> Result<String> {
        let link = std::fs::read_link(self.place(descriptor))?;
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

fn ended(got: usize, mut buffer: Vec<u8>) -> Read {
    match got {
        0 => Read::End,
        got => {
            buffer.truncate(got);
            Read::Data(buffer)
        }
    }
}

/// What a socket would bring. A call that finds an error takes it away, and the program never gets
/// it. So only a stream in which bytes wait is peeked at, as they come before an error. Blind spot:
/// the program takes them all before the peek, and an error comes in that time. A place that the
/// program has set for peeks (SO_PEEK_OFF) would move. Of other families little is known.
fn peeked(socket: &OwnedFd, mut buffer: Vec<u8>) -> Result<Read> {
    const FAMILIES: [i32; 3] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6];
    const PROTOCOLS: [i32; 2] = [0, libc::IPPROTO_TCP];
    let option = |name: i32| {
        let mut value = 0i32;
        let mut size = size_of::<i32>() as libc::socklen_t;
        let to = (&raw mut value).cast();
        // SAFETY: the kernel writes an int.
        let got =
            unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, to, &mut size) };
        (got == 0).then_some(value)
    };
    let is_one = |name: i32, of: &[i32]| option(name).is_some_and(|value| of.contains(&value));
    if !is_one(libc::SO_DOMAIN, &FAMILIES) {
        return Ok(Read::Unknown);
    }
    let ready = poll(socket, libc::POLLIN | libc::POLLRDHUP)?;
    let is_stream =
        is_one(libc::SO_TYPE, &[libc::SOCK_STREAM]) && is_one(libc::SO_PROTOCOL, &PROTOCOLS);
    match ready {
        0 => return empty(socket),
        _ if ready & libc::POLLERR != 0 || !is_stream => return Ok(Read::Unknown),
        _ => {}
    }
    let mut waiting = 0i32;
    // SAFETY: the kernel writes an int.
    let counted = unsafe { libc::ioctl(socket.as_raw_fd(), libc::FIONREAD, &mut waiting) } == 0;
    if counted && waiting == 0 && ready & libc::POLLRDHUP != 0 {
        return Ok(Read::End);
    }
    if !counted || waiting == 0 || option(libc::SO_PEEK_OFF).is_none_or(|place| place >= 0) {
        return Ok(Read::Unknown);
    }
    // SAFETY: the buffer is ours; a peek takes nothing.
    let got = unsafe {
        libc::recv(
            socket.as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            libc::MSG_PEEK | libc::MSG_DONTWAIT,
        )
    };
    Ok(usize::try_from(got).map_or(Read::Unknown, |got| ended(got, buffer)))
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
    fn nothing_is_asked_of_what_the_kernel_makes_up() {
        // poll(2) of a list of mounts takes away the news that there are others.
        for path in [
            "/proc/self/mountinfo",
            "/proc/self/status",
            "/sys/kernel/uevent_seqnum",
        ] {
            let file = File::open(path).expect("it is there");
            let (own, fd) = (own(), file.as_raw_fd());
            let unsupported = |error: Error| error.kind() == ErrorKind::Unsupported;
            assert!(own.duplicate(fd).is_err_and(unsupported), "{path}");
            assert!(
                own.ready(fd, libc::POLLPRI).is_err_and(unsupported),
                "{path}"
            );
            assert!(
                own.read(fd, 8, 0).is_err() && own.read_at(fd, 8, 0).is_err(),
                "{path}"
            );
        }
    }

    #[test]
    fn an_error_that_waits_in_a_socket_stays_there() {
        use std::net::UdpSocket;
        let unused = UdpSocket::bind("127.0.0.1:0").and_then(|one| one.local_addr());
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket
            .connect(unused.expect("an address"))
            .expect("connected");
        socket.set_nonblocking(true).expect("set");
        socket.send(b"x").expect("sent");
        let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
        let has_error = || {
            own()
                .ready(socket.as_raw_fd(), libc::POLLIN)
                .expect("asked")
        };
        while has_error() & libc::POLLERR == 0 && std::time::Instant::now() < until {
            std::thread::yield_now();
        }
        let read = own().read(socket.as_raw_fd(), 8, 0).expect("asked");
        assert_eq!(read, Read::Unknown);
        let error = socket.recv(&mut [0; 8]).expect_err("it is still there");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_stream_tells_its_bytes_and_its_end_and_messages_are_left_alone() {
        use std::os::unix::net::{UnixDatagram, UnixStream};
        let (mut here, there) = UnixStream::pair().expect("sockets");
        let read = |fd: i32| own().read(fd, 8, 0).expect("asked");
        assert_eq!(read(there.as_raw_fd()), Read::Blocks);
        here.write_all(b"abc").expect("room");
        assert_eq!(read(there.as_raw_fd()), Read::Data(b"abc".to_vec()));
        let (other, end) = UnixStream::pair().expect("sockets");
        drop(other);
        assert_eq!(read(end.as_raw_fd()), Read::End);
        // An error would come before the message.
        let (here, there) = UnixDatagram::pair().expect("sockets");
        assert_eq!(read(there.as_raw_fd()), Read::Blocks);
        here.send(b"abc").expect("room");
        assert_eq!(read(there.as_raw_fd()), Read::Unknown);
    }

    #[test]
    fn only_devices_are_asked_that_are_known() {
        let open = |path: &str| File::open(path).ok();
        let asked = |file: &File| own().ready(file.as_raw_fd(), libc::POLLIN);
        for path in ["/dev/null", "/dev/zero", "/dev/urandom", "/dev/ptmx"] {
            asked(&open(path).expect("it is there")).expect(path);
        }
        for file in [
            "/dev/kmsg",
            "/dev/fuse",
            "/dev/net/tun",
            "/dev/loop-control",
        ]
        .into_iter()
        .filter_map(open)
        {
            let error = asked(&file).expect_err("it may change");
            assert_eq!(error.kind(), ErrorKind::Unsupported);
        }
    }

    #[test]
    fn a_closed_descriptor_is_invalid() {
        assert_eq!(
            own().ready(999_999, libc::POLLIN).expect("asked"),
            libc::POLLNVAL
        );
    }
}
