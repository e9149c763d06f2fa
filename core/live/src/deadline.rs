// SPDX-License-Identifier: MIT
//! When an answer is due, and what was left out for it.
//!
//! In: the time limit of a question. Out: whether it is over, and the list of what was not asked.
//! All parts of one question share one `Deadline`: each asks it before it begins with something
//! that takes long. Blind spot: a call of the kernel that does not return is not cut short.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use flagfinder_step::is_abandoned;

/// Shared by its clones. The default is never over.
#[derive(Clone, Debug, Default)]
pub struct Deadline {
    /// The whole time, as the user gave it, and its end.
    end: Option<(Duration, Instant)>,
    left_out: Arc<Mutex<Vec<String>>>,
}

/// Most that are listed of what was left out.
const MOST_LISTED: usize = 32;

impl Deadline {
    /// `left` of the whole `limit` is left by now.
    pub fn of(limit: Duration, left: Duration) -> Deadline {
        // A time that the clock can't tell never comes.
        let end = Instant::now().checked_add(left);
        Deadline {
            end: end.map(|end| (limit, end)),
            left_out: Arc::default(),
        }
    }

    /// The same end, for a process of ours that lists by itself what it leaves out.
    pub(crate) fn elsewhere(&self) -> Deadline {
        Deadline {
            end: self.end,
            left_out: Arc::default(),
        }
    }

    /// It is, too, once nobody waits for the answer of a process of ours.
    pub(crate) fn is_over(&self) -> bool {
        is_abandoned() || self.end.is_some_and(|(_, end)| Instant::now() >= end)
    }

    /// What is left of `time`.
    pub(crate) fn at_most(&self, time: Duration) -> Duration {
        if is_abandoned() {
            return Duration::ZERO;
        }
        self.end.map_or(time, |(_, end)| {
            time.min(end.saturating_duration_since(Instant::now()))
        })
    }

    /// Whether it is over; then `what` is listed as left out.
    pub(crate) fn leaves_out(&self, what: impl FnOnce() -> String) -> bool {
        let is_over = self.is_over();
        if is_over {
            self.leave_out(what());
        }
        is_over
    }

    /// Lists what was left out.
    pub(crate) fn leave_out(&self, what: String) {
        // A thread that panicked leaves a list that is whole.
        let mut list = self.left_out.lock().unwrap_or_else(PoisonError::into_inner);
        if !list.contains(&what) {
            list.push(what);
        }
    }

    /// What was left out by now, and the note that tells of it, if anything was.
    pub(crate) fn not_asked(&self) -> (Vec<String>, Option<String>) {
        let mut list = self
            .left_out
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if list.len() > MOST_LISTED {
            let more = list.split_off(MOST_LISTED).len();
            list.push(format!("{more} more"));
        }
        let note = self.end.filter(|_| !list.is_empty()).map(|(limit, _)| {
            format!(
                "not asked, as the time limit of {} s was over: {}",
                limit.as_secs_f64(),
                list.join("; ")
            )
        });
        (list, note)
    }
}

#[cfg(test)]
mod tests {
    use flagfinder_step::Helper;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_is_left_out_is_listed_once_by_all_that_share_the_limit() {
        let over = Deadline::of(SECOND * 30, Duration::ZERO);
        assert!(over.clone().leaves_out(|| "thread 1".into()));
        assert!(over.leaves_out(|| "thread 1".into()));
        let (list, note) = over.not_asked();
        assert_eq!(list, ["thread 1"]);
        let told = "not asked, as the time limit of 30 s was over: thread 1";
        assert_eq!(note.as_deref(), Some(told));
        assert_eq!(over.elsewhere().not_asked(), (Vec::new(), None));
    }

    #[test]
    fn nothing_is_left_out_before_the_limit() {
        for deadline in [Deadline::default(), Deadline::of(SECOND, SECOND * 3600)] {
            assert!(!deadline.leaves_out(|| unreachable!()));
            assert_eq!(deadline.at_most(SECOND), SECOND);
        }
        assert_eq!(
            Deadline::of(SECOND, Duration::ZERO).at_most(SECOND),
            Duration::ZERO
        );
        assert!(!Deadline::of(SECOND, Duration::MAX).is_over());
    }

    #[test]
    fn who_is_asked_to_end_has_no_time_left() {
        let helper = Helper::start("helper of a test", || {
            let never = Deadline::default();
            while !never.is_over() && !never.at_most(SECOND).is_zero() {
                std::thread::sleep(Duration::from_millis(10));
            }
            Vec::new()
        });
        let begin = Instant::now();
        // It is asked after that time, and is left alone 3 s later.
        assert!(helper.expect("a process").result(SECOND * 2).is_err());
        assert!(begin.elapsed() < Duration::from_millis(4500));
    }

    #[test]
    fn a_long_list_is_cut_and_says_so() {
        let over = Deadline::of(SECOND, Duration::ZERO);
        for tid in 0..MOST_LISTED + 3 {
            over.leave_out(format!("thread {tid}"));
        }
        let (list, _) = over.not_asked();
        assert_eq!(
            (list.len(), list[MOST_LISTED].as_str()),
            (MOST_LISTED + 1, "3 more")
        );
    }
}
