// SPDX-License-Identifier: MIT
//! Who holds a lock on a file that a thread waits for, or asks for again and again.

use std::io::Read;
use std::path::Path;

use flagfinder_files::{open_named, path_of_process};
use flagfinder_linux::proc::{self, link};
use flagfinder_waits::locks::{self, FileLocks};

use super::obstacle::{Debtor, End, Obstacle, Who};
use super::process::name;
use super::report::{Kind, RootKind};
use crate::effects::Effect;

/// More is no number of a process.
const LONGEST: u64 = 64;

/// A thread that waits in flock(2) or fcntl(2) for the lock on one of its descriptors.
pub fn file_lock(pid: u32, fd: i32) -> Obstacle {
    let label = link(pid, fd).unwrap_or_default();
    held(&label, locks::on_file(pid, fd))
}

/// A call that a process makes again and again, since it is refused: a lock on its descriptor `fd`,
/// or on the file at `path`, or the making of that file. `None`: it asks for something else.
pub fn refused(pid: u32, call: &str, result: i64, fd: i32, path: Option<&str>) -> Option<Obstacle> {
    let number = i32::try_from(-result).ok()?;
    let asks_for_lock = matches!(call, "flock" | "fcntl");
    match number {
        libc::EAGAIN | libc::EACCES if asks_for_lock => Some(match path {
            Some(path) => held(
                path,
                locks::on_path(pid, &path_of_process(pid, Path::new(path))),
            ),
            None => file_lock(pid, fd),
        }),
        libc::EEXIST => path.map(|path| made(pid, path)),
        libc::ECONNREFUSED if call == "connect" => path.map(unheard),
        _ => None,
    }
}

/// Each attempt to connect to the address is refused.
fn unheard(address: &str) -> Obstacle {
    let what = format!("nobody listens at {address}, and it tries again and again");
    let end = End::outside(RootKind::Peer, what);
    Obstacle::ends(Kind::Call, format!("a connection to {address}"), end)
}

fn held(what: &str, locks: Option<FileLocks>) -> Obstacle {
    let label = format!("the lock on {what}");
    let Some(locks) = locks else {
        let end = End::unknown(format!("{what} is not to be read"));
        return Obstacle::ends(Kind::Lock, label, end);
    };
    let debtors: Vec<Debtor> = locks
        .holders
        .iter()
        .map(|(holder, kind)| {
            let name = name(*holder, *holder);
            let reason = format!("process {holder} ({name}) holds the lock ({kind})");
            let on = proc::descriptors(*holder).into_iter();
            let on = on.filter(|fd| link(*holder, *fd).as_deref() == Some(what));
            Debtor::seen(Who::Process(*holder, None), reason).with(Effect::Unlock(on.collect()))
        })
        .collect();
    if debtors.is_empty() {
        let what =
            "who holds it is not to be seen: a process in another pid namespace, or another \
                    machine that has the file system too";
        let end = match locks.are_there {
            true => End::outside(RootKind::Peer, what),
            false => End::unknown(what),
        };
        return Obstacle::ends(Kind::Lock, label, end);
    }
    Obstacle::owed(Kind::Lock, label, debtors)
}

/// A file that is there keeps others from making it. Whoever made it has often written its process
/// id into it.
fn made(pid: u32, path: &str) -> Obstacle {
    let label = format!("the removal of {path}");
    let Some(owner) = owner(&path_of_process(pid, Path::new(path))).filter(|owner| *owner != pid)
    else {
        let end = End::unknown(format!("{path} is there, and does not tell who made it"));
        return Obstacle::ends(Kind::Lock, label, end);
    };
    let by = format!("{path} holds the process id {owner}");
    if !proc::lives(owner) {
        let what = format!("{by}: that process has ended without removing it");
        let end = End::fault(RootKind::Ended, what).of(owner, None, String::new());
        return Obstacle::ends(Kind::Lock, label, end);
    }
    let debtor = Debtor::seen(Who::Process(owner, None), by);
    Obstacle::owed(Kind::Lock, label, vec![debtor])
}

fn owner(place: &Path) -> Option<u32> {
    let mut text = String::new();
    open_named(place)
        .ok()?
        .take(LONGEST)
        .read_to_string(&mut text)
        .ok()?;
    text.split_whitespace()
        .next()?
        .parse()
        .ok()
        .filter(|pid| *pid > 0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn made_with(content: &str) -> Obstacle {
        let path = std::env::temp_dir().join(format!("ff-locked-{}", std::process::id()));
        fs::write(&path, content).expect("a file");
        let path = path.to_string_lossy().into_owned();
        let waiter = std::os::unix::process::parent_id();
        let call = refused(waiter, "openat", -i64::from(libc::EEXIST), 0, Some(&path));
        fs::remove_file(path).expect("its name");
        call.expect("it is refused")
    }

    #[test]
    fn a_fifo_in_place_of_a_lock_file_is_not_waited_for() {
        let path = std::env::temp_dir().join(format!("ff-locked-fifo-{}", std::process::id()));
        let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).expect("no zero");
        // SAFETY: a text of ours.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let told = owner(&path);
        fs::remove_file(path).expect("its name");
        assert_eq!(told, None);
    }

    #[test]
    fn a_lock_file_tells_who_made_it() {
        let own = made_with(&format!("  {}\n", std::process::id()));
        assert_eq!(own.debtors[0].who, Who::Process(std::process::id(), None));
        let gone = made_with("4194303\n");
        assert_eq!(gone.otherwise.kind, RootKind::Ended);
        assert_eq!(made_with("").otherwise.kind, RootKind::Unknown);
        assert_eq!(made_with("host 12").otherwise.kind, RootKind::Unknown);
    }

    #[test]
    fn only_a_refusal_is_about_a_lock() {
        let of = |call, number: i32| refused(1, call, -i64::from(number), 0, Some("/"));
        assert!(of("read", libc::EAGAIN).is_none());
        assert!(of("openat", libc::ENOENT).is_none());
        assert!(of("mkdir", libc::EEXIST).is_some());
    }
}
