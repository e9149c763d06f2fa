// SPDX-License-Identifier: MIT
//! The bare process that a copy runs in: an address space with nothing in it but one page of ours.
//!
//! That page holds a `syscall` instruction, by which the tracer makes the calls that arrange
//! memory. A seccomp filter lets calls through from there only. The process dies with its tracer
//! (PTRACE_O_EXITKILL).

use std::cell::Cell;
use std::io::{Error, Result};
use std::mem::{size_of, zeroed};
use std::ptr::without_provenance_mut;

use flagfinder_linux::pidfd::signal_child;
use flagfinder_linux::proc::REPLICA;
use flagfinder_linux::ptrace::{request, FAULTS};

use crate::source::{Region, PAGE};

/// `syscall; int3`.
const CALL: [u8; 3] = [0x0f, 0x05, 0xcc];
const CALL_BYTES: u64 = 2;
/// Nothing may be mapped below (vm.mmap_min_addr).
const LOWEST: u64 = 0x1_0000;
/// The end of what a process may map.
const TOP: u64 = 0x7fff_ffff_f000;
/// The segments of 64-bit programs.
const LONG_MODE: u64 = 0x33;
const STACK: u64 = 0x2b;
/// The page by which old programs ask for the time (vsyscall). The kernel makes such a call itself.
const OLD_CALLS: u64 = 0xffff_ffff_ff60_0000;
/// AUDIT_ARCH_X86_64 of linux/audit.h.
const LONG: u32 = 0xc000_003e;
/// A call takes a step or two; more are no steps of it.
const MOST_STEPS: u32 = 16;

/// See the module. Dropping it ends the process.
pub struct Child {
    pub pid: i32,
    pub(crate) home: u64,
    /// It has ended, and the system may have given its number away.
    gone: Cell<bool>,
}

/// Why the process stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// About to make a system call, which the kernel will skip.
    Call,
    /// The same, of a 32-bit program.
    ShortCall,
    /// Behind a call by the page at [`OLD_CALLS`], which the kernel skipped; rax has its number.
    OldCall,
    /// A step, a breakpoint or a watchpoint.
    Trap,
    /// The alarm that [`Child::ring`] sets.
    Alarm,
    /// A signal by the code itself; `code` is si_code.
    Signal {
        number: i32,
        code: i32,
        address: u64,
    },
    Gone,
}

impl Child {
    /// Makes an empty one, see [`Child::start`].
    pub(crate) fn make(avoid: &[Region]) -> Result<Child> {
        let mut home = LOWEST;
        while let Some(region) = avoid.iter().find(|region| region.holds(home)) {
            home = region.end;
        }
        let filter = filter(home + CALL_BYTES);
        let program = libc::sock_fprog {
            len: filter.len() as u16,
            filter: filter.as_ptr().cast_mut(),
        };
        // SAFETY: the child makes plain system calls only, and never returns from `become_copy`.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(Error::last_os_error());
        }
        if pid == 0 {
            become_copy(home);
        }
        let child = Child {
            pid,
            home,
            gone: Cell::default(),
        };
        child.wait()?;
        let options = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACESYSGOOD;
        request(libc::PTRACE_SETOPTIONS, pid, 0, options as usize)?;
        child.forget_restartable_sequence()?;
        let install = [
            libc::SECCOMP_SET_MODE_FILTER as u64,
            0,
            &raw const program as u64,
        ];
        child.call(libc::SYS_seccomp, &install)?;
        child.call(libc::SYS_munmap, &[0, home])?;
        let above = home + PAGE;
        child.call(libc::SYS_munmap, &[above, TOP - above])?;
        Ok(child)
    }

    /// A further process with the content of this one, which belongs to the calling thread as well.
    ///
    /// # Errors
    /// When the system gives no process.
    pub(crate) fn another(&self) -> Result<Child> {
        let flags = libc::CLONE_PARENT | libc::CLONE_PTRACE | libc::SIGCHLD;
        let pid = self.call(libc::SYS_clone, &[flags as u64])?;
        let child = Child {
            pid: pid as i32,
            home: self.home,
            gone: Cell::default(),
        };
        child.wait()?;
        Ok(child)
    }

    /// glibc registers an area that the kernel writes whenever the thread is moved: without it the
    /// kernel kills the process.
    fn forget_restartable_sequence(&self) -> Result<()> {
        const GET_CONFIGURATION: libc::c_uint = 0x420f;
        const UNREGISTER: u64 = 1;
        /// `struct ptrace_rseq_configuration`.
        #[repr(C)]
        struct Configuration {
            pointer: u64,
            size: u32,
            signature: u32,
            flags: u32,
            pad: u32,
        }
        // SAFETY: plain data, filled by the kernel.
        let mut is: Configuration = unsafe { zeroed() };
        let size = size_of::<Configuration>();
        request(GET_CONFIGURATION, self.pid, size, &raw mut is as usize)?;
        if is.pointer != 0 {
            let arguments = [is.pointer, is.size.into(), UNREGISTER, is.signature.into()];
            self.call(libc::SYS_rseq, &arguments)?;
        }
        Ok(())
    }

    /// Does the page from which calls are made lie there?
    pub fn is_home_within(&self, start: u64, end: u64) -> bool {
        let page = self.home & !(PAGE - 1);
        start < page + PAGE && page < end
    }

    /// Makes a system call in the process, from our page; registers are as before afterwards.
    ///
    /// # Errors
    /// What the call answers, or ESRCH where the process is gone.
    pub fn call(&self, number: i64, arguments: &[u64]) -> Result<u64> {
        let before = self.registers()?;
        let argument = |n: usize| arguments.get(n).copied().unwrap_or(0);
        let mut registers = before;
        // The copy may run 32-bit code, by whose numbers and registers it would be another call.
        (registers.cs, registers.ss) = (LONG_MODE, STACK);
        registers.rip = self.home;
        registers.rax = number as u64;
        registers.orig_rax = u64::MAX;
        registers.rdi = argument(0);
        registers.rsi = argument(1);
        registers.rdx = argument(2);
        registers.r10 = argument(3);
        registers.r8 = argument(4);
        registers.r9 = argument(5);
        self.set_registers(&registers)?;
        let mut steps = 0;
        let after = loop {
            request(libc::PTRACE_SINGLESTEP, self.pid, 0, 0)?;
            steps += 1;
            if self.wait()? == Stop::Gone || steps > MOST_STEPS {
                return Err(Error::from_raw_os_error(libc::ESRCH));
            }
            let now = self.registers()?;
            // A step that begins in a skipped call ends before the first instruction.
            if now.rip != self.home {
                break now;
            }
        };
        let mut restored = before;
        restored.orig_rax = u64::MAX;
        self.set_registers(&restored)?;
        match after.rax as i64 {
            error @ -4095..=-1 => Err(Error::from_raw_os_error(-error as i32)),
            _ => Ok(after.rax),
        }
    }

    /// Waits for the next stop.
    ///
    /// # Errors
    /// When it is no child of this thread any more.
    pub fn wait(&self) -> Result<Stop> {
        let mut status = 0;
        loop {
            // SAFETY: status is ours.
            if unsafe { libc::waitpid(self.pid, &mut status, libc::__WALL) } == self.pid {
                break;
            }
            let error = Error::last_os_error();
            if error.raw_os_error() != Some(libc::EINTR) {
                self.gone.set(true);
                return Err(error);
            }
        }
        if !libc::WIFSTOPPED(status) {
            self.gone.set(true);
            return Ok(Stop::Gone);
        }
        const CALL_STOP: i32 = libc::SIGTRAP | 0x80;
        let number = libc::WSTOPSIG(status);
        if number == CALL_STOP {
            return Ok(match self.makes_long_call()? {
                true => Stop::Call,
                false => Stop::ShortCall,
            });
        }
        if number == libc::SIGALRM {
            return Ok(Stop::Alarm);
        }
        // SAFETY: plain data, filled by the kernel.
        let mut info: libc::siginfo_t = unsafe { zeroed() };
        request(libc::PTRACE_GETSIGINFO, self.pid, 0, &raw mut info as usize)?;
        const KERNEL: i32 = 0x80;
        /// SYS_SECCOMP of asm-generic/siginfo.h.
        const FILTERED: i32 = 1;
        if number == libc::SIGSYS && info.si_code == FILTERED {
            return Ok(Stop::OldCall);
        }
        if number == libc::SIGTRAP && info.si_code > 0 && info.si_code != KERNEL {
            return Ok(Stop::Trap);
        }
        // SAFETY: a fault's information has an address; for other signals it is not used.
        let address = unsafe { info.si_addr() } as u64;
        Ok(Stop::Signal {
            number,
            code: info.si_code,
            address,
        })
    }

    /// Is the call before which it stopped one of 64-bit programs? `int 0x80` makes others.
    fn makes_long_call(&self) -> Result<bool> {
        const GET_SYSCALL_INFO: libc::c_uint = 0x420e;
        // `struct ptrace_syscall_info` begins with what the stop is, and the architecture.
        let mut begins = [0u32; 2];
        let bytes = size_of_val(&begins);
        request(GET_SYSCALL_INFO, self.pid, bytes, &raw mut begins as usize)?;
        Ok(begins[1] == LONG)
    }

    /// Executes one instruction; a system call is skipped.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn step(&self) -> Result<Stop> {
        request(libc::PTRACE_SYSEMU_SINGLESTEP, self.pid, 0, 0)?;
        self.wait()
    }

    /// # Errors
    /// When the process is gone.
    pub fn registers(&self) -> Result<libc::user_regs_struct> {
        // SAFETY: plain data, filled by the kernel.
        let mut registers: libc::user_regs_struct = unsafe { zeroed() };
        let at = &raw mut registers as usize;
        request(libc::PTRACE_GETREGS, self.pid, 0, at)?;
        Ok(registers)
    }

    /// # Errors
    /// When the process is gone, or a register can't hold that.
    pub fn set_registers(&self, registers: &libc::user_regs_struct) -> Result<()> {
        let at = &raw const *registers as usize;
        request(libc::PTRACE_SETREGS, self.pid, 0, at).map(drop)
    }

    /// # Errors
    /// When the process is gone.
    pub fn extended(&self) -> Result<Vec<u8>> {
        extended(self.pid)
    }

    /// # Errors
    /// When the state is not of this processor.
    pub fn set_extended(&self, state: &[u8]) -> Result<()> {
        if state.is_empty() {
            return Ok(());
        }
        let mut vector = libc::iovec {
            iov_base: state.as_ptr().cast_mut().cast(),
            iov_len: state.len(),
        };
        let at = &raw mut vector as usize;
        request(libc::PTRACE_SETREGSET, self.pid, NT_X86_XSTATE, at).map(drop)
    }

    /// Puts a page with this content at the address.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn map(&self, page: u64, content: &[u8; PAGE as usize], protection: i32) -> Result<()> {
        let writable = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let arguments = [page, PAGE, writable as u64, flags as u64, u64::MAX, 0];
        self.call(libc::SYS_mmap, &arguments)?;
        if content.iter().any(|byte| *byte != 0) && self.write(page, content) != content.len() {
            return Err(Error::from_raw_os_error(libc::EFAULT));
        }
        if protection != writable {
            self.protect(page, protection)?;
        }
        Ok(())
    }

    /// # Errors
    /// When the system refuses.
    pub fn protect(&self, page: u64, protection: i32) -> Result<()> {
        let arguments = [page, PAGE, protection as u64];
        self.call(libc::SYS_mprotect, &arguments).map(drop)
    }

    /// # Errors
    /// When the system refuses.
    pub fn unmap(&self, page: u64) -> Result<()> {
        self.call(libc::SYS_munmap, &[page, PAGE]).map(drop)
    }

    /// Reads memory that is there; bytes read.
    pub fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let local = vector(buffer.as_mut_ptr() as usize, buffer.len());
        let remote = vector(address as usize, buffer.len());
        // SAFETY: the local vector is our buffer; the remote one is checked by the kernel.
        let read = unsafe { libc::process_vm_readv(self.pid, &local, 1, &remote, 1, 0) };
        usize::try_from(read).unwrap_or(0)
    }

    /// Writes memory that is there and writable; bytes written.
    pub fn write(&self, address: u64, bytes: &[u8]) -> usize {
        let local = vector(bytes.as_ptr() as usize, bytes.len());
        let remote = vector(address as usize, bytes.len());
        // SAFETY: the kernel only reads our bytes; the remote vector is checked by the kernel.
        let written = unsafe { libc::process_vm_writev(self.pid, &local, 1, &remote, 1, 0) };
        usize::try_from(written).unwrap_or(0)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.gone.get() {
            return;
        }
        signal_child(self.pid, libc::SIGKILL);
        let mut status = 0;
        // SAFETY: status is ours.
        unsafe {
            while libc::waitpid(self.pid, &mut status, libc::__WALL) == self.pid
                && libc::WIFSTOPPED(status)
            {}
        }
    }
}

/// The number of the register set in libc's headers, as ptrace takes it.
const NT_X86_XSTATE: usize = 0x202;

/// Vector and floating-point registers of a stopped tracee.
///
/// # Errors
/// When it is gone or runs.
pub fn extended(tid: i32) -> Result<Vec<u8>> {
    // AMX tiles take 8 KiB; the kernel tells what it used.
    let mut state = vec![0u8; 1 << 15];
    let mut vector = vector(state.as_mut_ptr() as usize, state.len());
    let at = &raw mut vector as usize;
    request(libc::PTRACE_GETREGSET, tid, NT_X86_XSTATE, at)?;
    state.truncate(vector.iov_len);
    Ok(state)
}

fn vector(base: usize, length: usize) -> libc::iovec {
    libc::iovec {
        iov_base: without_provenance_mut(base),
        iov_len: length,
    }
}

/// Allows 64-bit calls whose instruction pointer is `from`, and kills the process at any other. One
/// by the page at [`OLD_CALLS`] is skipped: SYSEMU does not see it.
fn filter(from: u64) -> [libc::sock_filter; 13] {
    use libc::{BPF_ABS, BPF_ALU, BPF_AND, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W};
    let instruction = |code: u32, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    };
    let load = |offset| instruction(BPF_LD | BPF_W | BPF_ABS, offset);
    let answer = |value| instruction(BPF_RET | BPF_K, value);
    let unless_equal_skip = |value, skip| libc::sock_filter {
        jf: skip,
        ..instruction(BPF_JMP | BPF_JEQ | BPF_K, value)
    };
    // Offsets in `struct seccomp_data`.
    const ARCHITECTURE: u32 = 4;
    const POINTER: u32 = 8;
    const WITHIN_PAGE: u32 = PAGE as u32 - 1;
    [
        load(ARCHITECTURE),
        unless_equal_skip(LONG, 10),
        load(POINTER + 4),
        unless_equal_skip((from >> 32) as u32, 3),
        load(POINTER),
        unless_equal_skip(from as u32, 1),
        answer(libc::SECCOMP_RET_ALLOW),
        unless_equal_skip((OLD_CALLS >> 32) as u32, 4),
        load(POINTER),
        instruction(BPF_ALU | BPF_AND | BPF_K, !WITHIN_PAGE),
        unless_equal_skip(OLD_CALLS as u32, 1),
        answer(libc::SECCOMP_RET_TRAP),
        answer(libc::SECCOMP_RET_KILL_PROCESS),
    ]
}

/// In the child: asynchronous signals wait, our page is there, and the tracer takes over.
fn become_copy(home: u64) -> ! {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: plain system calls, and a write to a page that was just mapped.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_NAME, REPLICA.as_ptr());
        // Somebody may wait for the end of a pipe that another thread of ours has just made.
        libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0);
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        let at = without_provenance_mut::<libc::c_void>(home as usize);
        let writable = libc::PROT_READ | libc::PROT_WRITE;
        if libc::mmap(at, PAGE as usize, writable, flags, -1, 0) != at {
            libc::_exit(1);
        }
        std::ptr::copy_nonoverlapping(
            CALL.as_ptr(),
            std::ptr::with_exposed_provenance_mut::<u8>(home as usize),
            CALL.len(),
        );
        libc::mprotect(at, PAGE as usize, libc::PROT_READ | libc::PROT_EXEC);
        let mut held: libc::sigset_t = zeroed();
        libc::sigfillset(&mut held);
        for fault in FAULTS {
            libc::sigdelset(&mut held, fault);
        }
        // Only `Child::ring` sends it.
        libc::sigdelset(&mut held, libc::SIGALRM);
        libc::sigprocmask(libc::SIG_SETMASK, &held, std::ptr::null_mut());
        // Refused if another tracer has the process (strace -f): its stop would then wake nobody.
        if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) == 0 {
            libc::kill(libc::getpid(), libc::SIGSTOP);
        }
        libc::_exit(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_calls_are_those_of_64_bit_programs_whatever_code_the_copy_runs() {
        const SHORT_MODE: u64 = 0x23;
        let child = Child::start(&[]).expect("a process");
        let mut registers = child.registers().expect("it is stopped");
        registers.cs = SHORT_MODE;
        child.set_registers(&registers).expect("it is stopped");
        let content = [7; PAGE as usize];
        let writable = libc::PROT_READ | libc::PROT_WRITE;
        child.map(0x40_0000, &content, writable).expect("a page");
        let mut found = [0; PAGE as usize];
        assert_eq!(child.read(0x40_0000, &mut found), found.len());
        assert_eq!(found, content);
        assert_eq!(child.registers().expect("it is stopped").cs, SHORT_MODE);
    }

    /// Starts a process of this number that is no child of ours. `None`: only some users may.
    fn stranger(number: i32) -> Option<std::os::fd::OwnedFd> {
        // SAFETY: numbers, and structures of ours; the children leave by `_exit`.
        unsafe {
            let mut arguments: libc::clone_args = zeroed();
            arguments.exit_signal = libc::SIGCHLD as u64;
            arguments.set_tid = &raw const number as u64;
            arguments.set_tid_size = 1;
            let between = libc::fork();
            if between == 0 {
                let size = size_of::<libc::clone_args>();
                let started = libc::syscall(libc::SYS_clone3, &arguments, size);
                if started == 0 {
                    libc::sleep(60);
                }
                libc::_exit(i32::from(started < 0));
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(between, &mut status, 0), between);
            (status == 0).then(|| flagfinder_linux::pidfd::open(number as u32).expect("it lives"))
        }
    }

    #[test]
    fn a_process_that_has_its_number_by_now_is_left_alone() {
        let child = Child::start(&[]).expect("a process");
        child.call(libc::SYS_exit_group, &[0]).expect_err("its end");
        let Some(stranger) = stranger(child.pid) else {
            return;
        };
        drop(child);
        std::thread::sleep(std::time::Duration::from_millis(50));
        let was_ended = flagfinder_linux::pidfd::has_ended(&stranger);
        let _ = flagfinder_linux::pidfd::send(&stranger, libc::SIGKILL);
        assert!(!was_ended);
    }
}
