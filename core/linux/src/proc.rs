// SPDX-License-Identifier: MIT
//! The files of /proc that tell of processes and threads. What is gone is `None`, or empty.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read, Result};
use std::path::{Path, PathBuf};
use std::str::{FromStr, SplitWhitespace};

/// No more is read of such a file at once. A process of ordinary size has some KiB of mappings, but
/// it may have a hundred thousand of them, or of mounts, each with a name of some KiB.
const MOST: u64 = 128 << 20;

fn bytes(path: impl AsRef<Path>) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let got = File::open(path)?.take(MOST).read_to_end(&mut bytes)?;
    match (got as u64) < MOST {
        true => Ok(bytes),
        false => Err(ErrorKind::FileTooLarge.into()),
    }
}

/// The lines of a file of /proc that may be longer; see [`text`].
///
/// # Errors
/// The system's; so is each line.
pub fn lines(path: impl AsRef<Path>) -> Result<impl Iterator<Item = Result<String>>> {
    let lines = BufReader::new(File::open(path)?).split(b'\n');
    let text = |line: Vec<u8>| String::from_utf8_lossy(&line).into_owned();
    Ok(lines.map(move |line| line.map(text)))
}

/// A file of /proc that holds names. A name is bytes, and the kernel cuts that of a thread behind
/// 15 of them, also within a letter: what is no UTF-8 becomes U+FFFD.
///
/// # Errors
/// The system's; `FileTooLarge`.
pub fn text(path: impl AsRef<Path>) -> Result<String> {
    let text = String::from_utf8(bytes(path)?);
    Ok(text.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// The thread through which /proc shows what all threads of a process share: memory, program,
/// files. That is the first one. If it has ended (`pthread_exit` in `main`), its folder shows none
/// of that, and the folder of another thread does.
pub fn stand_in(pid: u32) -> u32 {
    if Stat::of(pid).is_none_or(|stat| stat.lives()) {
        return pid;
    }
    let lives = |tid: &u32| Stat::of_thread(pid, *tid).is_some_and(|stat| stat.lives());
    threads(pid)
        .into_iter()
        .flatten()
        .find(lives)
        .unwrap_or(pid)
}

/// A file or folder of /proc that tells what all threads of a process share.
pub fn path(pid: u32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{}/{file}", stand_in(pid)))
}

/// What such a file holds; see [`text`].
///
/// # Errors
/// The system's.
pub fn text_of(pid: u32, file: &str) -> Result<String> {
    text(path(pid, file))
}

/// A file of a thread's own, whatever its process.
///
/// # Errors
/// When it is gone, or may not be asked.
pub fn text_of_thread(tid: i32, file: &str) -> Result<String> {
    text(format!("/proc/{tid}/{file}"))
}

/// Whether any thread of a process can still run. None can in one that has ended and whose exit
/// status nobody has asked for yet.
pub fn lives(pid: u32) -> bool {
    Stat::of(pid).is_some_and(|stat| stat.lives()) || stand_in(pid) != pid
}

/// The numbers among the names in a folder.
fn numbers(folder: &str) -> Result<Vec<u32>> {
    let entries = fs::read_dir(folder)?;
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(numbers.collect())
}

/// Ids of all processes that this one may see, in no order.
pub fn processes() -> Vec<u32> {
    numbers("/proc").unwrap_or_default()
}

/// Thread ids, the first thread first.
///
/// # Errors
/// When the process is gone, or hidden.
pub fn threads(pid: u32) -> Result<Vec<u32>> {
    let mut tids = numbers(&format!("/proc/{pid}/task"))?;
    tids.sort_unstable();
    Ok(tids)
}

/// The numbers of its open descriptors, as far as they are to be seen.
pub fn descriptors(pid: u32) -> Vec<i32> {
    let found = numbers(&path(pid, "fd").to_string_lossy()).unwrap_or_default();
    found.into_iter().map(|fd| fd as i32).collect()
}

/// The name of a thread, as ps shows it.
pub fn name(pid: u32, tid: u32) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
    let name = String::from_utf8_lossy(&name);
    Some(name.trim_end_matches('\n').to_owned())
}

/// The names (`comm`) of flagfinder's own processes that hold threads, and of copies of threads.
pub const STEPPER: &CStr = c"ff-step";
/// The name of the process that opens files of others.
pub const OPENER: &CStr = c"ff-files";
/// See [`STEPPER`].
pub const REPLICA: &CStr = c"ff-replica";

/// Is a process of this name one of flagfinder's helpers? They hold what they inherited, and owe
/// nobody anything.
pub fn is_helper(name: &str) -> bool {
    [STEPPER, REPLICA, OPENER]
        .iter()
        .any(|own| own.to_bytes() == name.as_bytes())
}

/// What a descriptor of it is: a path, `pipe:[7]` and the like.
pub fn link(pid: u32, fd: i32) -> Option<String> {
    let target = fs::read_link(path(pid, &format!("fd/{fd}"))).ok()?;
    Some(target.to_string_lossy().into_owned())
}

/// What kind of file a descriptor is: `S_IFIFO` and so on. The file system is not asked, as one
/// whose server hangs would hold us, too.
pub fn file_kind(pid: u32, fd: i32) -> Option<u32> {
    kind_and_device(pid, fd).map(|(kind, _)| kind)
}

/// The same, and of a device its number (major, minor).
pub fn kind_and_device(pid: u32, fd: i32) -> Option<(u32, (u32, u32))> {
    let path = path(pid, &format!("fd/{fd}"));
    let path = CString::new(path.into_os_string().into_encoded_bytes()).ok()?;
    // SAFETY: a structure of plain numbers, which the kernel fills.
    let mut told: libc::statx = unsafe { std::mem::zeroed() };
    let how = libc::AT_STATX_DONT_SYNC;
    // SAFETY: our own text and structure.
    let done = unsafe {
        libc::statx(
            libc::AT_FDCWD,
            path.as_ptr(),
            how,
            libc::STATX_TYPE,
            &mut told,
        )
    };
    let device = (told.stx_rdev_major, told.stx_rdev_minor);
    (done == 0).then_some((u32::from(told.stx_mode) & libc::S_IFMT, device))
}

/// The path of its program.
pub fn program(pid: u32) -> String {
    let path = fs::read_link(path(pid, "exe")).unwrap_or_default();
    path.to_string_lossy().into_owned()
}

/// /proc/PID/stat.
pub struct Stat(String);

impl Stat {
    /// Pid of its parent, 0 for those that have none here.
    pub const PARENT: usize = 4;
    /// -20 to 19.
    pub const NICE: usize = 19;
    /// In the kernel's ticks since boot; tells a process from a later one of its number.
    pub const STARTED: usize = 22;
    /// Number of the CPU that it ran on last.
    pub const PROCESSOR: usize = 39;
    /// SCHED_*.
    pub const POLICY: usize = 41;
    /// Address of its arguments (`arg_start`).
    pub const ARGUMENTS: usize = 48;
    /// Address of its environment (`env_start`).
    pub const ENVIRONMENT: usize = 50;

    /// `None`: the process is gone.
    pub fn of(pid: u32) -> Option<Stat> {
        text(format!("/proc/{pid}/stat")).ok().map(Stat)
    }

    /// `None`: the thread is gone.
    pub fn of_thread(pid: u32, tid: u32) -> Option<Stat> {
        text(format!("/proc/{pid}/task/{tid}/stat")).ok().map(Stat)
    }

    /// What stands behind the name, which may hold anything.
    fn fields(&self) -> SplitWhitespace<'_> {
        let behind = self.0.rsplit_once(')').map_or("", |(_, rest)| rest);
        behind.split_whitespace()
    }

    /// One of its fields, counted from 1 as proc(5) does.
    pub fn field<T: FromStr>(&self, number: usize) -> Option<T> {
        const FIRST_BEHIND_NAME: usize = 3;
        let mut fields = self.fields();
        fields.nth(number - FIRST_BEHIND_NAME)?.parse().ok()
    }

    /// As ps shows it: R, S, D, T, t, Z, ..
    pub fn state(&self) -> char {
        let state = self.fields().next().and_then(|text| text.chars().next());
        state.unwrap_or('?')
    }

    /// It has not ended.
    pub fn lives(&self) -> bool {
        let state = self.state();
        !is_over(state) && state != '?'
    }
}

/// A thread in this state, as ps shows it, has ended: it is a zombie, or going.
pub fn is_over(state: char) -> bool {
    matches!(state, 'Z' | 'X')
}

/// /proc/PID/status. Fields are named with their colon.
pub struct Status(String);

impl Status {
    /// `None`: the process is gone.
    pub fn of(pid: u32) -> Option<Status> {
        text(format!("/proc/{pid}/status")).ok().map(Status)
    }

    /// # Errors
    /// When the thread is gone.
    pub fn of_thread(pid: u32, tid: u32) -> Result<Status> {
        text(format!("/proc/{pid}/task/{tid}/status")).map(Status)
    }

    /// The thread's name, of which the kernel wrote line ends and backslashes in another way.
    pub fn name(&self) -> Option<String> {
        let mut lines = self.0.split('\n');
        let name = lines.find_map(|line| line.strip_prefix("Name:\t"))?;
        let parts = name.split(r"\\").map(|part| part.replace(r"\n", "\n"));
        Some(parts.collect::<Vec<_>>().join(r"\"))
    }

    /// What stands in a field.
    pub fn text(&self, field: &str) -> Option<&str> {
        let line = self.0.lines().find_map(|line| line.strip_prefix(field))?;
        Some(line.trim())
    }

    /// Those of the words in a field that are numbers; empty where there is no such field.
    pub fn numbers(&self, field: &str) -> Vec<u32> {
        let words = self.text(field).unwrap_or_default().split_whitespace();
        words.filter_map(|word| word.parse().ok()).collect()
    }

    /// The first number in a field.
    pub fn number(&self, field: &str) -> Option<u32> {
        self.numbers(field).first().copied()
    }

    /// A set of signals or rights.
    pub fn mask(&self, field: &str) -> u64 {
        let set = self.text(field).map(|text| u64::from_str_radix(text, 16));
        set.and_then(std::result::Result::ok).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_cut_within_a_letter_hides_no_thread() {
        let own = std::thread::Builder::new().name("ääääääää".into());
        let thread = own.spawn(|| {
            // SAFETY: no arguments.
            let tid = unsafe { libc::gettid() } as u32;
            let stat = Stat::of_thread(std::process::id(), tid);
            (stat.map(|stat| stat.state()), Status::of(tid).is_some())
        });
        let seen = thread.expect("started").join().expect("ended");
        assert_eq!(seen, (Some('R'), true));
    }

    #[test]
    fn a_name_is_told_as_the_thread_has_it() {
        let had = "a\\n\nb\\\\n\r\t";
        let own = std::thread::Builder::new().name(had.into());
        let thread = own.spawn(|| {
            // SAFETY: no arguments.
            let (pid, tid) = (std::process::id(), unsafe { libc::gettid() } as u32);
            let status = Status::of_thread(pid, tid).expect("it runs");
            (status.name(), name(pid, tid))
        });
        let seen = thread.expect("started").join().expect("ended");
        assert_eq!(seen, (Some(had.into()), Some(had.into())));
    }

    #[test]
    fn a_name_may_look_like_fields() {
        let stat = Stat("7 (a) R 1 (b) S 42 9".into());
        assert_eq!((stat.field(4), stat.state()), (Some(42), 'S'));
        assert_eq!(Stat("7 (a) S 42".into()).field::<u64>(5), None);
        assert!(!Stat(String::new()).lives());
    }

    #[test]
    fn fields_of_status_are_told_by_their_names() {
        let status = Status("Name:\tUid:\nUid:\t7\t8\t9\t9\nSigBlk:\t00000000000000ff\n".into());
        assert_eq!(status.text("Name:"), Some("Uid:"));
        assert_eq!(status.numbers("Uid:"), [7, 8, 9, 9]);
        assert_eq!(
            (status.number("Uid:"), status.mask("SigBlk:")),
            (Some(7), 255)
        );
        assert_eq!((status.number("PPid:"), status.mask("SigPnd:")), (None, 0));
    }

    #[test]
    fn a_zombie_does_not_live() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        // Waits for its end, and leaves it there.
        // SAFETY: the buffer is written by the call, which knows its size.
        let waited = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_PID, pid, &mut info, libc::WEXITED | libc::WNOWAIT)
        };
        assert_eq!(waited, 0);
        assert!(fs::exists(format!("/proc/{pid}")).unwrap());
        assert!(!lives(pid));
        child.wait().unwrap();
        assert!(!lives(pid));
        assert!(lives(std::process::id()));
    }

    #[test]
    fn this_process_is_seen() {
        let own = std::process::id();
        assert!(processes().contains(&own));
        assert!(threads(own).unwrap().contains(&own));
        assert!(name(own, own).is_some_and(|name| !name.is_empty()));
        assert!(Stat::of(own).unwrap().lives() && !program(own).is_empty());
        let parent = Status::of(own).unwrap().number("PPid:");
        assert_eq!(Stat::of(own).unwrap().field::<u32>(Stat::PARENT), parent);
    }
}
