// SPDX-License-Identifier: MIT
//! A program that is stopped before its own first instruction, when its libraries are loaded.
//!
//! In: a process that waits for a sign to start the program, and the program's name. Out: the
//! process that came to the program's entry point, stopped as by SIGSTOP and not traced any more.
//! What starts the program may be a script: processes that it starts are followed. All of them run
//! at full speed, and are let go once the program is found. Should we die meanwhile, they die.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Error;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use flagfinder_code::{AddressSpace, ProcessMemory};
use flagfinder_failure::Failure;
use flagfinder_linux::ptrace::request;

use crate::error::{unable_by, Result};

/// While no process has changed its state, all are asked this often.
const LOOK: Duration = Duration::from_micros(200);
/// Of an auxiliary vector: where the program begins.
const AT_ENTRY: u64 = 9;
/// `int3`.
const TRAP: u8 = 0xcc;

/// The processes on the way to the program.
pub struct Entry {
    /// The child of this process.
    own: i32,
    traced: BTreeSet<i32>,
    /// That which runs the program, on its way through the loader, and where it is to stop.
    found: Option<(i32, Trap)>,
}

/// An `int3` in the place of an instruction. A debug register would do as well, but the kernel
/// reserves one that a thread has ever used, and no other breakpoint gets it.
#[derive(Clone, Copy, Debug)]
struct Trap {
    address: u64,
    /// The byte that lay there.
    content: u8,
}

/// What became of a process.
enum Change {
    None,
    Ended,
    /// The status as waitpid has it.
    Stopped(i32),
}

impl Entry {
    /// Follows `pid`, a child of this process. All calls have to be made by one thread.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn follow(pid: i32) -> Result<Entry> {
        let options = libc::PTRACE_O_TRACEEXEC
            | libc::PTRACE_O_TRACEFORK
            | libc::PTRACE_O_TRACEVFORK
            | libc::PTRACE_O_TRACECLONE
            | libc::PTRACE_O_EXITKILL;
        request(libc::PTRACE_SEIZE, pid, 0, options as usize)
            .map_err(|e| unable_by(format!("Process {pid} cannot be traced"), &e))?;
        Ok(Entry {
            own: pid,
            traced: [pid].into_iter().collect(),
            found: None,
        })
    }

    /// All of them have ended.
    pub fn is_over(&self) -> bool {
        self.traced.is_empty()
    }

    /// Waits until a process is at the entry of a program with this file name; `None`: all ended
    /// before, or the time is over.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn wait(&mut self, program: &str, patience: Duration) -> Result<Option<u32>> {
        let end = Instant::now() + patience;
        while !self.traced.is_empty() && Instant::now() < end {
            let mut quiet = true;
            for pid in self.traced.clone() {
                match self.change(pid) {
                    Change::None => continue,
                    Change::Ended => {
                        self.traced.remove(&pid);
                    }
                    Change::Stopped(status) => {
                        if self.stopped(pid, status, program)? {
                            return Ok(Some(pid as u32));
                        }
                    }
                }
                quiet = false;
            }
            if quiet {
                std::thread::sleep(LOOK);
            }
        }
        Ok(None)
    }

    fn change(&self, pid: i32) -> Change {
        // SAFETY: all zeros are a siginfo_t.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let any = libc::WEXITED | libc::WSTOPPED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
        // SAFETY: `info` is ours.
        let waited = unsafe { libc::waitid(libc::P_PID, pid as u32, &raw mut info, any) };
        let over = [libc::CLD_EXITED, libc::CLD_KILLED, libc::CLD_DUMPED];
        let has_ended = waited != 0 || over.contains(&info.si_code);
        if !has_ended && info.si_code == 0 {
            return Change::None;
        }
        // The process that started our own child waits for it, too; the parent of another one hears
        // of it after us.
        if has_ended && pid == self.own {
            return Change::Ended;
        }
        let mut status = 0;
        // SAFETY: `status` is ours.
        let got = unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG | libc::__WALL) };
        if has_ended {
            return Change::Ended;
        }
        match got == pid && libc::WIFSTOPPED(status) {
            true => Change::Stopped(status),
            false => Change::None,
        }
    }

    fn trap(&self, pid: i32) -> Option<Trap> {
        let found = self.found.filter(|(found, _)| *found == pid);
        found.map(|(_, trap)| trap)
    }

    /// Lets it go on. If it is at the entry, it stays stopped, and all are let go.
    fn stopped(&mut self, pid: i32, status: i32, program: &str) -> Result<bool> {
        let (event, signal) = (status >> 16, libc::WSTOPSIG(status));
        let mut deliver = 0;
        match event {
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
                let mut child = 0u64;
                let at = &raw mut child as usize;
                if request(libc::PTRACE_GETEVENTMSG, pid, 0, at).is_ok() {
                    self.traced.insert(child as i32);
                }
            }
            libc::PTRACE_EVENT_EXEC => {
                // The trap is gone with the program that it was in.
                self.found = self.found.filter(|(found, _)| *found != pid);
                let address = match self.found.is_none() && runs(pid, program) {
                    true => entry(pid),
                    false => None,
                };
                if let Some(address) = address {
                    let trap = Trap::set(pid, address).map_err(|e| failed(pid, &e))?;
                    self.found = Some((pid, trap));
                }
            }
            0 => {
                let trap = self.trap(pid).filter(|_| signal == libc::SIGTRAP);
                if let Some(trap) = trap.filter(|trap| trap.is_hit(pid)) {
                    self.traced.remove(&pid);
                    // The signal stops it there, on its way out.
                    let stopped = libc::SIGSTOP as usize;
                    let detached = trap
                        .remove(pid)
                        .and_then(|()| request(libc::PTRACE_DETACH, pid, 0, stopped));
                    return detached.map(|_| true).map_err(|e| failed(pid, &e));
                }
                deliver = signal as usize;
            }
            _ => {}
        }
        // It is reported later if it was killed meanwhile.
        let _ = request(libc::PTRACE_CONT, pid, 0, deliver);
        Ok(false)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        for &pid in &self.traced {
            let end = Instant::now() + Duration::from_secs(1);
            let stopped = || loop {
                match self.change(pid) {
                    Change::Stopped(status) => return Some(status),
                    Change::None if Instant::now() < end => std::thread::sleep(LOOK),
                    _ => return None,
                }
            };
            if request(libc::PTRACE_INTERRUPT, pid, 0, 0).is_ok() {
                if let Some(status) = stopped() {
                    let _ = self.trap(pid).map_or(Ok(()), |trap| trap.remove(pid));
                    let is_signal = status >> 16 == 0;
                    let signal = if is_signal { libc::WSTOPSIG(status) } else { 0 };
                    let _ = request(libc::PTRACE_DETACH, pid, 0, signal as usize);
                }
            }
        }
    }
}

fn failed(pid: i32, error: &Error) -> Failure {
    unable_by(format!("Process {pid} cannot be stopped"), error)
}

fn runs(pid: i32, program: &str) -> bool {
    let file = fs::read_link(format!("/proc/{pid}/exe"));
    file.is_ok_and(|file| file.file_name() == Path::new(program).file_name())
}

fn entry(pid: i32) -> Option<u64> {
    let vector = fs::read(format!("/proc/{pid}/auxv")).ok()?;
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    let mut pairs = vector.chunks_exact(16);
    pairs.find_map(|pair| (number(&pair[..8]) == AT_ENTRY).then(|| number(&pair[8..])))
}

impl Trap {
    fn set(pid: i32, address: u64) -> std::io::Result<Trap> {
        let mut content = 0;
        // A file system that is silent is not written to.
        if ProcessMemory::open(pid as u32)?.read(address, std::slice::from_mut(&mut content)) != 1 {
            return Err(std::io::Error::from_raw_os_error(libc::EFAULT));
        }
        memory(pid)?.write_all_at(&[TRAP], address)?;
        Ok(Trap { address, content })
    }

    /// Has the thread just executed it?
    fn is_hit(self, pid: i32) -> bool {
        registers(pid).is_ok_and(|registers| registers.rip == self.address + 1)
    }

    /// Puts the instruction back, and lets a thread that has just trapped execute it.
    fn remove(self, pid: i32) -> std::io::Result<()> {
        memory(pid)?.write_all_at(&[self.content], self.address)?;
        let mut registers = registers(pid)?;
        if registers.rip == self.address + 1 {
            registers.rip = self.address;
            let at = &raw const registers as usize;
            request(libc::PTRACE_SETREGS, pid, 0, at)?;
        }
        Ok(())
    }
}

fn memory(pid: i32) -> std::io::Result<File> {
    let path = format!("/proc/{pid}/mem");
    File::options().write(true).open(path)
}

fn registers(pid: i32) -> std::io::Result<libc::user_regs_struct> {
    // SAFETY: plain numbers.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    let at = &raw mut registers as usize;
    request(libc::PTRACE_GETREGS, pid, 0, at)?;
    Ok(registers)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn state(pid: i32) -> Option<char> {
        let stat = flagfinder_linux::proc::text(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }

    /// Starts a shell that waits until it is followed, then does `script`.
    fn started(script: &str) -> (std::process::Child, Entry) {
        let script = format!("kill -STOP $$; {script}");
        let child = Command::new("sh").args(["-c", &script]).spawn();
        let child = child.expect("a shell");
        let pid = child.id() as i32;
        while state(pid) != Some('T') {
            std::thread::sleep(LOOK);
        }
        let entry = Entry::follow(pid).expect("our own child");
        // SAFETY: our own child.
        unsafe { libc::kill(pid, libc::SIGCONT) };
        (child, entry)
    }

    #[test]
    fn a_program_stands_at_its_entry_and_goes_on() {
        for script in ["exec sleep 0.1", "sleep 0.1; exit 0"] {
            let (mut child, mut entry) = started(script);
            let found = entry.wait("/bin/sleep", Duration::from_secs(10));
            let pid = found.expect("it may be traced").expect("it is started");
            drop(entry);
            let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("it lives");
            assert!(maps.contains("libc.so"), "the loader is done:\n{maps}");
            let end = Instant::now() + Duration::from_secs(10);
            while state(pid as i32) != Some('T') {
                assert!(Instant::now() < end, "it is to stop before it runs");
                std::thread::sleep(LOOK);
            }
            // SAFETY: a child of ours, or of that one.
            unsafe { libc::kill(pid as i32, libc::SIGCONT) };
            assert!(child.wait().expect("it ends").success(), "{script}");
        }
    }

    #[test]
    fn a_script_that_never_starts_the_program_finds_none() {
        let (mut child, mut entry) = started("exit 3");
        let found = entry.wait("sleep", Duration::from_secs(10));
        assert_eq!(found.expect("it may be traced"), None);
        drop(entry);
        assert_eq!(child.wait().expect("it ends").code(), Some(3));
    }
}
