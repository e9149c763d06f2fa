// SPDX-License-Identifier: MIT
//! Asking the opener, and leaving it behind when a file system does not answer.
//!
//! A request has one second, where a process or another machine gives the answers, and five else:
//! a disk may be slow. A file system that was silent is not asked again for a while.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use flagfinder_linux::mounts::{of_path, server, Mount, WAITS_FOR_SERVER_IN};
use flagfinder_linux::pidfd::signal_child;
use flagfinder_linux::proc::{self, Stat};

use crate::message::{
    bytes_of, from_bytes, receive, send, Reply, Request, BELIEVED_GROUPS, FORBIDDEN, GOES_ON,
    LEASED, MOST, NOT_REGULAR, OTHER_KIND, TOO_LARGE, UNCERTAIN,
};
use crate::opener::{serve, Room};

/// Where answers come from elsewhere; where they come from this machine; where the opener had no
/// processor.
const PATIENCE: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(20),
];
/// For a copy of a file, however it trickles in.
const WHOLE: Duration = Duration::from_secs(10);
const BETWEEN: i32 = 100; // ms
/// For those that have no more questions to end.
const ENDS: Duration = Duration::from_millis(200);
/// For so long a file system that was silent is not asked.
const SILENT_FOR: Duration = Duration::from_secs(30);
/// Openers that are left behind at the same time: no more is asked then.
const MOST_LEFT: usize = 16;
/// Openers that ended with the thread that made them.
const ATTEMPTS: usize = 16;
/// Calls in which answers of other machines are waited for.
const WAITS_FOR_MACHINE_IN: [&str; 5] = ["rpc_", "nfs", "p9_", "cifs", "wait_for_response"];

static IDLE: Mutex<Vec<Opener>> = Mutex::new(Vec::new());
static SILENT: Mutex<Vec<Silent>> = Mutex::new(Vec::new());
static LEFT: Mutex<Vec<i32>> = Mutex::new(Vec::new());

/// An opener that waits for a question.
struct Opener {
    socket: OwnedFd,
    pid: i32,
    /// A fork of this process has the same descriptor, and must not ask by it.
    asker: u32,
}

/// A file system, or a path, that did not answer.
struct Silent {
    device: Option<(u32, u32)>,
    path: PathBuf,
    since: Instant,
    server: Option<String>,
}

/// A question, and what it is about.
pub(crate) struct Question<'q> {
    pub request: Request,
    pub groups: &'q [u32],
    pub base: Option<&'q Path>,
    pub path: &'q Path,
    /// The file's path as the process of this number has it; `None`: as we have it.
    pub known_as: (Option<u32>, PathBuf),
}

pub(crate) struct Answer {
    pub reply: Reply,
    pub bytes: Vec<u8>,
    pub descriptor: Option<OwnedFd>,
}

enum Told {
    Answer(Answer),
    /// The opener has ended.
    Gone,
    Silence,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Processes of ours that open files, those that were left behind among them.
pub fn openers() -> Vec<u32> {
    let left = locked(&LEFT).clone();
    let idle = locked(&IDLE);
    let idle = idle.iter().map(|opener| opener.pid);
    idle.chain(left).map(|pid| pid as u32).collect()
}

/// Ends those that this process keeps for the next question, and waits for them: whoever becomes
/// the parent of what a process leaves may never do. Called when a process ends by `exit`; one that
/// ends otherwise calls it.
pub fn end_openers() {
    let Ok(mut idle) = IDLE.try_lock() else {
        return;
    };
    let own = std::process::id();
    let pids: Vec<i32> = idle
        .drain(..)
        .filter(|opener| opener.asker == own)
        .map(|opener| opener.pid)
        .collect();
    let begin = Instant::now();
    for pid in pids {
        while !reaped(pid) && begin.elapsed() < ENDS {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

extern "C" fn at_exit() {
    end_openers();
}

impl Question<'_> {
    /// # Errors
    /// The system's; `TimedOut`: the file system does not answer.
    pub fn ask(&self) -> Result<Answer> {
        self.check_silent()?;
        for _ in 0..ATTEMPTS {
            let opener = take_idle().map_or_else(Opener::start, Ok)?;
            match opener.ask(self)? {
                Told::Answer(answer) => {
                    locked(&IDLE).push(opener);
                    return self.judged(answer);
                }
                Told::Gone => opener.reap(),
                Told::Silence => {
                    opener.leave();
                    return Err(self.remember());
                }
            }
        }
        Err(Error::other("no process that opens files can be kept"))
    }

    fn judged(&self, answer: Answer) -> Result<Answer> {
        let invalid = |text: &str| Error::new(ErrorKind::InvalidInput, text);
        Err(match answer.reply.status {
            0.. => return Ok(answer),
            NOT_REGULAR => invalid("it is no regular file"),
            OTHER_KIND => invalid("it is no file on a disk: reading it may take something away"),
            TOO_LARGE => Error::new(ErrorKind::FileTooLarge, "it is too large to be copied"),
            FORBIDDEN => Error::new(
                ErrorKind::PermissionDenied,
                "the process that names it may not read it",
            ),
            LEASED => Error::new(
                ErrorKind::ResourceBusy,
                "another process has a lease on it, which it would lose",
            ),
            UNCERTAIN => Error::new(ErrorKind::Unsupported, "it may be another file to us"),
            number => Error::from_raw_os_error(-number as i32),
        })
    }

    fn mounts(&self) -> String {
        let of = self.known_as.0.unwrap_or_else(std::process::id);
        proc::text_of(of, "mountinfo").unwrap_or_default()
    }

    fn check_silent(&self) -> Result<()> {
        let mut silent = locked(&SILENT);
        silent.retain(|one| one.since.elapsed() < SILENT_FOR);
        if silent.is_empty() {
            return Ok(());
        }
        let mounts = self.mounts();
        let device = self.mount(&mounts).map(|mount| mount.device);
        let path = &self.known_as.1;
        let found = silent.iter().find(|one| match one.device {
            Some(_) => one.device == device,
            None => one.path == *path,
        });
        match found {
            Some(one) => Err(one.error(path)),
            None => Ok(()),
        }
    }

    fn mount<'t>(&self, mounts: &'t str) -> Option<Mount<'t>> {
        of_path(mounts, &self.known_as.1.to_string_lossy())
    }

    /// May the answer never come, as far as the mounts tell?
    fn may_hang(&self) -> bool {
        let mounts = self.mounts();
        self.mount(&mounts).is_some_and(|mount| mount.may_hang())
    }

    fn remember(&self) -> Error {
        let mounts = self.mounts();
        let mount = self.mount(&mounts).filter(Mount::may_hang);
        let pid = mount
            .filter(Mount::is_served)
            .and_then(|m| server(m.device.1));
        let silent = Silent {
            device: mount.map(|mount| mount.device),
            path: self.known_as.1.clone(),
            since: Instant::now(),
            server: pid.map(|pid| {
                let name = proc::name(pid, pid).unwrap_or_default();
                format!("process {pid} ({name})")
            }),
        };
        let error = silent.error(&self.known_as.1);
        locked(&SILENT).push(silent);
        error
    }
}

impl Silent {
    fn error(&self, path: &Path) -> Error {
        let path = path.display();
        let server = self.server.as_ref();
        let server = server.map_or(String::new(), |who| format!(": its server is {who}"));
        let text = format!("the file system of {path} does not answer{server}");
        Error::new(ErrorKind::TimedOut, text)
    }
}

fn take_idle() -> Option<Opener> {
    let mut idle = locked(&IDLE);
    idle.retain(|opener| opener.asker == std::process::id());
    idle.pop()
}

impl Opener {
    fn start() -> Result<Opener> {
        let mut left = locked(&LEFT);
        left.retain(|pid| !reaped(*pid));
        if left.len() >= MOST_LEFT {
            let text = "too many file systems don't answer: no more files are opened";
            return Err(Error::new(ErrorKind::TimedOut, text));
        }
        drop(left);
        static AT_EXIT: Once = Once::new();
        AT_EXIT.call_once(|| {
            // SAFETY: a function that may run at any exit.
            unsafe { libc::atexit(at_exit) };
        });
        let mut ends = [0; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: two integers to fill.
        if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } != 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: fresh descriptors that nobody else owns.
        let [ours, its] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        let mut room = Room::new();
        let parent = std::process::id() as i32;
        // SAFETY: sets of signals of ours. No handler of this process's runs in the child, which
        // uses nothing but what `opener` says; the C library's fork would take locks.
        let pid = unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            // No signal tells of its end, so that nobody takes it for a child of his.
            let pid = libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0);
            if pid == 0 {
                serve(its.as_raw_fd(), parent, &mut room);
            }
            let failed = Error::last_os_error();
            libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
            if pid < 0 {
                return Err(failed);
            }
            pid as i32
        };
        Ok(Opener {
            socket: ours,
            pid,
            asker: std::process::id(),
        })
    }

    fn ask(&self, question: &Question) -> Result<Told> {
        use std::os::unix::ffi::OsStrExt;
        let text = |path: &Path| [path.as_os_str().as_bytes(), b"\0"].concat();
        let path = text(question.path);
        let base = question.base.map(text).unwrap_or_default();
        if path[..path.len() - 1].contains(&0) {
            return Err(Error::from_raw_os_error(libc::EINVAL));
        }
        if [&path, &base]
            .iter()
            .any(|text| text.len() > libc::PATH_MAX as usize)
        {
            return Err(Error::from_raw_os_error(libc::ENAMETOOLONG));
        }
        let groups = &question.groups[..question.groups.len().min(BELIEVED_GROUPS)];
        let list: Vec<u8> = groups
            .iter()
            .flat_map(|group| group.to_ne_bytes())
            .collect();
        let request = Request {
            groups: groups.len() as u32,
            base_bytes: base.len() as u32,
            path_bytes: path.len() as u32,
            ..question.request
        };
        let parts: [&[u8]; 4] = [bytes_of(&request), &list, &base, &path];
        if send(self.socket.as_raw_fd(), &parts, None).is_err() {
            return Ok(Told::Gone);
        }
        let mut packet = vec![0; MOST];
        let begin = Instant::now();
        loop {
            if begin.elapsed() > WHOLE || !self.answers(question)? {
                return Ok(Told::Silence);
            }
            let (got, descriptor) = match receive(self.socket.as_raw_fd(), &mut packet) {
                Err(libc::EINTR) => continue,
                Err(_) | Ok((0, None)) => return Ok(Told::Gone),
                Ok(received) => received,
            };
            // SAFETY: it came with the packet, and is nobody else's.
            let descriptor = descriptor.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
            let Some((reply, bytes)) = from_bytes::<Reply>(&packet[..got]) else {
                return Ok(Told::Gone);
            };
            if reply.status != GOES_ON {
                return Ok(Told::Answer(Answer {
                    reply,
                    bytes: bytes.to_vec(),
                    descriptor,
                }));
            }
        }
    }

    /// Waits until there is something to receive; false: the file system is silent.
    fn answers(&self, question: &Question) -> Result<bool> {
        let begin = Instant::now();
        let [elsewhere, here, no_processor] = PATIENCE;
        loop {
            let mut entry = libc::pollfd {
                fd: self.socket.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one entry of ours.
            match unsafe { libc::poll(&mut entry, 1, BETWEEN) } {
                1 => return Ok(true),
                0 => {}
                _ if Error::last_os_error().kind() == ErrorKind::Interrupted => {}
                _ => return Err(Error::last_os_error()),
            }
            let waited = begin.elapsed();
            let is_over = match () {
                () if waited < elsewhere => false,
                () if self.wants_processor() => waited >= no_processor,
                () => waited >= here || question.may_hang() || self.waits_elsewhere(),
            };
            if is_over {
                return Ok(false);
            }
        }
    }

    fn wants_processor(&self) -> bool {
        Stat::of(self.pid as u32).is_some_and(|stat| stat.state() == 'R')
    }

    fn waits_elsewhere(&self) -> bool {
        let place = proc::text_of(self.pid as u32, "wchan").unwrap_or_default();
        let mut all = WAITS_FOR_SERVER_IN.iter().chain(&WAITS_FOR_MACHINE_IN);
        all.any(|begins| place.starts_with(begins))
    }

    fn reap(self) {
        if !reaped(self.pid) {
            locked(&LEFT).push(self.pid);
        }
    }

    /// It ends as soon as the file system lets it.
    fn leave(self) {
        signal_child(self.pid, libc::SIGKILL);
        self.reap();
    }
}

/// Has it ended? Then nothing is left of it.
fn reaped(pid: i32) -> bool {
    // SAFETY: nothing is filled.
    let got = unsafe {
        let how = libc::WNOHANG | libc::__WALL;
        libc::waitpid(pid, std::ptr::null_mut(), how)
    };
    got != 0
}
