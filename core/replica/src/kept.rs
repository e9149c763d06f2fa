// SPDX-License-Identifier: MIT
//! An empty process that is kept, to make further ones from it.
//!
//! To fork takes the longer the larger the forking process is, and so does emptying its child. An
//! empty process forks at once, and its child has nothing to empty.

use std::cell::RefCell;
use std::io::Result;
use std::marker::PhantomData;

use crate::child::Child;
use crate::source::Region;

/// As long as this lives, the calling thread keeps an empty process once it has needed one.
#[must_use]
pub struct Keeping {
    is_outermost: bool,
    /// A process belongs to the thread that made it.
    thread: PhantomData<*const ()>,
}

#[derive(Default)]
struct Kept {
    is_wanted: bool,
    /// With the id of the process that keeps it: a fork of that process must not use it.
    empty: Option<(u32, Child)>,
}

impl Kept {
    fn forget_others(&mut self) {
        if self
            .empty
            .as_ref()
            .is_some_and(|(by, _)| *by != std::process::id())
        {
            // Only its owner ends it.
            std::mem::forget(self.empty.take());
        }
    }
}

thread_local! {
    static KEPT: RefCell<Kept> = RefCell::default();
}

/// See [`Keeping`].
pub fn keep() -> Keeping {
    KEPT.with_borrow_mut(|kept| Keeping {
        is_outermost: !std::mem::replace(&mut kept.is_wanted, true),
        thread: PhantomData,
    })
}

impl Drop for Keeping {
    fn drop(&mut self) {
        if self.is_outermost {
            KEPT.with_borrow_mut(|kept| {
                kept.forget_others();
                *kept = Kept::default();
            });
        }
    }
}

impl Child {
    /// Starts it, empty but for a page at an address that none of `avoid` has: from the one that is
    /// kept, if one is to be. It belongs to the calling thread, which alone may use it.
    ///
    /// # Errors
    /// When the system gives no process, or refuses one of the calls that empty it.
    pub fn start(avoid: &[Region]) -> Result<Child> {
        KEPT.with_borrow_mut(|kept| {
            if !kept.is_wanted {
                return Child::make(avoid);
            }
            kept.forget_others();
            let fits = |child: &Child| !avoid.iter().any(|region| region.holds(child.home));
            let kept_one = kept.empty.as_ref().filter(|(_, empty)| fits(empty));
            if let Some(another) = kept_one.and_then(|(_, empty)| empty.another().ok()) {
                return Ok(another);
            }
            let empty = Child::make(avoid)?;
            let another = empty.another();
            // If it can't be forked, it is used as it is.
            match another {
                Ok(another) => {
                    kept.empty = Some((std::process::id(), empty));
                    Ok(another)
                }
                Err(_) => Ok(empty),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::PAGE;

    const AT: u64 = 0x7000_0000;

    fn is_there(pid: i32) -> bool {
        std::fs::metadata(format!("/proc/{pid}")).is_ok()
    }

    #[test]
    fn each_has_its_own_memory_and_none_is_left() {
        let keeping = keep();
        let one = Child::start(&[]).expect("a process");
        let kept = KEPT.with_borrow(|kept| kept.empty.as_ref().map(|(_, empty)| empty.pid));
        let kept = kept.expect("one is kept");
        let page = Box::new([7; PAGE as usize]);
        one.map(AT, &page, libc::PROT_READ).expect("it has room");
        let other = Child::start(&[]).expect("a process");
        assert!(one.pid != other.pid && kept != one.pid && kept != other.pid);
        let mut byte = [0];
        assert_eq!(one.read(AT, &mut byte), 1);
        assert_eq!(byte, [7]);
        assert_eq!(other.read(AT, &mut byte), 0, "it was empty before");
        other.map(AT, &page, libc::PROT_READ).expect("it has room");
        let all = [one.pid, other.pid, kept];
        drop((one, other, keeping));
        assert!(!all.into_iter().any(is_there));
    }

    #[test]
    fn one_that_is_in_the_way_is_not_used() {
        let keeping = keep();
        let one = Child::start(&[]).expect("a process");
        let region = Region {
            start: one.home,
            end: one.home + PAGE,
            protection: libc::PROT_READ,
            fresh: true,
            anonymous: true,
        };
        let other = Child::start(&[region]).expect("a process");
        assert_eq!(other.home, region.end);
        drop((one, other, keeping));
        assert!(KEPT.with_borrow(|kept| kept.empty.is_none() && !kept.is_wanted));
    }
}
