// SPDX-License-Identifier: MIT
//! The lines of /proc that say what a thread is doing.

use std::fs;

/// The system call a thread is in, as /proc/PID/task/TID/syscall tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub number: u32,
    pub args: [u64; 6],
    pub sp: u64,
    pub pc: u64,
}

/// One look at a thread.
#[derive(Clone, Debug, Default)]
pub struct Look {
    pub name: String,
    /// As ps shows it: R, S, D, T, t, Z, ..
    pub state: char,
    /// ns on a processor, and ns waiting for one, since its start.
    pub ran: u64,
    pub queued: u64,
    /// Times that it gave the processor away to wait.
    pub switches: u64,
    /// Process id of the tracer; 0: none.
    pub tracer: u32,
    pub call: Option<Call>,
    /// Its call could be asked for.
    pub may_read: bool,
    /// Function of the kernel it sleeps in; empty when it runs or that is not told.
    pub sleeps_in: String,
}

fn read(pid: u32, tid: u32, file: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/task/{tid}/{file}")).ok()
}

/// Thread ids, the first thread first.
pub fn threads(pid: u32) -> std::io::Result<Vec<u32>> {
    let mut tids: Vec<u32> = fs::read_dir(format!("/proc/{pid}/task"))?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    tids.sort_unstable();
    Ok(tids)
}

/// The process of a thread; `None`: the thread is gone.
pub fn process_of(tid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}

/// ns on a processor, and ns waiting for one, since the thread's start. `None`: it is gone, or the
/// kernel does not count them.
pub fn times(pid: u32, tid: u32) -> Option<(u64, u64)> {
    let text = read(pid, tid, "schedstat")?;
    let mut times = text.split_whitespace().map_while(|time| time.parse().ok());
    Some((times.next()?, times.next()?))
}

/// `None`: the thread is gone.
pub fn look(pid: u32, tid: u32) -> Option<Look> {
    let status = read(pid, tid, "status")?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim())
    };
    let number = |name: &str| field(name).and_then(|text| text.parse().ok()).unwrap_or(0);
    let (ran, queued) = times(pid, tid).unwrap_or_default();
    let sleeps_in = read(pid, tid, "wchan").unwrap_or_default();
    let line = read(pid, tid, "syscall");
    let call = line.as_deref().and_then(parse_call);
    Some(Look {
        name: read(pid, tid, "comm")?.trim_end().to_owned(),
        state: field("State:")
            .and_then(|s| s.chars().next())
            .unwrap_or('?'),
        ran,
        queued,
        switches: number("voluntary_ctxt_switches:"),
        tracer: number("TracerPid:") as u32,
        may_read: line.is_some(),
        call: call.map(|call| begun(call, &sleeps_in)),
        sleeps_in: sleeps_in.trim_matches(['0', '\n']).to_owned(),
    })
}

/// What was stopped in a call with a timeout goes on in restart_syscall, with the registers of the
/// call that it began. A sleep names its clock and no absolute time first, a poll of nothing has a
/// number where the sleep has a pointer; of the others the kernel's function may tell.
fn begun(call: Call, sleeps_in: &str) -> Call {
    const CLOCKS: u64 = 16;
    const POINTERS: u64 = 1 << 32;
    if i64::from(call.number) != libc::SYS_restart_syscall {
        return call;
    }
    let number = match call.args {
        [clock, 0, at, ..] if clock < CLOCKS && at >= POINTERS => libc::SYS_clock_nanosleep,
        [0, 0, ..] => libc::SYS_poll,
        _ if sleeps_in.contains("nanosleep") => libc::SYS_nanosleep,
        _ if sleeps_in.contains("futex") => libc::SYS_futex,
        _ if sleeps_in.contains("poll") => libc::SYS_poll,
        _ => libc::SYS_restart_syscall,
    };
    Call {
        number: number as u32,
        ..call
    }
}

fn parse_call(line: &str) -> Option<Call> {
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
    fn a_call_that_goes_on_after_a_stop_is_the_one_that_was_begun() {
        let call = |first: &str, third: &str, sleeps_in: &str| {
            let line = format!("219 {first} 0x0 {third} 0x0 0x0 0x0 0x7ff0 0x7f29");
            i64::from(begun(parse_call(&line).unwrap(), sleeps_in).number)
        };
        let pointer = "0x7ffe37330880";
        assert_eq!(
            call("0x1", pointer, "do_syscall_64"),
            libc::SYS_clock_nanosleep
        );
        assert_eq!(call("0x0", "0x186a0", "do_syscall_64"), libc::SYS_poll);
        let other = |sleeps_in| call(pointer, "0x0", sleeps_in);
        assert_eq!(other("hrtimer_nanosleep"), libc::SYS_nanosleep);
        assert_eq!(other("futex_do_wait"), libc::SYS_futex);
        assert_eq!(other("poll_schedule_timeout"), libc::SYS_poll);
        assert_eq!(other("do_syscall_64"), libc::SYS_restart_syscall);
        let other = parse_call("0 0x0 0x7f10 0x1 0x0 0x0 0x0 0x7ff0 0x7f29").unwrap();
        assert_eq!(begun(other, "pipe_read"), other);
    }

    #[test]
    fn a_thread_that_runs_is_in_no_call() {
        assert_eq!(parse_call("running\n"), None);
        assert_eq!(parse_call("-1 0x7ffc 0x7f29\n"), None);
    }
}
