// SPDX-License-Identifier: MIT
//! Files that a patient, a core or a trace names: opened as the one who names them would.
//!
//! In: a path. `/proc/PID/root/..` and `/proc/PID/cwd/..` are the process's own: no link leads out
//! of its root, and its user and groups must be allowed to read the file, and be those that it had
//! when we first heard of it: a name that it gave is not opened with what another program has.
//! Other paths are ours. Out: a file, or what stat(2) says of it. A file of another machine or of a
//! server (FUSE) comes as a copy in memory, so that no read waits. Where we may not take the
//! process's rights, nothing is opened for it. Blind spots: the rights of a user namespace's own
//! root; a process that has the number of one that ended.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{read_link, File};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{absolute, Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use flagfinder_linux::proc::{self, Stat};

use crate::ask::{Answer, Question};
use crate::file_system::Kind;
use crate::message::{
    Facts, Request, CALL, FACTS, FOR_WRITING, IN_ROOT, KEEP_CAPABILITIES, KIND, MOST_READ,
    NO_FOLLOW, OPEN, OUTSIDE_PROC, READ, RESOLVE, WITH_RIGHTS,
};

/// Larger files of other machines and of servers are not copied, and no more is kept of them for
/// the next who asks. What a server says of a file's size need not be so.
const MOST_COPIED: u64 = 256 << 20;
/// Of all copies that this process has open.
const MOST_OPEN: u64 = 2 * MOST_COPIED;
/// What the descriptor of a copy is called (`opener.rs`).
const COPY: &str = "memfd:ff-file";
/// A copy in memory is taken again for so long, if the file has not changed.
const COPY_KEPT: Duration = Duration::from_secs(20);
/// A process with one of these may read what its user may not: CAP_DAC_OVERRIDE and
/// CAP_DAC_READ_SEARCH.
const READS_ALL: u64 = 1 << 1 | 1 << 2;

static COPIES: Mutex<Vec<Copied>> = Mutex::new(Vec::new());

struct Copied {
    path: PathBuf,
    facts: Facts,
    /// How many came, whatever its server says.
    bytes: u64,
    file: Arc<File>,
    made: Instant,
}

/// A file to read, and what was true of it then. A copy in memory has other times.
#[derive(Debug)]
pub struct Opened {
    /// Only to be read.
    pub file: File,
    /// Of the file itself, also where this is a copy.
    pub facts: Facts,
}

/// Where a path begins.
enum Place {
    Ours {
        path: PathBuf,
    },
    /// In the root of a process.
    Inside {
        pid: u32,
        root: PathBuf,
        path: PathBuf,
    },
    /// What the kernel knows of a process: a descriptor, a mapping, its program.
    Of {
        pid: u32,
    },
}

/// What processes might when we first heard of them.
static FIRST_SEEN: Mutex<BTreeMap<u32, Seen>> = Mutex::new(BTreeMap::new());

struct Seen {
    /// When it began, in the kernel's ticks.
    started: u64,
    rights: Rights,
}

/// The rights of a process.
#[derive(Clone, PartialEq, Eq)]
struct Rights {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    reads_all: bool,
}

/// Opens a regular file to read it.
///
/// # Errors
/// The system's; `InvalidInput`: it is no file that reading leaves as it is; `TimedOut`: its file
/// system does not answer.
pub fn open_named(path: &Path) -> Result<File> {
    open_with_facts(path).map(|opened| opened.file)
}

/// The same, with what stat(2) says.
///
/// # Errors
/// As [`open_named`].
pub fn open_with_facts(path: &Path) -> Result<Opened> {
    let place = Place::of(path)?;
    let rights = place.rights()?;
    open(path, &place, rights.as_ref())
}

/// Opens a file of ours as this user would, with no other group.
///
/// # Errors
/// As [`open_named`].
pub fn open_as(path: &Path, (uid, gid): (u32, u32)) -> Result<File> {
    let place = Place::Ours {
        path: absolute(path)?,
    };
    let rights = Rights {
        uid,
        gid,
        groups: Vec::new(),
        reads_all: uid == 0,
    };
    open(path, &place, Some(&rights)).map(|opened| opened.file)
}

/// Opens what is at a path of the kernel's that tells of a process (`/proc/PID/fd/7`), if that
/// process may read it.
///
/// # Errors
/// As [`open_named`].
pub fn open_if_it_may(pid: u32, path: &Path) -> Result<Opened> {
    open(path, &Place::of(path)?, Some(&Rights::unchanged(pid)?))
}

/// Opens a file by a name of the process's: in its root, or where it stands.
///
/// # Errors
/// As [`open_named`].
pub fn open_of_process(pid: u32, name: &Path) -> Result<Opened> {
    open_with_facts(&path_of_process(pid, name))
}

/// From now on files are opened for the process only while it has the rights that it has now. Call
/// before it gives the first name.
pub fn heard_of(pid: u32) {
    // What can't be told of it now is asked again when it names a file.
    let _ = Rights::unchanged(pid);
}

/// What the process calls so, as a path that this crate opens as the process would.
pub fn path_of_process(pid: u32, name: &Path) -> PathBuf {
    heard_of(pid);
    let begins = if name.has_root() { "root" } else { "cwd" };
    let rest = name.strip_prefix("/").unwrap_or(name);
    proc::path(pid, begins).join(rest)
}

/// What stat(2) says of a path. It may be no regular file.
///
/// # Errors
/// The system's; `TimedOut`: its file system does not answer.
pub fn facts_of(path: &Path) -> Result<Facts> {
    let place = Place::of(path)?;
    let asked = place.question(path, FACTS, 0, None).ask()?;
    Ok(asked.reply.facts)
}

/// Where a path leads inside a folder which is its root: no link leads out.
///
/// # Errors
/// The system's; nothing is there.
pub fn resolve_within(root: &Path, path: &Path) -> Result<PathBuf> {
    let root = &absolute(root)?;
    let question = Question {
        request: Request {
            what: RESOLVE,
            flags: IN_ROOT,
            ..Request::default()
        },
        groups: &[],
        base: Some(root),
        path,
        known_as: (None, root.join(path.strip_prefix("/").unwrap_or(path))),
    };
    let found = question.ask()?;
    Ok(PathBuf::from(std::ffi::OsString::from_vec(found.bytes)))
}

/// A path of a copy of a process that has our root, our mounts and our rights.
#[derive(Clone, Copy)]
pub struct OfCopy<'p> {
    /// The folder where the path begins, which is one of the process's.
    pub base: &'p Path,
    /// As the copy gives it.
    pub path: &'p Path,
}

impl OfCopy<'_> {
    fn question(&self, request: Request) -> Question<'_> {
        let begins = read_link(self.base).unwrap_or_default();
        Question {
            request: Request {
                flags: request.flags | OUTSIDE_PROC,
                ..request
            },
            groups: &[],
            base: Some(self.base),
            path: self.path,
            known_as: (None, begins.join(self.path)),
        }
    }

    /// The result of faccessat2, newfstatat or statx, with what it fills.
    ///
    /// # Errors
    /// The call's own; `Unsupported`: the path means something else to us; `TimedOut`.
    pub fn call(&self, number: i64, first: u64, second: u64) -> Result<(i64, Vec<u8>)> {
        let asked = self.question(Request {
            what: CALL,
            numbers: [number as u64, first, second],
            ..Request::default()
        });
        let answer = asked.ask()?;
        Ok((answer.reply.status, answer.bytes))
    }

    /// Opens a regular file of this machine to read it, and tells whether we may write it. A copy
    /// of another one's file would have other facts.
    ///
    /// # Errors
    /// Those of the open, and as [`Self::call`].
    pub fn open(&self, follow: bool) -> Result<Opened> {
        let answer = self.question(Request {
            what: OPEN,
            flags: FOR_WRITING | if follow { 0 } else { NO_FOLLOW },
            accepts: Kind::Local.bit(),
            ..Request::default()
        });
        opened(answer.ask()?)
    }
}

/// Who answers for a file, and what stat(2) says of it.
///
/// # Errors
/// As [`facts_of`].
pub fn kind_of(path: &Path) -> Result<(Kind, Facts)> {
    let place = Place::of(path)?;
    let reply = place.question(path, KIND, 0, None).ask()?.reply;
    Ok((Kind::of(reply.f_type), reply.facts))
}

/// A part of a regular file of this machine or of another one, and of no server, as a read may
/// change what comes next.
///
/// # Errors
/// As [`open_named`].
pub fn read_at(path: &Path, most: usize, position: u64) -> Result<Vec<u8>> {
    let place = Place::of(path)?;
    let rights = place.rights()?;
    let accepts = Kind::Local.bit() | Kind::Remote.bit();
    let mut question = place.question(path, READ, accepts, rights.as_ref());
    question.request.numbers = [most.min(MOST_READ) as u64, position, 0];
    Ok(question.ask()?.bytes)
}

fn open(path: &Path, place: &Place, rights: Option<&Rights>) -> Result<Opened> {
    let accepts = Kind::Local.bit() | Kind::Remote.bit() | Kind::Served.bit();
    if let Some(kept) = kept(path, place, rights) {
        return Ok(kept);
    }
    let mut question = place.question(path, OPEN, accepts, rights);
    question.request.numbers = [room(), 0, 0];
    let answer = question.ask()?;
    let is_copy = Kind::of(answer.reply.f_type) != Kind::Local;
    let found = opened(answer)?;
    if !is_copy {
        return Ok(found);
    }
    let file = Arc::new(found.file);
    let again = reopened(&file)?;
    let bytes = file.metadata()?.len();
    let mut copies = COPIES.lock().unwrap_or_else(PoisonError::into_inner);
    copies.retain(|copy| copy.made.elapsed() < COPY_KEPT && copy.path != path);
    let kept = |copies: &[Copied]| copies.iter().map(|copy| copy.bytes).sum::<u64>();
    while !copies.is_empty() && kept(&copies) + bytes > MOST_COPIED {
        copies.remove(0);
    }
    copies.push(Copied {
        path: path.to_owned(),
        facts: found.facts,
        bytes,
        file,
        made: Instant::now(),
    });
    Ok(Opened {
        file: again,
        facts: found.facts,
    })
}

/// The copy of a file that is as it was. Rights have been checked for whom it was made.
fn kept(path: &Path, place: &Place, rights: Option<&Rights>) -> Option<Opened> {
    let found = {
        let copies = COPIES.lock().unwrap_or_else(PoisonError::into_inner);
        let mut fresh = copies.iter().filter(|copy| copy.made.elapsed() < COPY_KEPT);
        let copy = fresh.find(|copy| copy.path == path)?;
        (copy.facts, copy.file.clone())
    };
    let (facts, file) = found;
    let question = place.question(path, FACTS, 0, rights);
    let now = question.ask().ok()?.reply.facts;
    (now == facts).then_some(())?;
    let file = reopened(&file).ok()?;
    Some(Opened { file, facts })
}

/// Bytes that another copy may have. It is asked for whether there is a copy to be made or not:
/// that shows once the file is opened.
fn room() -> u64 {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    let copies = entries.filter_map(|entry| {
        let path = entry.ok()?.path();
        let is_copy = read_link(&path).ok()?.to_string_lossy().contains(COPY);
        let of_copy = || std::fs::metadata(&path).ok();
        is_copy.then(of_copy)?.map(|one| (one.ino(), one.len()))
    });
    // A copy may be open several times.
    let copies: BTreeMap<u64, u64> = copies.collect();
    MOST_OPEN
        .saturating_sub(copies.values().sum())
        .min(MOST_COPIED)
}

/// With a position of its own, and only to read.
fn reopened(file: &File) -> Result<File> {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn opened(answer: Answer) -> Result<Opened> {
    let missing = || Error::from(ErrorKind::InvalidData);
    let descriptor: OwnedFd = answer.descriptor.ok_or_else(missing)?;
    Ok(Opened {
        file: descriptor.into(),
        facts: answer.reply.facts,
    })
}

impl Place {
    fn of(path: &Path) -> Result<Place> {
        // The opener may stand in another folder than we do now.
        let ours = || absolute(path).map(|path| Place::Ours { path });
        let mut parts = path.components();
        let begins = [Component::RootDir, Component::Normal(OsStr::new("proc"))];
        if !begins
            .iter()
            .all(|part| parts.next().as_ref() == Some(part))
        {
            return ours();
        }
        let number = |part: Component| part.as_os_str().to_str()?.parse().ok();
        let Some(pid) = parts.next().and_then(number) else {
            return ours();
        };
        let folder = parts.next().map(|part| part.as_os_str().to_owned());
        let rest = parts.as_path();
        let inside = |path: PathBuf| Place::Inside {
            pid,
            root: PathBuf::from(format!("/proc/{pid}/root")),
            path,
        };
        match folder.as_deref().and_then(OsStr::to_str) {
            Some("root") => Ok(inside(Path::new("/").join(rest))),
            Some("cwd") => Ok(inside(stands_in(pid)?.join(rest))),
            _ => Ok(Place::Of { pid }),
        }
    }

    /// Those with which the file is opened; `None`: ours.
    fn rights(&self) -> Result<Option<Rights>> {
        match self {
            Place::Inside { pid, .. } => Rights::unchanged(*pid).map(Some),
            _ => Ok(None),
        }
    }

    fn question<'q>(
        &'q self,
        path: &'q Path,
        what: u32,
        accepts: u32,
        rights: Option<&'q Rights>,
    ) -> Question<'q> {
        let mut request = Request {
            what,
            accepts,
            ..Request::default()
        };
        if let Some(rights) = rights {
            request.flags |= WITH_RIGHTS;
            if rights.reads_all {
                request.flags |= KEEP_CAPABILITIES;
            }
            (request.uid, request.gid) = (rights.uid, rights.gid);
        }
        let groups = rights.map_or(&[][..], |rights| &rights.groups);
        let (base, path, known_as) = match self {
            Place::Inside { pid, root, path } => {
                request.flags |= IN_ROOT;
                (Some(&**root), &**path, (Some(*pid), path.clone()))
            }
            Place::Of { pid } => {
                let name = read_link(path).unwrap_or_else(|_| path.to_owned());
                (None, path, (Some(*pid), name))
            }
            Place::Ours { path } => {
                // From a base on, the way is walked with the rights, too.
                let base = rights.map(|_| Path::new("/"));
                (base, &**path, (None, path.clone()))
            }
        };
        Question {
            request,
            groups,
            base,
            path,
            known_as,
        }
    }
}

/// The folder in which a process stands, by its path in the process's root. Another folder may have
/// been mounted over it, or lie at its path now.
fn stands_in(pid: u32) -> Result<PathBuf> {
    let of = |link: &str| format!("/proc/{pid}/{link}");
    let (root, folder) = (read_link(of("root"))?, read_link(of("cwd"))?);
    let outside = || Error::new(ErrorKind::NotFound, "it stands outside of its root");
    let inside = folder.strip_prefix(&root).map_err(|_| outside())?;
    let inside = Path::new("/").join(inside);
    let at_path =
        facts_of(&PathBuf::from(of("root")).join(inside.strip_prefix("/").unwrap_or(&inside)))?;
    let link = PathBuf::from(of("cwd"));
    let itself = Place::Of { pid }
        .question(&link, FACTS, 0, None)
        .ask()?
        .reply
        .facts;
    match (at_path.device, at_path.inode) == (itself.device, itself.inode) {
        true => Ok(inside),
        false => Err(outside()),
    }
}

impl Rights {
    /// Those that it has now.
    ///
    /// # Errors
    /// They have changed since we first heard of it; it is gone.
    fn unchanged(pid: u32) -> Result<Rights> {
        let rights = Rights::of(pid)?;
        let started = Stat::of(pid).and_then(|stat| stat.field(Stat::STARTED));
        let started = started.ok_or_else(|| Error::from(ErrorKind::NotFound))?;
        let mut all = FIRST_SEEN.lock().unwrap_or_else(PoisonError::into_inner);
        match all.get(&pid).filter(|seen| seen.started == started) {
            Some(seen) if seen.rights != rights => Err(Error::new(
                ErrorKind::PermissionDenied,
                "its process has other rights now than when it was first looked at",
            )),
            Some(_) => Ok(rights),
            None => {
                let seen = Seen {
                    started,
                    rights: rights.clone(),
                };
                all.insert(pid, seen);
                Ok(rights)
            }
        }
    }

    fn of(pid: u32) -> Result<Rights> {
        let status = proc::text(format!("/proc/{pid}/status"))?;
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let parsed = || {
            let by_kernel = |name| line(name)?.split_whitespace().nth(3)?.parse().ok();
            let groups = line("Groups:")?.split_whitespace();
            let effective = u64::from_str_radix(line("CapEff:")?.trim(), 16).ok()?;
            let ns = |who: &str| read_link(format!("/proc/{who}/ns/user")).ok();
            let is_ours = ns(&pid.to_string()) == ns("self");
            Some(Rights {
                uid: by_kernel("Uid:")?,
                gid: by_kernel("Gid:")?,
                groups: groups.filter_map(|group| group.parse().ok()).collect(),
                reads_all: is_ours && effective & READS_ALL != 0,
            })
        };
        parsed().ok_or_else(|| Error::from(ErrorKind::InvalidData))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::FromRawFd;

    use super::*;

    #[test]
    fn the_more_copies_are_open_the_less_room_is_left() {
        // SAFETY: a text of ours; the descriptor is nobody else's.
        let copy = || unsafe {
            File::from_raw_fd(libc::memfd_create(c"ff-file".as_ptr(), libc::MFD_CLOEXEC))
        };
        assert_eq!(room(), MOST_COPIED);
        let copies = [copy(), copy()];
        copies[0].set_len(MOST_COPIED + 7).expect("a hole");
        let again = copies[0].try_clone().expect("the same copy");
        assert_eq!(room(), MOST_COPIED - 7);
        copies[1].set_len(MOST_COPIED).expect("a hole");
        assert_eq!(room(), 0);
        drop((copies, again));
        assert_eq!(room(), MOST_COPIED);
    }
}
