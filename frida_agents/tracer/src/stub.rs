// SPDX-License-Identifier: MIT
//! How compiled code calls us. Everything the program can see is saved, vector registers included,
//! whatever they are.

use std::arch::global_asm;

/// The program's registers at a call, in x86's order; changes are put back. rsp is not.
#[repr(C)]
pub struct Context {
    pub regs: [u64; 16],
    pub flags: u64,
}

pub const RAX: usize = 0;
pub const RCX: usize = 1;
pub const RSP: usize = 4;

/// Handlers get the registers and the word that was pushed for them.
pub type Handler = extern "C" fn(&mut Context, u64);

extern "C" {
    /// Called with `rax, data, handler` pushed, below the red zone; see `emit::call`.
    pub fn ff_stub();
}

// The save area: x87, SSE, AVX, AVX-512 (mask 0xe7) take 2688 bytes.
global_asm!(
    ".globl ff_stub",
    ".hidden ff_stub",
    "ff_stub:",
    "pushfq",
    "cld",
    "push r15",
    "push r14",
    "push r13",
    "push r12",
    "push r11",
    "push r10",
    "push r9",
    "push r8",
    "push rdi",
    "push rsi",
    "push rbp",
    "push rsp",
    "push rbx",
    "push rdx",
    "push rcx",
    "push rax",
    "mov rax, [rsp + 160]",
    "mov [rsp], rax",
    "lea rax, [rsp + 296]",
    "mov [rsp + 32], rax",
    "mov rbx, rsp",
    "sub rsp, 2752",
    "and rsp, -64",
    "xor eax, eax",
    "mov [rsp + 512], rax",
    "mov [rsp + 520], rax",
    "mov [rsp + 528], rax",
    "mov [rsp + 536], rax",
    "mov [rsp + 544], rax",
    "mov [rsp + 552], rax",
    "mov [rsp + 560], rax",
    "mov [rsp + 568], rax",
    "mov eax, 0xe7",
    "xor edx, edx",
    "xsave64 [rsp]",
    "mov rdi, rbx",
    "mov rsi, [rbx + 152]",
    "call [rbx + 144]",
    "mov eax, 0xe7",
    "xor edx, edx",
    "xrstor64 [rsp]",
    "mov rsp, rbx",
    "mov rax, [rsp]",
    "mov [rsp + 160], rax",
    "pop rax",
    "pop rcx",
    "pop rdx",
    "pop rbx",
    "lea rsp, [rsp + 8]",
    "pop rbp",
    "pop rsi",
    "pop rdi",
    "pop r8",
    "pop r9",
    "pop r10",
    "pop r11",
    "pop r12",
    "pop r13",
    "pop r14",
    "pop r15",
    "popfq",
    "ret",
);
