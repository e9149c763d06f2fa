/* SPDX-License-Identifier: MIT */
/* Saves and restores its flags all the time. A trap flag that a tracer leaves behind, in the
 * processor or in flags saved meanwhile, kills it or is counted. Built with -mno-red-zone. */
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>

volatile int never;
static volatile sig_atomic_t ending;
static unsigned long traps;

static void on_term(int number) { (void)number; ending = 1; }
static void on_alarm(int number) { (void)number; }

int main(void)
{
    struct itimerval often = {{0, 2000}, {0, 2000}};
    signal(SIGTERM, on_term);
    signal(SIGALRM, on_alarm);
    setitimer(ITIMER_REAL, &often, NULL);
    puts("ready");
    fflush(stdout);
    while (!never && !ending) {
        unsigned long flags;
        __asm__ volatile("pushfq\n popq %0" : "=r"(flags));
        traps += flags >> 8 & 1;
        // So many that a tracer mostly finds it at one.
        __asm__ volatile(".rept 64\n pushfq\n popfq\n .endr" ::: "cc", "memory");
        __asm__ volatile(
            "mov %%rsp, %%rcx\n mov %%ss, %%eax\n push %%rax\n push %%rcx\n pushfq\n"
            "mov %%cs, %%eax\n push %%rax\n lea 1f(%%rip), %%rax\n push %%rax\n iretq\n 1:" ::
                : "rax", "rcx", "cc", "memory");
    }
    return traps != 0;
}
