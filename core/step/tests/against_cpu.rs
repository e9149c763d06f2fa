// SPDX-License-Identifier: MIT
//! The evaluator against the CPU: real programs are single-stepped, and every register
//! and flag the evaluator claims to know is compared after every instruction.

use std::io::Error;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use flagfinder_machine::decoded::{is_syscall, Decoded};
use flagfinder_machine::evaluator::{Evaluator, Recorded};
use flagfinder_machine::value::{Value, DF, STATUS};
use iced_x86::{Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, Mnemonic};
use rustc_hash::FxHashMap;

const STEPS: u32 = 60_000;
const STEPS_OF_SOAK: u32 = 150_000;
/// `make check` compares, and skips, so many times less.
const LESS_IN_CHECK: u32 = 5;
const PATIENCE: Duration = Duration::from_secs(90);

fn ptrace(request: libc::c_uint, pid: i32, data: usize) -> bool {
    // SAFETY: data is a number or a live buffer.
    unsafe { libc::ptrace(request, pid, 0usize, data) != -1 }
}

fn registers(pid: i32) -> libc::user_regs_struct {
    // SAFETY: plain data.
    let mut r: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    assert!(ptrace(libc::PTRACE_GETREGS, pid, &raw mut r as usize));
    r
}

fn general(r: &libc::user_regs_struct) -> [u64; 16] {
    [
        r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11, r.r12,
        r.r13, r.r14, r.r15,
    ]
}

fn read(pid: i32, address: u64, buffer: &mut [u8]) -> bool {
    let local = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: buffer.len(),
    };
    // SAFETY: our buffer; the remote side is checked by the kernel.
    let got = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
    got == buffer.len() as isize
}

fn wait(pid: i32) -> bool {
    let mut status = 0;
    // SAFETY: status is ours.
    let got = unsafe { libc::waitpid(pid, &mut status, libc::__WALL) };
    got == pid && libc::WIFSTOPPED(status)
}

/// One instruction; false where the program has ended.
fn step(pid: i32) -> bool {
    assert!(ptrace(libc::PTRACE_SINGLESTEP, pid, 0));
    wait(pid)
}

/// Keeps this thread, and what it starts, on the CPU where it is: a step that wakes another CPU
/// takes ten times as long.
fn stay_on_this_cpu() {
    // SAFETY: the set is plain data, of the size that is told.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

/// Compares; returns (instructions, registers that were unknown and had to be taken over).
fn compare(command: &mut Command, skip: u32, steps: u32) -> (u32, u32) {
    stay_on_this_cpu();
    command.stdin(Stdio::null()).stdout(Stdio::null());
    // SAFETY: only ptrace is called between fork and exec.
    unsafe {
        command.pre_exec(|| {
            if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) == -1 {
                return Err(Error::last_os_error());
            }
            Ok(())
        });
    }
    let mut child = command.spawn().expect("the program starts");
    let pid = child.id() as i32;
    assert!(wait(pid), "stopped at exec");
    let begin = Instant::now();
    let mut factory = InstructionInfoFactory::new();
    let mut cache: FxHashMap<(u64, [u8; 15]), Decoded> = FxHashMap::default();
    let mut evaluator = Evaluator::default();
    let (mut done, mut adopted) = (0, 0);
    for _ in 0..skip {
        assert!(step(pid), "it ends too early");
    }
    let mut before = registers(pid);
    take_over(&mut evaluator, &before);
    while done < steps && begin.elapsed() < PATIENCE {
        let mut bytes = [0; 15];
        read(pid, before.rip, &mut bytes);
        let code = cache.entry((before.rip, bytes)).or_insert_with(|| {
            let mut decoder = Decoder::with_ip(64, &bytes, before.rip, DecoderOptions::NONE);
            Decoded::new(&decoder.decode(), &mut factory)
        });
        let mut recorded = Recorded::default();
        // What a tracer records: loads, but not of pops and returns.
        let own = matches!(
            code.mnemonic,
            Mnemonic::Ret | Mnemonic::Pop | Mnemonic::Leave | Mnemonic::Popfq
        );
        let loads = code.memory.iter().filter(|m| m.read);
        for (slot, memory) in recorded.loads.iter_mut().zip(loads) {
            let mut machine = evaluator.machine.clone();
            machine.registers = general(&before).map(Value::of);
            machine.fs_base = Some(before.fs_base);
            let mut buffer = [0; 8];
            let wanted = usize::from(memory.bytes);
            let address = memory.address(&machine).filter(|_| !own && wanted <= 8);
            if address.is_some_and(|at| read(pid, at, &mut buffer[..wanted])) {
                *slot = Some(u64::from_le_bytes(buffer));
            }
        }
        if !step(pid) {
            break;
        }
        let after = registers(pid);
        let skipped = code.repeated && code.instruction.is_string_instruction();
        if skipped || is_syscall(&code.instruction) {
            // A repeated string instruction stops at each of its rounds.
            take_over(&mut evaluator, &after);
            evaluator.machine.shadow.clear();
        } else {
            evaluator.machine.fs_base = Some(before.fs_base);
            evaluator.step(code, &recorded);
            adopted += check(&mut evaluator, code, &before, &after);
            done += 1;
        }
        before = after;
    }
    let _ = child.kill();
    let _ = child.wait();
    (done, adopted)
}

fn take_over(evaluator: &mut Evaluator, r: &libc::user_regs_struct) {
    evaluator.machine.registers = general(r).map(Value::of);
    evaluator.machine.set_flags(STATUS | DF, r.eflags);
}

fn check(
    evaluator: &mut Evaluator,
    code: &Decoded,
    before: &libc::user_regs_struct,
    after: &libc::user_regs_struct,
) -> u32 {
    let at = || {
        format!(
            "{:?} at {:#x}\nbefore {:x?}",
            code.instruction.code(),
            code.pc(),
            general(before)
        )
    };
    let mut adopted = 0;
    for (number, real) in general(after).into_iter().enumerate() {
        let value = &mut evaluator.machine.registers[number];
        assert_eq!(
            value.bits,
            real & value.known,
            "register {number}, {}",
            at()
        );
        if value.known != u64::MAX {
            adopted += 1;
            *value = Value::of(real);
        }
    }
    let flags = evaluator.machine.flags;
    let known = flags.known & (STATUS | DF);
    assert_eq!(flags.bits & known, after.eflags & known, "flags, {}", at());
    evaluator.machine.set_flags(STATUS | DF, after.eflags);
    if let Some(taken) = evaluator.taken() {
        let went = after.rip != code.instruction.next_ip();
        let same = code.instruction.near_branch_target() == code.instruction.next_ip();
        assert!(same || taken == went, "branch, {}", at());
    }
    let indirect = matches!(
        code.instruction.flow_control(),
        FlowControl::Return | FlowControl::IndirectBranch | FlowControl::IndirectCall
    );
    if let Some(target) = evaluator.target().filter(|_| indirect) {
        assert_eq!(target, after.rip, "target, {}", at());
    }
    adopted
}

/// How many instructions are compared, and how many of `skip` are skipped (tests/sizes.py).
fn sizes(skip: u32) -> (u32, u32) {
    let is_set = |name| std::env::var_os(name).is_some();
    match (is_set("FF_SOAK"), is_set("FF_CHECK")) {
        (true, _) => (STEPS_OF_SOAK, skip),
        (_, true) => (STEPS / LESS_IN_CHECK, skip / LESS_IN_CHECK),
        _ => (STEPS, skip),
    }
}

fn agree(program: &str, arguments: &[&str], skip: u32) {
    let (steps, skip) = sizes(skip);
    let (done, adopted) = compare(Command::new(program).args(arguments), skip, steps);
    assert!(done > steps / 6 * 5, "{program}: only {done} instructions");
    // Vector to general moves and the like are all that may be unknown.
    assert!(
        adopted < done / 20,
        "{program}: {adopted} of {done} results unknown"
    );
}

#[test]
fn gzip() {
    agree("gzip", &["-9c", "/bin/bash"], 100_000);
}

#[test]
fn xz() {
    agree("xz", &["-1c", "/bin/bash"], 150_000);
}

#[test]
fn python() {
    let script =
        "import zlib,hashlib\nfor i in range(10**6): hash(str(i*i%7919)+'x'); i<<3>>1; i//3%5";
    let system = "/usr/bin/python3";
    let python = if std::path::Path::new(system).exists() {
        system
    } else {
        "python3"
    };
    agree(python, &["-S", "-c", script], 200_000);
}

#[test]
fn sqlite() {
    let query = "with recursive c(x) as (select 1 union all select x+1 from c where x<100000) \
                 select sum(x*x%7), count(*) from c;";
    agree("sqlite3", &[":memory:", query], 600_000);
}

#[test]
fn checksums() {
    agree("sha256sum", &["/bin/bash"], 100_000);
}
