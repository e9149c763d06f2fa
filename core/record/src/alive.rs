// SPDX-License-Identifier: MIT
//! How tracers know that their recorder lives: a word of the pool that the kernel clears when this
//! process dies, however it dies.
//!
//! The word is a robust futex, held by a thread that does nothing else. Tracers only read it: no
//! system call that a sandbox may forbid, and no pid, which would be another process's in another
//! pid namespace.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{channel, Sender};
use std::thread::JoinHandle;

use crate::pool::Pool;

/// The kernel's `struct robust_list_head` of a list without entries. Only `pending` is used, so
/// nothing in shared memory is followed as a pointer.
#[repr(C)]
struct RobustList {
    next: *const RobustList,
    futex_offset: libc::c_long,
    pending: *const AtomicU32,
}

/// Holds the word until dropped.
pub struct Alive<'a> {
    _pool: &'a Pool,
    until: Option<Sender<()>>,
    holder: Option<JoinHandle<()>>,
}

impl<'a> Alive<'a> {
    /// Returns once the word is set. Errors: the system's, when no thread can be had.
    pub fn start(pool: &'a Pool) -> std::io::Result<Self> {
        let (until, dropped) = channel::<()>();
        let (held, is_held) = channel();
        let word = std::ptr::from_ref(pool.alive()) as usize;
        let holder = std::thread::Builder::new()
            .name("ff-alive".into())
            .spawn(move || {
                // SAFETY: `drop` joins this thread while the pool is still borrowed.
                let word = unsafe { &*(word as *const AtomicU32) };
                hold(word, || {
                    let _ = held.send(());
                    let _ = dropped.recv();
                });
            })?;
        let _ = is_held.recv();
        Ok(Alive {
            _pool: pool,
            until: Some(until),
            holder: Some(holder),
        })
    }
}

fn hold(word: &AtomicU32, meanwhile: impl FnOnce()) {
    let mut list = RobustList::of(word);
    take(word, &mut list);
    meanwhile();
    word.store(0, Ordering::Release);
    register(std::ptr::null());
}

/// Makes the word this thread's, to be cleared when the thread dies. The list must last as long.
fn take(word: &AtomicU32, list: &mut RobustList) {
    list.next = &raw const *list;
    register(list);
    // SAFETY: no arguments.
    word.store(unsafe { libc::gettid() } as u32, Ordering::Release);
}

fn register(list: *const RobustList) {
    // SAFETY: the kernel reads the list when this thread dies.
    unsafe { libc::syscall(libc::SYS_set_robust_list, list, size_of::<RobustList>()) };
}

impl RobustList {
    fn of(word: &AtomicU32) -> Self {
        RobustList {
            next: std::ptr::null(),
            futex_offset: 0,
            pending: word,
        }
    }
}

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        drop(self.until.take());
        if let Some(holder) = self.holder.take() {
            let _ = holder.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use flagfinder_trace::Level;

    use super::*;

    #[test]
    fn the_kernel_clears_the_word_of_a_thread_that_dies() {
        let folder = std::env::temp_dir();
        let pool = Pool::create_in(&folder, Level::Flow, 4096, 8, None).expect("a pool");
        let word = pool.alive();
        let is_held = || word.load(Ordering::Acquire) & flagfinder_trace::protocol::ALIVE != 0;
        std::thread::scope(|scope| {
            let dies = scope.spawn(|| {
                take(word, Box::leak(Box::new(RobustList::of(word))));
                assert!(is_held());
            });
            dies.join().expect("it holds the word");
        });
        assert!(!is_held());
        let alive = Alive::start(&pool).expect("a thread");
        assert!(is_held());
        drop(alive);
        assert!(!is_held());
    }
}
