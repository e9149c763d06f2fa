// SPDX-License-Identifier: MIT
//! Which program belongs at `sched_switch`: its arguments changed with the kernels, and a program
//! that takes one for another is refused, or would record nonsense.
//!
//! In: the arguments as the kernel's type information tells them. Out: the name of a program in
//! `bpf/events.bpf.c`. Up to 5.17 they are (preempted, previous, next). fa2c3254d7cf
//! ("sched/tracing: Don't re-read p->state when emitting sched_switch event") put the previous
//! thread's state second, and some stable kernels have it so; 9c2136be0878 ("sched/tracing: Append
//! prev_state to tp args instead"), of 5.18, moved it to the end.

use flagfinder_bpf::{unavailable, Argument};

use crate::Result;

pub(crate) const STATE_LAST: &str = "ff_sched_switch";
pub(crate) const STATE_SECOND: &str = "ff_sched_switch_state_second";
/// Fits every kernel that has the threads second and third; it reads the state from the thread.
pub(crate) const STATELESS: &str = "ff_sched_switch_stateless";

/// # Errors
/// When the arguments are none of those that are known.
pub(crate) fn program_for(arguments: &[Argument]) -> Result<&'static str> {
    let is_task = |index: usize| {
        let argument = arguments.get(index);
        matches!(argument, Some(Argument::Pointer(name)) if name == "task_struct")
    };
    let is_number = |index: usize| arguments.get(index) == Some(&Argument::Number);
    let shape = (arguments.len(), is_number(0), is_task(1), is_task(2));
    match shape {
        (3, true, true, true) => Ok(STATELESS),
        // What may have been appended behind it does no harm.
        (4.., true, true, true) if is_number(3) => Ok(STATE_LAST),
        (4.., true, true, true) => Ok(STATELESS),
        (4.., true, false, true) if is_number(1) && is_task(3) => Ok(STATE_SECOND),
        _ => Err(unavailable(
            "Switches between threads can't be recorded",
            format!("this kernel's sched_switch has unknown arguments: {arguments:?}"),
            "Please report it with the output of `uname -r`; use another kernel meanwhile.",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> Argument {
        Argument::Pointer("task_struct".into())
    }

    #[test]
    fn each_kernel_gets_the_program_for_its_arguments() {
        let number = || Argument::Number;
        let chosen = |arguments: &[Argument]| program_for(arguments).ok();
        // 5.15; 5.17.y and 5.16.y of the spring of 2022; 5.18 and later; one that appends another.
        let old = [number(), task(), task()];
        assert_eq!(chosen(&old), Some(STATELESS));
        let second = [number(), number(), task(), task()];
        assert_eq!(chosen(&second), Some(STATE_SECOND));
        let last = [number(), task(), task(), number()];
        assert_eq!(chosen(&last), Some(STATE_LAST));
        let longer = [number(), task(), task(), number(), Argument::Other];
        assert_eq!(chosen(&longer), Some(STATE_LAST));
        let without = [number(), task(), task(), Argument::Other];
        assert_eq!(chosen(&without), Some(STATELESS));
    }

    #[test]
    fn unknown_arguments_are_refused_in_four_parts() {
        let other = || Argument::Pointer("rq".into());
        for arguments in [
            vec![],
            vec![Argument::Number, task()],
            vec![task(), task(), task(), Argument::Number],
            vec![Argument::Number, other(), task(), Argument::Number],
        ] {
            let refused = program_for(&arguments).unwrap_err();
            assert_eq!(refused.exit_code, 69);
            assert!(refused.found.contains("sched_switch"));
            assert!(!refused.fix.is_empty() && !refused.still_works.is_empty());
        }
    }
}
