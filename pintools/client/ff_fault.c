/* SPDX-License-Identifier: MIT */
/* Full buffers. The store that meets the guard behind a chunk raises SIGSEGV; its handler puts
 * the address in the next chunk into the store's base register, and the store is done again.
 *
 * This handler stands before DynamoRIO's, which would look the fragment up, instrument it again to
 * translate the state, and read /proc/self/maps: ten times as long. It needs none of that: the
 * store stands at the block's top, where all registers but its own are the application's, and its
 * immediate says where that one's value was put. What is not ours goes on to DynamoRIO.
 *
 * It runs on DynamoRIO's signal stack with the application's thread pointer: nothing here or
 * below may use thread-local storage or take a lock. */
#include <asm/prctl.h>
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <ucontext.h>

#include "ff_client.h"
#include "ff_sys.h"

/* Tags: 2 bits say how many units the block's id took, the rest where a register's value is. */
enum { TAG_UNITS = 3, TAG_SPILL_SHIFT = 2, SPILLS_MOST = 31 };

/* As the kernel has it. */
struct kernel_sigaction {
    void (*handler)(int, siginfo_t *, void *);
    uint64_t flags;
    void (*restorer)(void);
    uint64_t mask;
};

/* Offsets in the TLS segment at which registers were put; a tag holds index + 1. */
static uint32_t spills[SPILLS_MOST];
static uint32_t spill_count;
static bool installed;

/* Where DynamoRIO's handler of SIGSEGV and SIGBUS begins; read by the assembly below. */
__attribute__((used, visibility("hidden"))) void *ff_fault_next;

uint8_t ff_fault_tag(uint32_t unit_bytes, int spill)
{
    uint32_t tag = unit_bytes / 2, i = 0;
    if (spill < 0)
        return (uint8_t)tag;
    ff_lock();
    while (i < spill_count && spills[i] != (uint32_t)spill)
        i++;
    if (i == spill_count && i < SPILLS_MOST)
        spills[spill_count++] = (uint32_t)spill;
    ff_unlock();
    return (uint8_t)(i == SPILLS_MOST ? tag : tag | (i + 1) << TAG_SPILL_SHIFT);
}

static uint64_t read_segment(uint32_t offset)
{
    uint64_t value;
    __asm__ volatile("movq %%gs:(%1), %0" : "=r"(value) : "r"((uint64_t)offset));
    return value;
}

/* Our stores: mov [base + displacement], immediate. */
struct store {
    int base; /* x86 number */
    bool is_values;
    uint8_t tag;
    const uint8_t *immediate;
    uint32_t bytes; /* of the instruction */
};

static bool decode_store(const uint8_t *start, struct store *store)
{
    const uint8_t *pc = start;
    enum {
        REX_MASK = 0xf0,
        REX = 0x40,
        REX_B = 1,
        MOV_8 = 0xc6,
        MOV_32 = 0xc7,
        NEEDS_SIB = 4,
        RIP_RELATIVE = 5
    };
    uint8_t rex = 0;
    if ((*pc & REX_MASK) == REX)
        rex = *pc++;
    uint8_t opcode = *pc++, modrm = *pc++, mode = modrm >> 6;
    if ((opcode != MOV_8 && opcode != MOV_32) || (modrm >> 3 & 7) != 0 || mode == 3 ||
        (mode == 0 && (modrm & 7) == RIP_RELATIVE))
        return false;
    store->base = (modrm & 7) | (rex & REX_B) << 3;
    store->is_values = opcode == MOV_8;
    pc += (modrm & 7) == NEEDS_SIB;
    pc += mode == 1 ? 1 : mode == 2 ? 4 : 0;
    store->tag = *pc;
    store->immediate = pc;
    store->bytes = (uint32_t)(pc - start) + (store->is_values ? 1 : 4);
    return true;
}

static const int context_index[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                      REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                      REG_R12, REG_R13, REG_R14, REG_R15};

/* The application's registers at the block's entry. A register that the block overwrites before
 * it reads it may not have been kept. */
static uint32_t registers_at_top(uint64_t *regs, const greg_t *context, const struct store *store)
{
    uint32_t valid = 0xffff | 1u << 17, spill = store->tag >> TAG_SPILL_SHIFT;
    for (int i = 0; i < 16; i++)
        regs[i] = (uint64_t)context[context_index[i]];
    regs[16] = 0;
    regs[17] = (uint64_t)context[REG_EFL];
    if (spill != 0)
        regs[store->base] = read_segment(spills[spill - 1]);
    else
        valid &= ~(1u << store->base);
    return valid;
}

/* A program that has the processor check alignment (to find out which one it is, as HotSpot does)
 * meets our ids, which are aligned to 2 bytes only: the store is made here. */
static bool make_unaligned_store(const siginfo_t *info, greg_t *registers)
{
    enum { ALIGNMENT_CHECK = 1 << 18 };
    struct ff_thread *thread = ff_thread_here();
    struct store store;
    if (info->si_code != BUS_ADRALN || (registers[REG_EFL] & ALIGNMENT_CHECK) == 0 ||
        thread == NULL || !decode_store((const uint8_t *)registers[REG_RIP], &store) ||
        store.is_values)
        return false;
    uint8_t *at = (uint8_t *)registers[context_index[store.base]];
    if (at != *thread->flow_at)
        return false;
    memcpy(at, store.immediate, sizeof(uint32_t));
    registers[REG_RIP] += store.bytes;
    return true;
}

/* Handles it, if it is ours. */
__attribute__((used, visibility("hidden"))) bool ff_fault_handle(int signal, const siginfo_t *info,
                                                                 ucontext_t *context)
{
    const uint8_t *address = info->si_addr;
    greg_t *registers = context->uc_mcontext.gregs;
    struct store store;
    if (signal == SIGBUS)
        return make_unaligned_store(info, registers);
    /* A signal that a process sent, or an address that no pointer can have. */
    if (info->si_code <= 0 || (uint64_t)address < FF_GUARD_BYTES)
        return false;
    struct ff_thread *thread = ff_thread_here();
    if (thread == NULL || !ff_thread_is_full(thread, address) ||
        !decode_store((const uint8_t *)registers[REG_RIP], &store))
        return false;
    uint8_t *at;
    if (store.is_values) {
        struct ff_chunk *chunk = ff_thread_next_values(thread, (store.tag & TAG_UNITS) * 2);
        if (chunk != NULL)
            chunk->regs_valid = registers_at_top(chunk->regs, registers, &store);
        at = *thread->values_at;
    } else {
        ff_thread_next_flow(thread);
        at = *thread->flow_at;
    }
    registers[context_index[store.base]] = (greg_t)at;
    return true;
}

/* A handler that is entered and left as the kernel and DynamoRIO's handler want it: with the
 * stack that the kernel made. */
__attribute__((visibility("hidden"))) void ff_fault_entry(int, siginfo_t *, void *);
__asm__(".text\n"
        ".hidden ff_fault_entry\n"
        ".globl ff_fault_entry\n"
        ".type ff_fault_entry, @function\n"
        "ff_fault_entry:\n"
        /* This code is not prepared for alignment checks. */
        "    pushf\n"
        "    andl $~0x40000, (%rsp)\n"
        "    popf\n"
        "    push %rdi\n"
        "    push %rsi\n"
        "    push %rdx\n"
        "    sub $16, %rsp\n"
        "    mov %rsp, %rax\n"
        "    and $-16, %rsp\n"
        "    push %rax\n"
        "    sub $8, %rsp\n"
        "    call ff_fault_handle\n"
        "    add $8, %rsp\n"
        "    pop %rsp\n"
        "    add $16, %rsp\n"
        "    pop %rdx\n"
        "    pop %rsi\n"
        "    pop %rdi\n"
        "    test %al, %al\n"
        "    jne 1f\n"
        "    jmp *ff_fault_next(%rip)\n"
        "1:  ret\n"
        ".size ff_fault_entry, .-ff_fault_entry\n");

/* 0 or what the kernel says. */
static long stand_before(int signal)
{
    struct kernel_sigaction action;
    long got = ff_syscall6(SYS_rt_sigaction, signal, 0, (long)&action, sizeof action.mask, 0, 0);
    if (got != 0 || (ff_fault_next != NULL && ff_fault_next != (void *)action.handler))
        return got != 0 ? got : -EEXIST;
    ff_fault_next = (void *)action.handler;
    action.handler = ff_fault_entry;
    return ff_syscall6(SYS_rt_sigaction, signal, (long)&action, 0, sizeof action.mask, 0, 0);
}

void ff_fault_install(void)
{
    if (installed)
        return;
    installed = true;
    long got = stand_before(SIGSEGV);
    if (got == 0)
        got = stand_before(SIGBUS);
    if (got != 0) {
        dr_fprintf(STDERR, "flagfinder: the kernel refused the tracer's fault handler (%d).\n",
                   (int)-got);
        dr_abort();
    }
}
