/* SPDX-License-Identifier: MIT */
/* Polls a flag that nobody sets, saves and restores its flags meanwhile, gets signals, and counts
 * what a tracer leaves behind. Ends with 0 on SIGTERM if nothing was. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/time.h>

volatile int never;
static volatile sig_atomic_t ending;
static volatile sig_atomic_t alarms;
static volatile unsigned long traps;

static void on_term(int number)
{
    (void)number;
    ending = 1;
}

static void on_alarm(int number)
{
    (void)number;
    alarms++;
}

static void *poll_flag(void *unused)
{
    while (!never && !ending)
        sched_yield();
    return unused;
}

int main(void)
{
    struct itimerval often = {{0, 2000}, {0, 2000}};
    pthread_t poller;
    signal(SIGTERM, on_term);
    signal(SIGALRM, on_alarm);
    setitimer(ITIMER_REAL, &often, NULL);
    pthread_create(&poller, NULL, poll_flag, NULL);
    while (!never && !ending) {
        unsigned long flags;
        __asm__ volatile("pushfq\n popq %0" : "=r"(flags));
        traps += flags >> 8 & 1;
        __asm__ volatile("pushfq\n popfq" ::: "cc", "memory");
    }
    pthread_join(poller, NULL);
    return traps != 0 || alarms == 0;
}
