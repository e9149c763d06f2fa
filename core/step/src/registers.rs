// SPDX-License-Identifier: MIT
//! The kernel's register structure in x86 numbering.

use flagfinder_machine::value::{Machine, Value, DF, STATUS};

/// The flag by which a program steps itself. The kernel shows no tracer the one that it set itself.
pub(crate) const TRAP_FLAG: u64 = 1 << 8;

/// rax rcx rdx rbx rsp rbp rsi rdi r8..r15.
pub fn general(r: &libc::user_regs_struct) -> [u64; 16] {
    [
        r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11, r.r12,
        r.r13, r.r14, r.r15,
    ]
}

/// The reverse of [`load`], but for flags that the machine does not know.
pub fn store(machine: &Machine, r: &mut libc::user_regs_struct) {
    let now = machine.registers.map(|value| value.bits);
    [
        r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11, r.r12,
        r.r13, r.r14, r.r15,
    ] = now;
    let known = machine.flags.known & (STATUS | DF);
    r.eflags = r.eflags & !known | machine.flags.bits & known;
}

/// Makes the machine agree with the CPU; its shadow stays.
pub fn load(machine: &mut Machine, r: &libc::user_regs_struct) {
    machine.registers = general(r).map(Value::of);
    machine.flags = Value {
        bits: r.eflags & (STATUS | DF),
        known: STATUS | DF,
    };
    machine.fs_base = Some(r.fs_base);
    machine.gs_base = Some(r.gs_base);
}
