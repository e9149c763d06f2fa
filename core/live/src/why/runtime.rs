// SPDX-License-Identifier: MIT
//! Threads of a runtime that run nothing of the program while they have no work.
//!
//! In: the functions that a thread has open, innermost first. Out: whether it is such a thread, and
//! waits to be given work. Then it ends no wait of others before one of them has gone on. Blind
//! spot: a runtime without symbols.

/// What such threads run from their beginning to their end: those of node, and of libuv's pool.
const HELPERS: [&str; 3] = [
    "node::(anonymous namespace)::PlatformWorkerThread",
    "node::WorkerThreadsTaskRunner::DelayedTaskScheduler::Start",
    "node::inspector::(anonymous namespace)::StartIoThreadMain",
];
const OF_POOL: &str = "worker";
/// How they wait for work: what they call, and what that calls.
const WAITS: [&[&str]; 3] = [
    &["uv_cond_wait"],
    &["uv_sem_wait"],
    &["uv_run", "uv__io_poll", "epoll_pwait"],
];

pub fn is_idle(symbols: &[&str]) -> bool {
    let is_helper = |symbol: &&str| {
        *symbol == OF_POOL || HELPERS.iter().any(|helper| symbol.starts_with(helper))
    };
    let Some(at) = symbols.iter().position(is_helper) else {
        return false;
    };
    WAITS.iter().any(|calls| {
        let mut open = symbols[..at].iter().rev();
        calls
            .iter()
            .all(|call| open.next().is_some_and(|symbol| symbol.ends_with(call)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_helper_at_work_is_not_idle() {
        let worker = "node::(anonymous namespace)::PlatformWorkerThread(void*)";
        assert!(is_idle(&[
            "futex_wait",
            "uv_cond_wait",
            worker,
            "start_thread"
        ]));
        assert!(!is_idle(&[
            "mmap",
            "v8::internal::OptimizingCompileTask::Run",
            worker
        ]));
        assert!(
            !is_idle(&["futex_wait", "uv_cond_wait", "main"]),
            "the program's own"
        );
        assert!(!is_idle(&[worker]));
        assert!(is_idle(&["futex_wait", "uv_cond_wait", "worker"]));
        assert!(
            !is_idle(&["futex_wait", "wait", "worker"]),
            "the program's own"
        );
        let timers = "node::WorkerThreadsTaskRunner::DelayedTaskScheduler::Start()";
        assert!(is_idle(&[
            "__GI_epoll_pwait",
            "uv__io_poll",
            "uv_run",
            timers
        ]));
        assert!(!is_idle(&[
            "write",
            "v8::Task::Run",
            "uv__io_poll",
            "uv_run",
            timers
        ]));
    }
}
