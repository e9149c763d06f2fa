// SPDX-License-Identifier: MIT
//! Work in a process of its own, which the death of this one does not interrupt midway.
//!
//! `kill -9` of the command must not kill the program it looks at, so the process that traces
//! is another one: in a session of its own, out of reach of Ctrl-C and of a kill of the
//! command's process group. It notices that its parent is gone, lets go of the thread and
//! ends. Only a SIGKILL to the helper itself could still do harm, so its command line says
//! that it must not be killed that way; any other signal makes it let go.

use std::fs::File;
use std::io::{Error, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use flagfinder_linux::clock;
use flagfinder_linux::pidfd::signal_child;
use flagfinder_linux::proc::{Stat, STEPPER};
use flagfinder_linux::ptrace::FAULTS;

use flagfinder_failure::Failure;

use crate::error::Result;
use crate::let_go;

/// The process whose death ends this helper; 0 in every other process.
static PARENT: AtomicI32 = AtomicI32::new(0);
/// How long a blocking call may take before it is interrupted.
const TICK: Duration = Duration::from_millis(10);
static ASKED_TO_END: AtomicBool = AtomicBool::new(false);
/// Nanoseconds on a processor behind which the helper ends: where they are limited (RLIMIT_CPU),
/// the kernel kills it soon after.
static PROCESSOR_TIME: AtomicU64 = AtomicU64::new(u64::MAX);
/// So much of them is left to let go, and to tell what was seen.
const ENDS: u64 = 300_000_000;
static ASKED_TO_HURRY: AtomicBool = AtomicBool::new(false);
/// Asks to hurry. One that comes before its handler is there is ignored.
const HURRY: i32 = libc::SIGURG;
/// These end no process, or have another meaning here.
const HARMLESS: [i32; 5] = [
    libc::SIGCHLD,
    libc::SIGCONT,
    libc::SIGWINCH,
    libc::SIGALRM,
    HURRY,
];

/// Nobody waits for the result any more.
pub fn is_abandoned() -> bool {
    let parent = PARENT.load(Ordering::Relaxed);
    // SAFETY: getppid cannot fail.
    ASKED_TO_END.load(Ordering::Relaxed) || (parent != 0 && unsafe { libc::getppid() } != parent)
}

/// Whoever waits for the result needs less of it than it was to be.
pub fn is_hurried() -> bool {
    ASKED_TO_HURRY.load(Ordering::Relaxed)
}

/// A timer breaks blocking calls of this process.
pub fn has_timer() -> bool {
    PARENT.load(Ordering::Relaxed) != 0
}

extern "C" fn on_tick(_number: i32) {
    let most = Duration::from_nanos(PROCESSOR_TIME.load(Ordering::Relaxed));
    match clock::now(libc::CLOCK_PROCESS_CPUTIME_ID).is_some_and(|used| used > most) {
        true => on_signal(libc::SIGXCPU),
        false => let_go::tick(false),
    }
}

extern "C" fn on_signal(_number: i32) {
    ASKED_TO_END.store(true, Ordering::Relaxed);
    let_go::tick(true);
}

extern "C" fn on_hurry(_number: i32) {
    ASKED_TO_HURRY.store(true, Ordering::Relaxed);
}

/// A child process that works for this one.
pub struct Helper {
    pid: i32,
    output: File,
}

impl Helper {
    /// Runs `work` in a child process; `title` is its command line. Start helpers one after
    /// the other, from one thread.
    ///
    /// # Errors
    /// When the system gives no process or pipe.
    pub fn start(title: &str, work: impl FnOnce() -> Vec<u8>) -> Result<Helper> {
        let mut ends = [0i32; 2];
        let failed = |e: &Error| {
            Failure::unavailable(
                "The helper process cannot be started",
                format!("The system says: {e}"),
                "Allow more processes and files: `ulimit -u`, `ulimit -n`, or pids.max of the \
                 control group",
                "The process runs on as before",
            )
        };
        // SAFETY: two integers to fill.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return Err(failed(&Error::last_os_error()));
        }
        // SAFETY: fresh descriptors that nobody else owns.
        let (output, mut input) =
            unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) };
        let parent = std::process::id() as i32;
        // SAFETY: the child uses nothing that another thread may have locked but the
        // allocator, which glibc keeps usable across fork; it leaves by _exit.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(failed(&Error::last_os_error()));
        }
        if pid == 0 {
            drop(output);
            become_helper(title, parent);
            close_pipes_but(input.as_raw_fd());
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            let written = result.is_ok_and(|bytes| input.write_all(&bytes).is_ok());
            drop(input);
            flagfinder_files::end_openers();
            // SAFETY: ends the child without the parent's exit handlers.
            unsafe { libc::_exit(i32::from(!written)) };
        }
        Ok(Helper { pid, output })
    }

    /// Is there a result, or an end without one?
    pub fn is_done(&self) -> bool {
        let mut poll = libc::pollfd {
            fd: self.output.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry of ours.
        unsafe { libc::poll(&mut poll, 1, 0) > 0 }
    }

    /// Asks the helper to let go and to return what it has done by now.
    pub fn ask_to_end(&self) {
        signal_child(self.pid, libc::SIGTERM);
    }

    /// Tells the helper that less is enough; what that is, the work knows.
    pub fn ask_to_hurry(&self) {
        signal_child(self.pid, HURRY);
    }

    /// What the work returned. After `patience` the helper is asked to let go and end.
    ///
    /// # Errors
    /// When it failed or had to be ended.
    pub fn result(mut self, patience: Duration) -> Result<Vec<u8>> {
        let deadline = Instant::now() + patience;
        let mut bytes = Vec::new();
        let mut asked = false;
        loop {
            let mut poll = libc::pollfd {
                fd: self.output.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            let left = deadline.saturating_duration_since(Instant::now());
            let wait = if asked { 3000 } else { left.as_millis() as i32 };
            // SAFETY: one entry of ours.
            match unsafe { libc::poll(&mut poll, 1, wait) } {
                0 if asked => break,
                0 => {
                    self.ask_to_end();
                    asked = true;
                }
                -1 if Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
                _ => {
                    let mut part = [0u8; 65536];
                    match self.output.read(&mut part) {
                        Ok(0) | Err(_) => break,
                        Ok(got) => bytes.extend_from_slice(&part[..got]),
                    }
                }
            }
        }
        let mut status = 0;
        // SAFETY: status is ours. One that is stuck in the kernel is not waited for.
        let ended =
            unsafe { libc::waitpid(self.pid, &mut status, if asked { libc::WNOHANG } else { 0 }) };
        if ended == self.pid && status == 0 && !asked {
            return Ok(bytes);
        }
        let found = if asked {
            format!("It was not done after {} s", patience.as_secs())
        } else {
            format!("It ended with status {status:#x}; its message is above")
        };
        // The kernel lets a thread go with the tracer that ends.
        let still_works = if ended == self.pid {
            "The thread was let go".into()
        } else {
            format!(
                "Helper {} was told to let the thread go, which it does once the call that the \
                 thread is in returns",
                self.pid
            )
        };
        Err(Failure::unavailable(
            "The helper process gave no result",
            found,
            "Try again; please report it if it happens again",
            still_works,
        ))
    }
}

/// Another thread may just start a program, and wait until nobody has the end of a pipe any more by
/// which it would hear that this failed. That thread may be waited for while this helper works.
fn close_pipes_but(own: i32) {
    let numbers = std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let all: Vec<i32> = numbers
        .filter(|fd| *fd > libc::STDERR_FILENO && *fd != own)
        .collect();
    for fd in all {
        // SAFETY: a structure to fill; the pipes of other threads are nobody's in this process.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            if libc::fstat(fd, &mut stat) == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFIFO {
                libc::close(fd);
            }
        }
    }
}

fn become_helper(title: &str, parent: i32) {
    PARENT.store(parent, Ordering::Relaxed);
    // SAFETY: plain system calls, also in the handlers, which store atomics.
    unsafe {
        libc::setsid();
        let mut end: libc::sigaction = std::mem::zeroed();
        end.sa_sigaction = on_signal as extern "C" fn(i32) as libc::sighandler_t;
        for signal in (1..=64).filter(|signal| !HARMLESS.contains(signal)) {
            // A fault of our own comes again, and ends us then.
            end.sa_flags = match FAULTS.contains(&signal) {
                true => libc::SA_RESETHAND,
                false => libc::SA_RESTART,
            };
            libc::sigaction(signal, &end, std::ptr::null_mut());
        }
        flagfinder_code::outlive_cut_files();
        let mut time: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_CPU, &mut time) == 0 && time.rlim_max != libc::RLIM_INFINITY
        {
            let most = time.rlim_max.saturating_mul(1_000_000_000);
            PROCESSOR_TIME.store(most.saturating_sub(ENDS), Ordering::Relaxed);
        }
        let handler = on_hurry as extern "C" fn(i32) as libc::sighandler_t;
        libc::signal(HURRY, handler);
        let mut tick: libc::sigaction = std::mem::zeroed();
        tick.sa_sigaction = on_tick as extern "C" fn(i32) as libc::sighandler_t;
        libc::sigaction(libc::SIGALRM, &tick, std::ptr::null_mut());
        let every = libc::timeval {
            tv_sec: 0,
            tv_usec: TICK.as_micros() as libc::suseconds_t,
        };
        let timer = libc::itimerval {
            it_interval: every,
            it_value: every,
        };
        libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut());
        // A blocked mask would be inherited from a caller that holds signals back.
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_NAME, STEPPER.as_ptr());
    }
    retitle(title);
}

/// Overwrites the command line that ps shows and `pkill -f` searches.
fn retitle(title: &str) {
    let field = |number| Stat::of(std::process::id())?.field::<usize>(number);
    let (Some(start), Some(end)) = (field(Stat::ARGUMENTS), field(Stat::ARGUMENTS + 1)) else {
        return;
    };
    if start == 0 || end <= start {
        return;
    }
    // SAFETY: the kernel's own record of where the arguments lie; writable stack memory of
    // this process that nothing in the helper reads.
    let arguments = unsafe {
        std::slice::from_raw_parts_mut(
            std::ptr::with_exposed_provenance_mut::<u8>(start),
            end - start,
        )
    };
    arguments.fill(0);
    let most = title.len().min(arguments.len() - 1);
    arguments[..most].copy_from_slice(&title.as_bytes()[..most]);
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use flagfinder_linux::proc::Status;

    use super::*;
    use crate::stepper::{step_thread, Limits};

    fn refusal(patience: u64, work: impl FnOnce() -> Vec<u8>) -> Failure {
        let helper = Helper::start("helper of a test", work).unwrap();
        helper.result(Duration::from_secs(patience)).unwrap_err()
    }

    #[test]
    fn a_helper_that_goes_on_has_not_let_go() {
        // By then it handles the signal that asks it to let go.
        let stuck = refusal(2, || {
            let end = Instant::now() + Duration::from_secs(12);
            while Instant::now() < end {
                std::thread::sleep(Duration::from_millis(50));
            }
            Vec::new()
        });
        assert!(
            !stuck.still_works.contains("was let go"),
            "{}",
            stuck.still_works
        );
        assert!(
            stuck.still_works.contains("told to let"),
            "{}",
            stuck.still_works
        );
    }

    /// Does a program outlive what `harm` does to the helper that steps it, and is it let go?
    fn outlives(harm: impl FnOnce(&Helper)) -> bool {
        const LONG: Duration = Duration::from_secs(60);
        let limits = Limits {
            pause: LONG,
            time: LONG,
            steps: u32::MAX,
            ..Limits::default()
        };
        let spins = ["-c", "while :; do :; done"];
        let mut child = Command::new("sh").args(spins).spawn().expect("a shell");
        let pid = child.id();
        let tracer = || Status::of(pid).and_then(|status| status.number("TracerPid:"));
        let is_held = |by: u32| {
            let begin = Instant::now();
            while tracer() != Some(by) && begin.elapsed() < LONG {
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        let work = || {
            let _ = step_thread(pid, &limits, |_| false);
            Vec::new()
        };
        let helper = Helper::start("helper of a test", work).expect("a process");
        is_held(helper.pid as u32);
        harm(&helper);
        is_held(0);
        std::thread::sleep(Duration::from_millis(100));
        let lives = child.try_wait().expect("ours").is_none();
        child.kill().expect("our own child");
        child.wait().expect("our own child");
        lives && helper.result(LONG).is_ok()
    }

    #[test]
    fn a_program_outlives_whatever_signal_its_helper_gets() {
        for signal in [libc::SIGUSR1, libc::SIGXCPU, libc::SIGABRT, libc::SIGSEGV] {
            let harm = |helper: &Helper| {
                std::thread::sleep(Duration::from_millis(100));
                // SAFETY: our own child.
                unsafe { libc::kill(helper.pid, signal) };
            };
            assert!(outlives(harm), "{signal}");
        }
    }

    #[test]
    fn a_program_outlives_its_helper_s_limit_of_processor_time() {
        let second = libc::rlimit {
            rlim_cur: 1,
            rlim_max: 1,
        };
        // SAFETY: the child has this thread alone, and ends without handlers.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::setrlimit(libc::RLIMIT_CPU, &second);
                let lives = std::panic::catch_unwind(|| outlives(|_| {}));
                libc::_exit(i32::from(!lives.unwrap_or(false)));
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            assert_eq!(status, 0);
        }
    }

    #[test]
    fn a_pipe_of_another_thread_ends_while_a_helper_works() {
        let mut ends = [0; 2];
        // SAFETY: two integers to fill, which then are ours alone.
        let (mut reader, writer) = unsafe {
            assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
            (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]))
        };
        let helper = Helper::start("ff-step: waits", || {
            std::thread::sleep(Duration::from_secs(20));
            b"late".to_vec()
        });
        let helper = helper.expect("starts");
        drop(writer);
        let begin = Instant::now();
        assert_eq!(reader.read(&mut [0; 1]).expect("ends"), 0);
        assert!(
            !helper.is_done(),
            "it was waited for, {:?}",
            begin.elapsed()
        );
        signal_child(helper.pid, libc::SIGKILL);
    }

    #[test]
    fn a_helper_that_ended_has_let_go() {
        // SAFETY: ends the helper without a result.
        let ended = refusal(30, || unsafe { libc::_exit(3) });
        assert_eq!(ended.still_works, "The thread was let go");
    }
}
