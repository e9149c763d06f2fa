// SPDX-License-Identifier: MIT
//! Each target on a few inputs, the same ones each time. `make fuzz` runs them for long, and sees
//! what an input reaches.
//!
//! A target runs in a process of its own, in a pid namespace of its own, within limits of memory
//! and time. Arguments choose targets.

use std::fs;
use std::io::Error;
use std::os::unix::fs::FileExt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use fastrand::Rng;
use flagfinder_fuzz::targets::{Target, ALL};
use flagfinder_fuzz::{mutate, seeds};

/// A target takes so long or so many inputs, whichever is less; its seeds in any case.
const INPUTS: usize = 400;
const TIME: Duration = Duration::from_secs(2);
/// One input takes at most so many seconds, and all of a target so many bytes of address space.
const LONGEST: u32 = 25;
const MOST: u64 = 1 << 30;

fn main() -> ExitCode {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    seeds::write(&folder).expect("seeds");
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let is_asked = |name: &str| asked.iter().any(|one| one == name);
    let any = ALL.iter().any(|(name, _)| is_asked(name));
    let mut failed = false;
    for (name, target) in ALL.iter().filter(|(name, _)| !any || is_asked(name)) {
        let last = folder.join(format!("{name}.last"));
        let told = fork(|| feed(&read(&folder.join(name)), &last, *target));
        match told {
            0 => println!("fuzz: {name}: no crash"),
            status => {
                failed = true;
                let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.failed"));
                fs::copy(&last, &kept).expect("kept");
                println!("fuzz: {name}: FAILED ({status:#x}) by {}", kept.display());
            }
        }
    }
    fs::remove_dir_all(&folder).expect("removed");
    ExitCode::from(u8::from(failed))
}

/// What a child's `work` ends with, as waitpid tells it.
fn fork(work: impl FnOnce()) -> i32 {
    // SAFETY: this process has no other thread, and the child ends here.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0, "{}", Error::last_os_error());
        if pid == 0 {
            let ended = catch_unwind(AssertUnwindSafe(work));
            libc::_exit(i32::from(ended.is_err()));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
        status
    }
}

fn read(folder: &Path) -> Vec<Vec<u8>> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .expect("seeds of each target")
        .map(|entry| entry.expect("a seed").path())
        .collect();
    paths.sort();
    paths
        .iter()
        .map(|path| fs::read(path).expect("a seed"))
        .collect()
}

/// Gives inputs to a target in a process below this one. Each is in the file `last` before.
fn feed(seeds: &[Vec<u8>], last: &Path, target: Target) {
    limit();
    let last = fs::File::create(last).expect("a file");
    let status = fork(|| {
        // SAFETY: a plain system call.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        let mut random = Rng::with_seed(0);
        let begin = Instant::now();
        let mut changed = std::iter::repeat_with(|| mutate(seeds, &mut random));
        let changed = changed.by_ref().take(INPUTS);
        for (number, input) in seeds.iter().cloned().chain(changed).enumerate() {
            if number > seeds.len() && begin.elapsed() > TIME {
                break;
            }
            last.set_len(0).expect("emptied");
            last.write_all_at(&input, 0).expect("written");
            // SAFETY: a plain system call.
            unsafe { libc::alarm(LONGEST) };
            target(&input);
        }
    });
    // SAFETY: a plain system call.
    unsafe { libc::_exit(i32::from(status != 0)) };
}

/// The limits of this process and those below it. Ids of processes that an input names are those of
/// a namespace in which there are no others.
fn limit() {
    let most = libc::rlimit {
        rlim_cur: MOST,
        rlim_max: MOST,
    };
    // SAFETY: plain system calls; the structure is ours.
    unsafe {
        let (user, group) = (libc::geteuid(), libc::getegid());
        let own = if user == 0 { 0 } else { libc::CLONE_NEWUSER };
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        assert_eq!(libc::setrlimit(libc::RLIMIT_AS, &most), 0);
        let alone = libc::unshare(own | libc::CLONE_NEWPID);
        assert_eq!(alone, 0, "a pid namespace: {}", Error::last_os_error());
        if user != 0 {
            let write = |file: &str, text: String| fs::write(format!("/proc/self/{file}"), text);
            let mapped = write("setgroups", "deny".into())
                .and_then(|()| write("uid_map", format!("0 {user} 1")))
                .and_then(|()| write("gid_map", format!("0 {group} 1")));
            mapped.expect("a user namespace");
        }
    }
}
