// SPDX-License-Identifier: MIT
//! Processes by descriptors, and signals that reach the process which is meant or none.
//!
//! Once a process has ended and was waited for, its number is given away: to another process, or to
//! a thread, and kill(2) with the number of a thread reaches the whole process of that thread. A
//! descriptor never names another process.

use std::io::{Error, Result};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// # Errors
/// When there is no such process, or the system gives no descriptor.
pub fn open(pid: u32) -> Result<OwnedFd> {
    // SAFETY: takes integers, returns a descriptor.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    match i32::try_from(fd) {
        // SAFETY: the kernel just made it for us.
        Ok(fd @ 0..) => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(Error::last_os_error()),
    }
}

/// Has it ended? One that nobody has waited for yet has.
pub fn has_ended(process: &OwnedFd) -> bool {
    let mut poll = libc::pollfd {
        fd: process.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid pollfd.
    unsafe { libc::poll(&mut poll, 1, 0) > 0 }
}

/// # Errors
/// When it is gone, or the system refuses.
pub fn send(process: &OwnedFd, signal: i32) -> Result<()> {
    let (call, fd) = (libc::SYS_pidfd_send_signal, process.as_raw_fd());
    let none = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: plain numbers.
    match unsafe { libc::syscall(call, fd, signal, none, 0) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

/// Sends a signal to a child of this process that nobody has waited for yet. If somebody has, or
/// the kernel has, as it does where SIGCHLD is ignored, nobody gets it.
pub fn signal_child(pid: i32, signal: i32) {
    if !is_child(libc::P_PID, pid) {
        return;
    }
    match open(pid as u32) {
        Ok(process) if is_child(libc::P_PIDFD, process.as_raw_fd()) => {
            let _ = send(&process, signal);
        }
        Ok(_) => {}
        // No descriptor is left for us.
        // SAFETY: plain numbers; it was our child right before.
        Err(_) => unsafe {
            libc::kill(pid, signal);
        },
    }
}

fn is_child(by: libc::idtype_t, number: i32) -> bool {
    let what = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: all zeros are a siginfo_t, which the kernel fills.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        libc::waitid(by, number as libc::id_t, &mut info, what) == 0
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_child_gets_it_until_it_was_waited_for() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep");
        let pid = child.id() as i32;
        let process = open(child.id()).expect("it lives");
        assert!(is_child(libc::P_PID, pid) && !has_ended(&process));
        signal_child(pid, libc::SIGKILL);
        let status = child.wait().expect("its end");
        assert!(status.to_string().contains("signal: 9"), "{status}");
        assert!(!is_child(libc::P_PID, pid) && has_ended(&process));
        assert!(send(&process, libc::SIGKILL).is_err());
    }

    #[test]
    fn a_process_that_is_no_child_gets_none() {
        let script = "sleep 60 & echo $!; exec sleep 60";
        let mut shell = Command::new("sh");
        let shell = shell
            .args(["-c", script])
            .stdout(std::process::Stdio::piped());
        let mut shell = shell.spawn().expect("a shell");
        let mut line = String::new();
        let mut told = std::io::BufReader::new(shell.stdout.take().expect("a pipe"));
        std::io::BufRead::read_line(&mut told, &mut line).expect("a line");
        let grandchild = open(line.trim().parse().expect("a number")).expect("it lives");
        signal_child(line.trim().parse().expect("a number"), libc::SIGKILL);
        std::thread::sleep(std::time::Duration::from_millis(50));
        let was_reached = has_ended(&grandchild);
        let _ = send(&grandchild, libc::SIGKILL);
        shell.kill().expect("ours");
        shell.wait().expect("its end");
        assert!(!was_reached);
    }
}
