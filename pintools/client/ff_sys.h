/* SPDX-License-Identifier: MIT */
/* System calls made by the tracer itself. Direct, because DynamoRIO must not see them (it
 * emulates some for the application) and because they also run where no libc may: in the
 * handler of a fault that the code cache raised. Return the kernel's value, negative errno. */
#ifndef FF_SYS_H
#define FF_SYS_H

#include <stdint.h>
#include <sys/syscall.h>

#include "ff_protocol.h"

static inline long ff_syscall6(long number, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

static inline long ff_syscall3(long number, long a, long b, long c)
{
    return ff_syscall6(number, a, b, c, 0, 0, 0);
}

/* CLOCK_MONOTONIC in ns, through the vdso when it is there. */
uint64_t ff_now(void);

/* The same for events: rounded down to FF_EVENT_GRAIN. */
static inline uint64_t ff_event_now(void) { return ff_now() & ~(uint64_t)(FF_EVENT_GRAIN - 1); }

/* Finds the vdso and hides from the application what only told DynamoRIO to load us.
 * Call once, before the application's first instruction. */
void ff_sys_init(void);

/* The first thread's stack pointer and pc at the program's entry (the dynamic linker's, if there
 * is one), as the kernel set them; 0 if unknown. */
uint64_t ff_entry_stack(void);
uint64_t ff_entry_pc(void);

#endif
