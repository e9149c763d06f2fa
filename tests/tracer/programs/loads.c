/* SPDX-License-Identifier: MIT */
/* Loads of every kind, with values that the test knows. `probe` runs once.
 * Built static and without libc, so that little else is in the trace. */
#include <stdint.h>

struct {
    uint64_t q[16];
} ff_data = {{0x1111111111111111, 0x2222222222222285, 0x3333333333333333, 0x4444444444444444,
              0x5555555555555555, 0x6666666666666666, 0x7777777777777777, 0x8888888888888888,
              0x9999999999999999}};

__asm__(".globl _start, probe, crowded, strings\n"
        "_start:\n"
        "    lea ff_data+128(%rip), %rsi\n" /* fs base: fs:-64 is q[8] */
        "    mov $0x1002, %edi\n"           /* ARCH_SET_FS */
        "    mov $158, %eax\n"
        "    syscall\n"
        "    lea ff_data(%rip), %rbx\n"
        "    call probe\n"
        "    call crowded\n"
        "    call strings\n"
        "    mov $231, %eax\n"
        "    mov $7, %edi\n"
        "    syscall\n"

        "probe:\n"
        "    mov (%rbx), %rax\n"                 /* q0 */
        "    movzbl 8(%rbx), %esi\n"             /* 0x85 */
        "    movsbq 8(%rbx), %rdi\n"             /* 0x85, not its extension */
        "    cmpl $1, 16(%rbx)\n"                /* 0x33333333 */
        "    add 24(%rbx), %rdx\n"               /* q3 */
        "    mov $5, %ecx\n"
        "    xchg %rcx, 32(%rbx)\n"              /* q4 */
        "    lock xadd %rcx, 40(%rbx)\n"         /* q5 */
        "    mov $6, %eax\n"
        "    lock cmpxchg %rcx, 48(%rbx)\n"      /* q6 */
        "    movb 56(%rbx), %ah\n"               /* 0x88 */
        "    cmpb $3, ff_data+64(%rip)\n"        /* 0x99 */
        "    push 64(%rbx)\n"                    /* q8 */
        "    pop %r8\n"                          /* q8 */
        "    cmp %r8, %fs:-64\n"                 /* q8 */
        "    movq (%rbx), %xmm3\n"               /* q0 */
        "    movq %xmm3, %r9\n"                  /* register r9 = q0 */
        "    incw 8(%rbx)\n"                     /* 0x2285 */
        "    ret\n"

        /* Uses every general register: none is left for the tracer. */
        "crowded:\n"
        "    push %rbp\n"
        "    mov %rbx, %rbp\n"
        "    mov (%rbp), %rax\n"                 /* q0 */
        "    mov 16(%rbp), %rcx\n"               /* q2 */
        "    xor %edx, %edx\n"
        "    xor %esi, %esi\n"
        "    xor %edi, %edi\n"
        "    xor %r8d, %r8d\n"
        "    xor %r9d, %r9d\n"
        "    mov $1, %r10d\n"
        "    lea (%rbp,%r10,8), %r11\n"
        "    cmp 16(%r11), %rcx\n"               /* q3 */
        "    mov %rbp, %r12\n"
        "    mov $2, %r13d\n"
        "    mov %r13, %r14\n"
        "    cmp (%r12,%r14,8), %rcx\n"          /* q2 */
        "    mov $9, %r15d\n"
        "    add 24(%rbx), %r15\n"               /* q3 */
        "    pop %rbp\n"
        "    ret\n"

        "strings:\n"
        "    mov %rbx, %rsi\n"
        "    lea 128(%rbx), %rdi\n"
        "    mov $4, %ecx\n"
        "    rep movsb\n"                        /* registers after: rcx rsi rdi */
        "    lodsl\n"                            /* the rest of q0 */
        "    ret\n"

        ".bss\n .space 256\n .text\n");
