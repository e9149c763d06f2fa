// SPDX-License-Identifier: MIT
//! A file that is mapped to be read, and that its owner may cut meanwhile.
//!
//! What lies behind the new end of a mapped file raises SIGBUS, which ends the process: so anybody
//! could end a look at a program of his. Here the handler of the signal puts zeroes there, and the
//! reader finds a damaged file. Any other SIGBUS does what it did before. Blind spot: a program
//! that takes the signal for itself later.

use std::cell::UnsafeCell;
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::mem::{zeroed, MaybeUninit};
use std::ops::Deref;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Once;

use memmap2::Mmap;

/// A file is mapped while its headers or its debug information are read: few are at a time.
const MOST: usize = 1024;
const PAGE: usize = 4096;

/// Where mapped files begin (0: none) and end.
static PLACES: [[AtomicUsize; 2]; MOST] = [const { [const { AtomicUsize::new(0) }; 2] }; MOST];
static BEFORE: Before = Before(UnsafeCell::new(MaybeUninit::zeroed()));

/// What was done with the signal before.
struct Before(UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: it is written where the handler is set, by one thread, and read in the handler.
unsafe impl Sync for Before {}

/// The bytes of a file.
pub(crate) struct Mapped {
    bytes: Mmap,
    place: &'static [AtomicUsize; 2],
}

impl Mapped {
    /// # Errors
    /// The system's; too many files are mapped.
    pub fn of(file: &File) -> Result<Mapped> {
        static HANDLED: Once = Once::new();
        HANDLED.call_once(outlive_cut_files);
        // SAFETY: read-only and private. A file that is rewritten meanwhile is a damaged one, as
        // any file may be.
        let bytes = unsafe { Mmap::map(file) }?;
        let start = bytes.as_ptr().addr();
        let free = PLACES.iter().find(|[begins, _]| {
            let (free, taken) = (Ordering::AcqRel, Ordering::Relaxed);
            begins.compare_exchange(0, start, free, taken).is_ok()
        });
        let place = free.ok_or_else(|| Error::from(ErrorKind::QuotaExceeded))?;
        let end = start + bytes.len().next_multiple_of(PAGE);
        place[1].store(end, Ordering::Release);
        Ok(Mapped { bytes, place })
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.place[1].store(0, Ordering::Release);
        self.place[0].store(0, Ordering::Release);
    }
}

/// From now on a file that is cut while it is mapped here ends nobody. A process that sets handlers
/// of its own calls it behind that.
pub fn outlive_cut_files() {
    // SAFETY: structures of ours; the handler makes system calls only.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = on_missing;
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &action, BEFORE.0.get().cast());
    }
}

extern "C" fn on_missing(number: i32, told: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel's own structure.
    let (code, address) = unsafe { ((*told).si_code, (*told).si_addr().addr()) };
    let is_ours = code == libc::BUS_ADRERR
        && PLACES.iter().any(|[start, end]| {
            let [start, end] = [start, end].map(|at| at.load(Ordering::Acquire));
            start != 0 && (start..end).contains(&address)
        });
    // SAFETY: it takes the place of a page of a mapping of ours, which its owner only reads; errno
    // is as it was before.
    unsafe {
        let error = libc::__errno_location();
        let before = *error;
        let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let page = with_exposed_provenance_mut(address & !(PAGE - 1));
        let is_there =
            is_ours && libc::mmap(page, PAGE, libc::PROT_READ, how, -1, 0) != libc::MAP_FAILED;
        if !is_there {
            libc::sigaction(number, BEFORE.0.get().cast(), null_mut());
            // A fault comes again by itself.
            if code <= 0 {
                libc::raise(number);
            }
        }
        *error = before;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::PathBuf;

    use super::*;

    fn file(name: &str) -> (PathBuf, File) {
        let path = std::env::temp_dir().join(format!("ff-{name}-{}", std::process::id()));
        let mut file = File::options();
        let file = file.read(true).write(true).create(true).truncate(true);
        let mut file = file.open(&path).expect("a file");
        file.write_all(&[1; 3 * PAGE]).expect("room");
        (path, file)
    }

    #[test]
    fn a_file_that_is_cut_meanwhile_reads_as_zeroes_behind_its_end() {
        let (path, file) = file("cut");
        let mapped = Mapped::of(&file).expect("mapped");
        assert_eq!((mapped[0], mapped[3 * PAGE - 1]), (1, 1));
        file.set_len(PAGE as u64).expect("cut");
        let sum: usize = mapped.iter().map(|byte| usize::from(*byte)).sum();
        assert_eq!((mapped.len(), sum), (3 * PAGE, PAGE));
        std::fs::remove_file(path).expect("removed");
    }

    #[test]
    fn another_s_mapping_ends_its_process_as_ever() {
        let (path, file) = file("another");
        drop(Mapped::of(&file).expect("mapped"));
        // SAFETY: the child only reads a mapping of its own, and ends there.
        let status = unsafe {
            let mapped = Mmap::map(&file).expect("mapped");
            file.set_len(0).expect("cut");
            let child = libc::fork();
            if child == 0 {
                libc::signal(libc::SIGALRM, libc::SIG_DFL);
                libc::alarm(60);
                libc::_exit(i32::from(std::ptr::read_volatile(mapped.as_ptr())));
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            status
        };
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGBUS);
        std::fs::remove_file(path).expect("removed");
    }
}
