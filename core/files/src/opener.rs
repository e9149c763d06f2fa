// SPDX-License-Identifier: MIT
//! The process that opens, asks and reads files which a stranger names. A file system whose server
//! is silent holds a caller for ever, and no signal ends that; so this process is held in our
//! place, and left behind.
//!
//! It was forked from a process with other threads: it allocates nothing, takes no lock, and calls
//! nothing but the kernel. It ends when the socket is closed at the other end.

use std::mem::zeroed;

use crate::file_system::{is_proc, Kind};
use crate::lease::is_leased;
use crate::message::{
    bytes_of, from_bytes, receive, send, Facts, Reply, Request, BELIEVED_GROUPS, CALL, FACTS,
    FORBIDDEN, FOR_WRITING, GOES_ON, IN_ROOT, KEEP_CAPABILITIES, KIND, LEASED, MOST_GROUPS,
    MOST_READ, NOT_REGULAR, NO_FOLLOW, OPEN, OTHER_KIND, OUTSIDE_PROC, READ, RESOLVE, TOO_LARGE,
    UNCERTAIN, WITH_RIGHTS,
};

/// Bytes of the largest structure that a call of a copy fills (`struct statx`).
pub(crate) const FILLED: usize = 256;
/// Bytes of a file that are copied before the asker hears that it goes on.
const STRIDE: usize = 1 << 20;
const CAP_DAC_OVERRIDE: u32 = 1;
const CAP_DAC_READ_SEARCH: u32 = 2;
const CAPABILITIES_VERSION: u32 = 0x2008_0522;

/// Room that was allocated before the fork.
pub(crate) struct Room {
    pub packet: Vec<u8>,
    pub bytes: Vec<u8>,
    pub groups: Vec<u32>,
}

impl Room {
    pub fn new() -> Room {
        Room {
            packet: vec![0; crate::message::MOST],
            bytes: vec![0; STRIDE],
            groups: vec![0; MOST_GROUPS],
        }
    }
}

/// Closes itself.
struct Handle(i32);

impl Drop for Handle {
    fn drop(&mut self) {
        if self.0 >= 0 {
            // SAFETY: it is nobody else's.
            unsafe { libc::close(self.0) };
        }
    }
}

/// Our own rights, to be taken back.
struct Rights {
    uid: u32,
    gid: u32,
    groups: usize,
    capabilities: [[u32; 3]; 2],
}

/// Never returns.
pub(crate) fn serve(socket: i32, parent: i32, room: &mut Room) -> ! {
    stay(socket, parent);
    let rights = Rights::own(&mut room.groups);
    loop {
        let Ok((got, _)) = receive(socket, &mut room.packet) else {
            end();
        };
        if got == 0 {
            end();
        }
        let mut reply = Reply::default();
        let mut given = Handle(-1);
        let mut filled = 0;
        reply.status = match Asked::parse(&mut room.packet[..got]) {
            None => -i64::from(libc::EINVAL),
            Some(mut asked) => {
                let mut work = Work {
                    socket,
                    parent,
                    rights: &rights,
                    groups: &room.groups,
                    bytes: &mut room.bytes,
                    reply: &mut reply,
                    given: &mut given,
                    filled: &mut filled,
                };
                work.by_path(&mut asked).unwrap_or_else(|e| e)
            }
        };
        reply.bytes = filled as u64;
        let given = (given.0 >= 0).then_some(given.0);
        if send(socket, &[bytes_of(&reply), &room.bytes[..filled]], given).is_err() {
            end();
        }
    }
}

fn end() -> ! {
    // SAFETY: ends this process without the exit handlers of its parent.
    unsafe { libc::_exit(0) }
}

/// Dies with the thread that made it, keeps nothing open, and handles signals as any process.
fn stay(socket: i32, parent: i32) {
    let socket = socket as u32;
    // SAFETY: plain numbers and structures of ours; descriptors of this process only.
    unsafe {
        if socket > 0 {
            libc::syscall(libc::SYS_close_range, 0, socket - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, socket + 1, u32::MAX, 0);
        libc::prctl(libc::PR_SET_NAME, flagfinder_linux::proc::OPENER.as_ptr());
        let mut default: libc::sigaction = zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        for signal in 1..=64 {
            libc::sigaction(signal, &default, std::ptr::null_mut());
        }
        let mut none: libc::sigset_t = zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
    die_with(parent);
}

/// A change of rights takes that back.
fn die_with(parent: i32) {
    // SAFETY: plain numbers.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != parent {
            end();
        }
    }
}

impl Rights {
    fn own(groups: &mut [u32]) -> Rights {
        let mut header = [CAPABILITIES_VERSION, 0];
        let mut capabilities = [[0u32; 3]; 2];
        // SAFETY: buffers of ours of the announced sizes.
        unsafe {
            let most = groups.len() as i32;
            let count = libc::getgroups(most, groups.as_mut_ptr());
            libc::syscall(libc::SYS_capget, &mut header, &mut capabilities);
            Rights {
                uid: libc::geteuid(),
                gid: libc::getegid(),
                groups: usize::try_from(count).unwrap_or(0),
                capabilities,
            }
        }
    }
}

fn set_capabilities(capabilities: &[[u32; 3]; 2]) {
    let header = [CAPABILITIES_VERSION, 0u32];
    // SAFETY: structures of the announced version.
    unsafe { libc::syscall(libc::SYS_capset, &header, capabilities) };
}

/// User and group by which the kernel judges; whether both are these now.
fn set_user(uid: u32, gid: u32) -> bool {
    // SAFETY: plain numbers. The calls return what was before; an id that is none changes nothing.
    unsafe {
        libc::syscall(libc::SYS_setfsgid, gid);
        libc::syscall(libc::SYS_setfsuid, uid);
        let group = libc::syscall(libc::SYS_setfsgid, u32::MAX) as u32;
        let user = libc::syscall(libc::SYS_setfsuid, u32::MAX) as u32;
        (user, group) == (uid, gid)
    }
}

fn set_groups(groups: &[u32]) -> bool {
    // SAFETY: a list of ours.
    unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) == 0 }
}

/// A request with its texts, which end in zeroes.
struct Asked<'p> {
    request: Request,
    groups: [u32; BELIEVED_GROUPS],
    base: &'p mut [u8],
    path: &'p mut [u8],
}

impl<'p> Asked<'p> {
    fn parse(packet: &'p mut [u8]) -> Option<Asked<'p>> {
        let (request, _) = from_bytes::<Request>(packet)?;
        let rest = packet.get_mut(size_of::<Request>()..)?;
        let mut groups = [0; BELIEVED_GROUPS];
        let count = request.groups as usize;
        if count > groups.len() {
            return None;
        }
        let (list, texts) = rest.split_at_mut_checked(count * 4)?;
        for (group, bytes) in groups.iter_mut().zip(list.chunks_exact(4)) {
            *group = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        let (base, path) = texts.split_at_mut_checked(request.base_bytes as usize)?;
        let ends = |text: &[u8]| text.last().is_none_or(|byte| *byte == 0);
        let fits = path.len() == request.path_bytes as usize;
        (fits && ends(base) && ends(path)).then_some(Asked {
            request,
            groups,
            base,
            path,
        })
    }

    fn has(&self, flag: u32) -> bool {
        self.request.flags & flag != 0
    }
}

struct Work<'w> {
    socket: i32,
    parent: i32,
    rights: &'w Rights,
    groups: &'w [u32],
    bytes: &'w mut [u8],
    reply: &'w mut Reply,
    given: &'w mut Handle,
    filled: &'w mut usize,
}

type Outcome<T> = Result<T, i64>;

impl Work<'_> {
    fn read(&mut self, asked: &Asked, handle: &Handle) -> Outcome<i64> {
        let (file, _) = self.opened(asked, handle)?;
        let [most, position, _] = asked.request.numbers;
        let most = (most as usize).min(MOST_READ).min(self.bytes.len());
        let to = self.bytes.as_mut_ptr();
        // SAFETY: a buffer of ours, and no more than it holds.
        let got = unsafe { libc::pread(file.0, to.cast(), most, position as i64) };
        *self.filled = usize::try_from(got).map_err(|_| last())?;
        Ok(0)
    }

    /// Is it a regular file, of a file system that is accepted?
    fn check(&mut self, request: &Request, handle: i32) -> Outcome<Kind> {
        self.reply.f_type = f_type(handle)?;
        let kind = Kind::of(self.reply.f_type);
        self.reply.facts = facts(handle)?;
        if !self.reply.facts.is(libc::S_IFREG) {
            return Err(NOT_REGULAR);
        }
        match request.accepts & kind.bit() {
            0 => Err(OTHER_KIND),
            _ => Ok(kind),
        }
    }

    fn by_path(&mut self, asked: &mut Asked) -> Outcome<i64> {
        let base = match asked.base.is_empty() {
            true => Handle(libc::AT_FDCWD),
            false => opened(libc::AT_FDCWD, asked.base, libc::O_DIRECTORY, 0)?,
        };
        // Whoever gives no base names the file by what the kernel knows of the process, which is
        // told to us and not to that process.
        let walks_with_rights = !asked.base.is_empty();
        let ready = match walks_with_rights {
            true => self.take_rights(asked),
            false => Ok(()),
        };
        let done = ready.and_then(|()| self.walk(asked, base.0, walks_with_rights));
        self.give_back(asked);
        done
    }

    fn walk(&mut self, asked: &mut Asked, base: i32, has: bool) -> Outcome<i64> {
        if asked.path.is_empty() {
            return Err(-i64::from(libc::EINVAL));
        }
        if asked.has(OUTSIDE_PROC) && !leads_outside_proc(base, asked.path)? {
            return Err(UNCERTAIN);
        }
        if asked.request.what == CALL {
            return self.call(asked, base);
        }
        let follow = if asked.has(NO_FOLLOW) {
            libc::O_NOFOLLOW
        } else {
            0
        };
        let resolve = match asked.has(IN_ROOT) {
            true => libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS,
            false => 0,
        };
        let handle = opened(base, asked.path, follow, resolve)?;
        if !has {
            self.take_rights(asked)?;
        }
        match asked.request.what {
            OPEN => self.open(asked, &handle),
            READ => self.read(asked, &handle),
            RESOLVE => self.resolve(&handle),
            FACTS | KIND => {
                if asked.request.what == KIND {
                    self.reply.f_type = f_type(handle.0)?;
                }
                self.reply.facts = facts(handle.0)?;
                Ok(0)
            }
            _ => Err(-i64::from(libc::EINVAL)),
        }
    }

    fn open(&mut self, asked: &Asked, handle: &Handle) -> Outcome<i64> {
        let (file, kind) = self.opened(asked, handle)?;
        *self.given = match kind {
            Kind::Local => file,
            _ => self.copied(&file, asked.request.numbers[0])?,
        };
        Ok(0)
    }

    /// What the handle names, to be read.
    fn opened(&mut self, asked: &Asked, handle: &Handle) -> Outcome<(Handle, Kind)> {
        let kind = self.check(&asked.request, handle.0)?;
        let mut text = [0; 32];
        let link = link_to(handle.0, &mut text);
        if asked.has(FOR_WRITING) {
            let how = libc::AT_EACCESS;
            // SAFETY: a text of ours that ends in a zero.
            let may = unsafe { libc::faccessat(libc::AT_FDCWD, link, libc::W_OK, how) } == 0;
            self.reply.facts.may_write = may.into();
        }
        if is_leased(&self.reply.facts, self.bytes) {
            return Err(LEASED);
        }
        // SAFETY: the same text.
        let file = Handle(unsafe { libc::open(link, libc::O_RDONLY | libc::O_CLOEXEC) });
        if file.0 < 0 {
            return Err(match (last(), asked.has(WITH_RIGHTS)) {
                (error, true) if error == -i64::from(libc::EACCES) => FORBIDDEN,
                (error, _) => error,
            });
        }
        Ok((file, kind))
    }

    /// A file in memory with its content: reading the file itself may block at any time.
    fn copied(&mut self, file: &Handle, most: u64) -> Outcome<Handle> {
        // SAFETY: a text of ours.
        let copy = unsafe { libc::memfd_create(c"ff-file".as_ptr(), libc::MFD_CLOEXEC) };
        let copy = Handle(copy);
        let mut so_far = 0;
        loop {
            let (to, room) = (self.bytes.as_mut_ptr(), self.bytes.len());
            // SAFETY: a buffer of ours, and no more than it holds.
            let got = unsafe { libc::read(file.0, to.cast(), room) };
            let got = usize::try_from(got).map_err(|_| last())?;
            if got == 0 {
                return Ok(copy);
            }
            so_far += got as u64;
            if so_far > most {
                return Err(TOO_LARGE);
            }
            let mut written = 0;
            while written < got {
                // SAFETY: the part of the buffer that was filled.
                let more = unsafe {
                    let from = self.bytes.as_ptr().add(written);
                    libc::write(copy.0, from.cast(), got - written)
                };
                written += usize::try_from(more).map_err(|_| last())?;
            }
            let goes_on = Reply {
                status: GOES_ON,
                ..Reply::default()
            };
            send(self.socket, &[bytes_of(&goes_on)], None).map_err(|e| -i64::from(e))?;
        }
    }

    fn resolve(&mut self, handle: &Handle) -> Outcome<i64> {
        let mut text = [0; 32];
        let link = link_to(handle.0, &mut text);
        let (to, room) = (self.bytes.as_mut_ptr(), libc::PATH_MAX as usize);
        // SAFETY: a text and a buffer of ours.
        let got = unsafe { libc::readlink(link, to.cast(), room) };
        *self.filled = usize::try_from(got).map_err(|_| last())?;
        Ok(0)
    }

    fn call(&mut self, asked: &Asked, base: i32) -> Outcome<i64> {
        let [number, first, second] = asked.request.numbers;
        let filled = &mut self.bytes[..FILLED];
        filled.fill(0);
        let (path, to) = (asked.path.as_ptr(), filled.as_mut_ptr());
        // SAFETY: a text of ours, and a buffer that holds each of the structures.
        let result = unsafe {
            match number as i64 {
                libc::SYS_faccessat2 => libc::syscall(number as i64, base, path, first, second),
                libc::SYS_newfstatat => libc::syscall(number as i64, base, path, to, first),
                libc::SYS_statx => libc::syscall(number as i64, base, path, first, second, to),
                _ => return Err(UNCERTAIN),
            }
        };
        if result < 0 {
            return Err(last());
        }
        *self.filled = FILLED;
        Ok(result)
    }

    /// From here on the kernel judges as for the process. Where it can't be told to (without
    /// CAP_SETUID), nothing is opened: of all folders on the way somebody would have to judge.
    fn take_rights(&self, asked: &Asked) -> Outcome<()> {
        if !asked.has(WITH_RIGHTS) {
            return Ok(());
        }
        let request = &asked.request;
        if !asked.has(KEEP_CAPABILITIES) {
            let mut fewer = self.rights.capabilities;
            fewer[0][0] &= !(1 << CAP_DAC_OVERRIDE | 1 << CAP_DAC_READ_SEARCH);
            set_capabilities(&fewer);
        }
        let all = set_groups(&asked.groups[..request.groups as usize]);
        let is_user = set_user(request.uid, request.gid);
        let is_own = (request.uid, request.gid) == (self.rights.uid, self.rights.gid);
        match is_user && (all || is_own) {
            true => Ok(()),
            false => Err(FORBIDDEN),
        }
    }

    fn give_back(&self, asked: &Asked) {
        if asked.has(WITH_RIGHTS) {
            set_user(self.rights.uid, self.rights.gid);
            set_groups(&self.groups[..self.rights.groups]);
            set_capabilities(&self.rights.capabilities);
            die_with(self.parent);
        }
    }
}

/// The last error's number, negative.
fn last() -> i64 {
    // SAFETY: this thread's own number.
    -i64::from(unsafe { *libc::__errno_location() })
}

/// A handle that only names what the path leads to.
fn opened(base: i32, path: &[u8], flags: i32, resolve: u64) -> Outcome<Handle> {
    // SAFETY: a structure of plain numbers, and a text that ends in a zero.
    let fd = unsafe {
        let mut how: libc::open_how = zeroed();
        how.flags = (libc::O_PATH | libc::O_CLOEXEC | flags) as u64;
        how.resolve = resolve;
        let size = size_of::<libc::open_how>();
        libc::syscall(libc::SYS_openat2, base, path.as_ptr(), &how, size)
    };
    match fd {
        0.. => Ok(Handle(fd as i32)),
        _ => Err(last()),
    }
}

fn f_type(handle: i32) -> Outcome<i64> {
    // SAFETY: a structure of plain numbers, which the kernel fills.
    unsafe {
        let mut told: libc::statfs = zeroed();
        match libc::fstatfs(handle, &mut told) {
            0 => Ok(told.f_type),
            _ => Err(last()),
        }
    }
}

fn facts(handle: i32) -> Outcome<Facts> {
    // SAFETY: as above.
    unsafe {
        let mut told: libc::stat = zeroed();
        if libc::fstat(handle, &mut told) != 0 {
            return Err(last());
        }
        Ok(Facts {
            device: told.st_dev,
            inode: told.st_ino,
            mode: told.st_mode,
            may_write: 0,
            size: told.st_size as u64,
            modified: told.st_mtime,
            modified_ns: told.st_mtime_nsec,
            changed: told.st_ctime,
        })
    }
}

/// `/proc/self/fd/N`, made without the allocator.
fn link_to(handle: i32, text: &mut [u8; 32]) -> *const libc::c_char {
    const FOLDER: &[u8] = b"/proc/self/fd/";
    text[..FOLDER.len()].copy_from_slice(FOLDER);
    let mut digits = [0; 10];
    let mut count = 0;
    let mut left = handle.unsigned_abs();
    while count == 0 || left > 0 {
        digits[count] = b'0' + (left % 10) as u8;
        left /= 10;
        count += 1;
    }
    for at in 0..count {
        text[FOLDER.len() + at] = digits[count - 1 - at];
    }
    text[FOLDER.len() + count] = 0;
    text.as_ptr().cast()
}

/// Does the path keep out of /proc, which is another one for each process? A link that leads
/// nowhere may lead there.
fn leads_outside_proc(base: i32, path: &mut [u8]) -> Outcome<bool> {
    if base >= 0 && is_proc(f_type(base)?) {
        return Ok(false);
    }
    let end = path.len() - 1;
    for at in 1..=end {
        if at < end && path[at] != b'/' {
            continue;
        }
        let kept = std::mem::replace(&mut path[at], 0);
        let found = opened(base, path, 0, 0).and_then(|handle| f_type(handle.0));
        let is_nothing = || opened(base, path, libc::O_NOFOLLOW, 0).is_err();
        let known = match found {
            Ok(kind) if is_proc(kind) => Some(false),
            Ok(_) => None,
            Err(error) if error == -i64::from(libc::ENOENT) => Some(is_nothing()),
            Err(_) => Some(false),
        };
        path[at] = kept;
        if let Some(known) = known {
            return Ok(known);
        }
    }
    Ok(true)
}
