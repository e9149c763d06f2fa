// SPDX-License-Identifier: MIT
//! Who else has a pipe, eventfd, socket, terminal, message queue or /dev/fuse open: found by what
//! /proc/*/fd links to.

use std::fs;
use std::time::Duration;

use flagfinder_linux::clock::Effort;
use flagfinder_linux::proc::{file_kind, is_helper, name, path, processes};
use rustc_hash::FxHashMap;

/// A process that holds an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its process id as we see it.
    pub pid: u32,
    /// Of its first thread (`comm`).
    pub name: String,
    /// The descriptor's number in that process.
    pub fd: i32,
    /// Opened for writing (pipes have an end for each).
    pub writes: bool,
    /// Opened for reading.
    pub reads: bool,
}

/// How long a search through the processes of a large machine may take: no longer than the answer
/// is worth.
const PATIENCE: Duration = Duration::from_millis(400);

/// By what /proc/PID/fd/N links to: `pipe:[123]`.
#[derive(Default)]
pub struct Owners {
    by_target: Option<FxHashMap<String, Vec<Owner>>>,
    /// Not every process could be looked at.
    pub partial: bool,
    /// Longer than usual, if the other end is what is asked for.
    patience: Option<Duration>,
}

impl Owners {
    /// To find them takes so much processor time at most.
    pub fn within(patience: Duration) -> Owners {
        Owners {
            patience: Some(patience),
            ..Owners::default()
        }
    }

    /// Those who have open what a descriptor links to as `target`, the asker included, but not its
    /// helpers.
    pub fn of(&mut self, target: &str) -> &[Owner] {
        if self.by_target.is_none() {
            self.by_target = Some(self.scan());
        }
        let found = self.by_target.as_ref().and_then(|map| map.get(target));
        found.map_or(&[], |owners| &owners[..])
    }

    fn scan(&mut self) -> FxHashMap<String, Vec<Owner>> {
        let begin = Effort::begin();
        let mut map: FxHashMap<String, Vec<Owner>> = FxHashMap::default();
        for pid in processes() {
            if begin.exceeds(self.patience.unwrap_or(PATIENCE)) {
                self.partial = true;
                break;
            }
            let name = name(pid, pid).unwrap_or_default();
            if is_helper(&name) {
                continue;
            }
            let list = match fs::read_dir(path(pid, "fd")) {
                Ok(list) => list,
                // It has ended meanwhile, and holds nothing any more.
                Err(error) if is_gone(&error) => continue,
                Err(_) => {
                    self.partial = true;
                    continue;
                }
            };
            for entry in list.flatten() {
                let Ok(target) = fs::read_link(entry.path()) else {
                    continue;
                };
                let number = entry.file_name();
                let fd = number.to_str().and_then(|n| n.parse().ok()).unwrap_or(-1);
                let target = match target.to_string_lossy() {
                    target if target == EVENTFD => eventfd(pid, fd).into(),
                    target => target,
                };
                let has_ends = [
                    "eventfd:",
                    "pipe:",
                    "socket:",
                    "/dev/pts/",
                    "/dev/ptmx",
                    "/dev/fuse",
                ]
                .iter()
                .any(|kind| target.starts_with(kind));
                if !has_ends && !is_fifo(pid, fd) && !is_queue(pid, fd, &target) {
                    continue;
                }
                let (reads, writes) = access(pid, fd);
                map.entry(target.into_owned()).or_default().push(Owner {
                    pid,
                    name: name.clone(),
                    fd,
                    writes,
                    reads,
                });
            }
        }
        map
    }
}

/// What all descriptors of an eventfd link to.
const EVENTFD: &str = "anon_inode:[eventfd]";

/// What tells a process's eventfd from others, as a key of [`Owners`].
pub fn eventfd(pid: u32, fd: i32) -> String {
    let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).unwrap_or_default();
    let id = info
        .lines()
        .find_map(|line| line.strip_prefix("eventfd-id:"));
    format!("eventfd:{}", id.map_or("", str::trim))
}

fn is_gone(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// Is it a FIFO or a pipe?
pub fn is_fifo(pid: u32, fd: i32) -> bool {
    file_kind(pid, fd) == Some(libc::S_IFIFO)
}

/// Is it a message queue of POSIX? `target`: what it links to, which is the queue's name.
pub fn is_queue(pid: u32, fd: i32, target: &str) -> bool {
    // Of its own file system.
    const MAGIC: i64 = 0x1980_0202;
    let has_such_name = target.starts_with('/') && target.matches('/').count() == 1;
    let Ok(path) = std::ffi::CString::new(format!("/proc/{pid}/fd/{fd}")) else {
        return false;
    };
    // SAFETY: a structure of plain numbers, which the kernel fills.
    let mut told: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: our own text and structure.
    has_such_name && unsafe { libc::statfs(path.as_ptr(), &mut told) } == 0 && told.f_type == MAGIC
}

/// (for reading, for writing)
fn access(pid: u32, fd: i32) -> (bool, bool) {
    let text = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags
        .and_then(|f| i32::from_str_radix(f.trim(), 8).ok())
        .unwrap_or(0);
    match flags & libc::O_ACCMODE {
        libc::O_RDONLY => (true, false),
        libc::O_WRONLY => (false, true),
        _ => (true, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_helper_of_ours_that_inherited_a_pipe_holds_nothing() {
        use std::process::{Command, Stdio};
        let folder = std::env::temp_dir().join(format!("ff-owners-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let holders = |name: &str| {
            let program = folder.join(name);
            std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
            let mut child = Command::new(program)
                .arg("60")
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let end = fs::read_link(format!("/proc/{}/fd/1", child.id())).unwrap();
            let mut owners = Owners::within(Duration::from_secs(20));
            let owners = owners.of(&end.to_string_lossy()).to_vec();
            child.kill().unwrap();
            child.wait().unwrap();
            owners
                .iter()
                .filter(|owner| owner.pid == child.id())
                .count()
        };
        assert_eq!(holders("another"), 1);
        assert_eq!(holders("ff-replica"), 0);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_message_queue_is_told_from_a_file_in_the_root_folder() {
        let name = std::ffi::CString::new(format!("/ff-owners-{}", std::process::id())).unwrap();
        let how = libc::O_CREAT | libc::O_RDWR;
        // SAFETY: our own text; no attributes.
        let queue =
            unsafe { libc::mq_open(name.as_ptr(), how, 0o600, std::ptr::null::<libc::mq_attr>()) };
        assert!(queue >= 0, "{}", std::io::Error::last_os_error());
        let (pid, target) = (std::process::id(), name.to_string_lossy().into_owned());
        assert!(is_queue(pid, queue, &target));
        let file = fs::File::open("/proc/self/exe").unwrap();
        assert!(!is_queue(
            pid,
            std::os::fd::AsRawFd::as_raw_fd(&file),
            "/exe"
        ));
        let mut owners = Owners::within(Duration::from_secs(20));
        let own = owners
            .of(&target)
            .iter()
            .any(|o| o.pid == pid && o.reads && o.writes);
        assert!(own);
        // SAFETY: our own queue.
        unsafe { libc::mq_unlink(name.as_ptr()) };
    }

    #[test]
    fn a_process_that_ended_meanwhile_leaves_nothing_out() {
        let error = |number| std::io::Error::from_raw_os_error(number);
        assert!(is_gone(&error(libc::ENOENT)) && is_gone(&error(libc::ESRCH)));
        assert!(!is_gone(&error(libc::EACCES)));
    }
}
