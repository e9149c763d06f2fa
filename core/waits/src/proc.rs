// SPDX-License-Identifier: MIT
//! The lines of /proc that say what a thread is doing.

use flagfinder_code::{AddressSpace, ProcessMemory};
use flagfinder_linux::proc::Status;

/// The system call a thread is in, as /proc/PID/task/TID/syscall tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// As x86-64 Linux counts them.
    pub number: u32,
    /// All six argument registers, used or not.
    pub args: [u64; 6],
    /// The stack pointer, at the `syscall` instruction.
    pub sp: u64,
    /// Run-time address behind the `syscall` instruction.
    pub pc: u64,
}

/// One look at a thread.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// As the kernel has it (`comm`), at most 15 bytes.
    pub name: String,
    /// As ps shows it: R, S, D, T, t, Z, ..
    pub state: char,
    /// ns on a processor, and ns waiting for one, since its start.
    pub ran: u64,
    /// See [`Look::ran`].
    pub queued: u64,
    /// Times that it gave the processor away to wait.
    pub switches: u64,
    /// Process id of the tracer; 0: none.
    pub tracer: u32,
    /// `None`: it is in none, or may not be asked.
    pub call: Option<Call>,
    /// Its call could be asked for.
    pub may_read: bool,
    /// Function of the kernel it sleeps in; empty when it runs or that is not told.
    pub sleeps_in: String,
}

fn read(pid: u32, tid: u32, file: &str) -> Option<String> {
    flagfinder_linux::proc::text(format!("/proc/{pid}/task/{tid}/{file}")).ok()
}

/// ns on a processor, and ns waiting for one, since the thread's start. `None`: it is gone, or the
/// kernel does not count them.
pub fn times(pid: u32, tid: u32) -> Option<(u64, u64)> {
    let text = read(pid, tid, "schedstat")?;
    let mut times = text.split_whitespace().map_while(|time| time.parse().ok());
    Some((times.next()?, times.next()?))
}

/// How many calls of the families `read` and `write` a thread made so far, those that failed
/// included. The kernel counts no `recv` and no `send`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfers {
    /// Of `read` and its family.
    pub reads: u64,
    /// Of `write` and its family.
    pub writes: u64,
}

/// `None`: the thread is gone, or we may not know.
pub fn transfers(pid: u32, tid: u32) -> Option<Transfers> {
    let text = read(pid, tid, "io")?;
    let count = |name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    Some(Transfers {
        reads: count("syscr:")?,
        writes: count("syscw:")?,
    })
}

/// `None`: the thread is gone.
pub fn look(pid: u32, tid: u32) -> Option<Look> {
    let status = Status::of_thread(pid, tid).ok()?;
    let (ran, queued) = times(pid, tid).unwrap_or_default();
    let sleeps_in = read(pid, tid, "wchan").unwrap_or_default();
    let line = read(pid, tid, "syscall");
    let call = line.as_deref().and_then(parse_call);
    let memory = |at, buffer: &mut [u8]| {
        let memory = ProcessMemory::open(pid);
        memory.is_ok_and(|memory| memory.read(at, buffer) == buffer.len())
    };
    Some(Look {
        name: status.name()?,
        state: status
            .text("State:")
            .and_then(|s| s.chars().next())
            .unwrap_or('?'),
        ran,
        queued,
        switches: status
            .text("voluntary_ctxt_switches:")
            .and_then(|count| count.parse().ok())
            .unwrap_or(0),
        tracer: status.number("TracerPid:").unwrap_or(0),
        may_read: line.is_some(),
        call: call.map(|call| resumed(call, &sleeps_in, &memory)),
        sleeps_in: sleeps_in.trim_matches(['0', '\n']).to_owned(),
    })
}

/// The call in a thread's file `syscall`; `None`: it runs, or sleeps in none.
pub fn parse_call(line: &str) -> Option<Call> {
    let mut fields = line.split_whitespace();
    let number: i64 = fields.next()?.parse().ok()?;
    let mut rest = fields.map(|f| u64::from_str_radix(f.trim_start_matches("0x"), 16).unwrap_or(0));
    let mut args = [0; 6];
    if number >= 0 {
        args = [(); 6].map(|()| rest.next().unwrap_or(0));
    }
    let (sp, pc) = (rest.next()?, rest.next()?);
    Some(Call {
        number: u32::try_from(number).ok()?,
        args,
        sp,
        pc,
    })
}

/// A timed call that a stop interrupted goes on as `restart_syscall`, with the registers that it
/// had. The code in front of it still says which it was: `mov eax, number; syscall`. Of a call
/// through the C library's `syscall()`, as Rust's waits are, it does not: the function of the
/// kernel in which the thread sleeps does, or the registers of a wait for a word.
fn resumed(call: Call, sleeps_in: &str, read: &dyn Fn(u64, &mut [u8]) -> bool) -> Call {
    if i64::from(call.number) != libc::SYS_restart_syscall {
        return call;
    }
    let mut code = [0; 7];
    let at = call.pc.wrapping_sub(code.len() as u64);
    let number = match (read(at, &mut code), code) {
        (true, [0xb8, a, b, c, d, 0x0f, 0x05]) => u32::from_le_bytes([a, b, c, d]),
        _ if sleeps_in.contains("futex") || waits_for_a_word(&call) => libc::SYS_futex as u32,
        _ => call.number,
    };
    Call { number, ..call }
}

/// Are these the registers of a FUTEX_WAIT_BITSET for all bits, with a time limit?
fn waits_for_a_word(call: &Call) -> bool {
    const FLAGS: u64 = (libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) as u64;
    let [word, operation, _, limit, _, bits] = call.args;
    let any = u64::from(u32::MAX);
    operation & !FLAGS == libc::FUTEX_WAIT_BITSET as u64
        && word != 0
        && word % 4 == 0
        && limit != 0
        && bits & any == any
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_its_arguments_and_where_the_program_is() {
        let call = parse_call("202 0x7f10 0x80 0x0 0x0 0x0 0xffffffff 0x7ffc 0x7f29\n").unwrap();
        assert_eq!(call.number, 202);
        assert_eq!(call.args, [0x7f10, 0x80, 0, 0, 0, 0xffff_ffff]);
        assert_eq!((call.sp, call.pc), (0x7ffc, 0x7f29));
    }

    #[test]
    fn a_call_that_goes_on_after_a_stop_is_the_one_it_was() {
        let call = parse_call("219 0x0 0x0 0x7ffc 0x7ffc 0x0 0x0 0x7ffc 0x1007\n").unwrap();
        let number = |code: &[u8]| {
            let read = |at: u64, buffer: &mut [u8]| {
                assert_eq!(at, 0x1000);
                buffer.copy_from_slice(code);
                true
            };
            resumed(call, "hrtimer_nanosleep", &read).number
        };
        let sleeps = [0xb8, 0xe6, 0, 0, 0, 0x0f, 0x05];
        assert_eq!(i64::from(number(&sleeps)), libc::SYS_clock_nanosleep);
        // mov rax, rdi: any call
        assert_eq!(number(&[0, 0, 0x48, 0x89, 0xf8, 0x0f, 0x05]), 219);
        assert_eq!(resumed(call, "", &|_, _| false).number, 219);
    }

    #[test]
    fn a_wait_through_the_library_s_syscall_is_known_by_the_kernel_or_its_registers() {
        let number = |operation: u64, bits: u64, sleeps_in: &str| {
            let call = Call {
                number: 219,
                args: [0x7f10, operation, 0, 0x7ffc, 0, bits],
                sp: 0,
                pc: 0,
            };
            i64::from(resumed(call, sleeps_in, &|_, _| false).number)
        };
        let rust = libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG;
        let all = u64::from(u32::MAX);
        assert_eq!(number(rust as u64, all, ""), libc::SYS_futex);
        assert_eq!(number(rust as u64, 0, ""), libc::SYS_restart_syscall);
        assert_eq!(number(128, 0, ""), libc::SYS_restart_syscall);
        assert_eq!(number(128, 0, "futex_do_wait"), libc::SYS_futex);
    }

    #[test]
    fn a_thread_that_runs_is_in_no_call() {
        assert_eq!(parse_call("running\n"), None);
        assert_eq!(parse_call("-1 0x7ffc 0x7f29\n"), None);
    }
}
