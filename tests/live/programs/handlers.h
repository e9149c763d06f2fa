/* SPDX-License-Identifier: MIT */
/* Shows what this process does with each signal: the kernel tells it nobody else. */
#ifndef HANDLERS_H
#define HANDLERS_H
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

/* As the kernel has it; glibc would hide its own part. */
struct kernel_action {
    unsigned long handler, flags, restorer, mask;
};

static inline void print_handlers(void)
{
    struct kernel_action action;
    for (int number = 1; number <= 64; number++)
        if (syscall(SYS_rt_sigaction, number, NULL, &action, 8) == 0 && action.handler)
            printf("%d:%lx:%lx:%lx ", number, action.handler, action.flags, action.mask);
    puts("");
    fflush(stdout);
}
#endif
