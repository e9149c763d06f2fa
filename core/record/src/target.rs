// SPDX-License-Identifier: MIT
//! The target process: started through the tracer, watched, and its end.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use flagfinder_linux::pidfd::signal_child;
use flagfinder_linux::proc::Status;

use crate::error::{io, Failure, Result};
use crate::options::{TargetExit, TracerCommand, POOL_PLACEHOLDER};
use crate::user::User;

pub struct Target {
    child: Child,
    exit: Option<TargetExit>,
    /// How many filters of system calls it had when it was seen last.
    filters: u32,
}

impl Target {
    /// Starts the tracer, which becomes the target: same pid, this terminal, this
    /// working directory and environment, the recorder's stdin, stdout and stderr, or these
    /// `outputs`.
    pub fn start(
        tracer: &TracerCommand,
        pool: &Path,
        user: Option<&User>,
        outputs: Option<[OwnedFd; 2]>,
    ) -> Result<Target> {
        let argv: Vec<OsString> = tracer
            .argv
            .iter()
            .map(|word| {
                if word == POOL_PLACEHOLDER {
                    pool.as_os_str().to_owned()
                } else {
                    word.clone()
                }
            })
            .collect();
        let Some((program, arguments)) = argv.split_first() else {
            return Err(Failure::usage(
                "The tracer could not be started",
                "an empty command",
                "Give the tracer's program and arguments.",
                "Existing traces can be read.",
            ));
        };
        let mut command = Command::new(program);
        command.args(arguments);
        if let Some([out, err]) = outputs {
            command.stdout(out).stderr(err);
        }
        let user = user.cloned();
        if let Some(user) = &user {
            command
                .env("HOME", &user.home)
                .env("USER", &user.name)
                .env("LOGNAME", &user.name);
        }
        // SAFETY: between fork and exec only system calls are made.
        unsafe {
            command.pre_exec(move || {
                // Python ignores it, like SIGPIPE, which `Command` sets back.
                libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
                let Some(user) = &user else { return Ok(()) };
                let groups = libc::setgroups(user.groups.len(), user.groups.as_ptr());
                if groups != 0 || libc::setgid(user.gid) != 0 || libc::setuid(user.uid) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let child = command.spawn().map_err(|e| {
            io(
                format!(
                    "The tracer {} could not be started",
                    Path::new(program).display()
                ),
                &e,
                "Build the tracer again, or check that its file may be executed.",
            )
        })?;
        Ok(Target {
            child,
            exit: None,
            filters: 0,
        })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended; `None` while it runs.
    pub fn exit(&mut self) -> Option<TargetExit> {
        if self.exit.is_none() {
            if let Ok(Some(status)) = self.child.try_wait() {
                self.exit = Some(match (status.code(), status.signal()) {
                    (Some(code), _) => TargetExit::Exited(code),
                    (None, signal) => TargetExit::Signaled(signal.unwrap_or(0)),
                });
            }
        }
        self.exit
    }

    /// Sends a signal while the pid is still the child's.
    pub fn signal(&mut self, number: i32) {
        if self.exit().is_none() {
            signal_child(self.pid() as i32, number);
        }
    }

    /// Has it put itself into a sandbox, besides the one in which we run?
    pub fn is_confined(&self) -> bool {
        self.filters > filters_of(std::process::id()).unwrap_or(0)
    }

    /// Sleeps until the target ends, a signal arrives, or `timeout` passes.
    pub fn wait(&mut self, timeout: Duration) {
        self.sleep(timeout);
        // Also of one that has just ended and is not reaped yet.
        if let Some(filters) = filters_of(self.pid()) {
            self.filters = filters;
        }
    }

    fn sleep(&self, timeout: Duration) {
        // SAFETY: plain system calls; the descriptor is closed here.
        unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, self.pid(), 0) as i32;
            if fd < 0 {
                libc::usleep(timeout.as_micros() as u32);
                return;
            }
            let mut wanted = libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            };
            libc::poll(&mut wanted, 1, timeout.as_millis() as i32);
            libc::close(fd);
        }
    }
}

/// How many seccomp filters a process has; Linux tells since 5.9.
fn filters_of(pid: u32) -> Option<u32> {
    Status::of(pid)?.number("Seccomp_filters:")
}
