/* SPDX-License-Identifier: MIT */
/* Does one thing with SIGTRAP again and again, and counts what a tracer makes of it.
 * argv[1]: "blocks" it, "sets" its mask, "waits" with another mask, "handles" a fault with all
 * signals blocked, blocks it and "computes" for long, "ignores" it, "begins" to ignore it, makes
 * "calls" that no copy makes, "steps" itself by the trap flag. Built with -mno-red-zone.
 * argv[2]: its first thread blocks nothing. On "state": its handlers. On "end": what went wrong. */
#define _GNU_SOURCE
#include "handlers.h"
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/time.h>

volatile int never;
static volatile int ending;
static volatile unsigned long wrong, rounds, traps, alarms;
static const char *kind;
static sigset_t all, none;
static volatile int *page;

static int is(const char *name) { return strcmp(kind, name) == 0; }
static void on_trap(int number) { (void)number; traps++; }
static void on_alarm(int number) { (void)number; alarms++; }

/* Each instruction from the second on ends with a trap, until the flag is taken away. */
static void step_itself(void)
{
    unsigned long before = traps;
    __asm__ volatile("pushfq\n orl $0x100, (%%rsp)\n popfq\n nop\n nop\n nop\n"
                     "pushfq\n andl $~0x100, (%%rsp)\n popfq\n nop" ::
                         : "cc", "memory");
    wrong += traps - before != 6;
    traps = before;
}

/* Lets the faulting instruction through; its own mask has all signals. */
static void on_fault(int number)
{
    sigset_t now;
    (void)number;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    wrong += !sigismember(&now, SIGTRAP);
    mprotect((void *)page, 4096, PROT_READ | PROT_WRITE);
}

static void check_mask(const sigset_t *expected)
{
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    for (int number = 1; number < 32; number++)
        if (number != SIGKILL && number != SIGSTOP)
            wrong += sigismember(&now, number) != sigismember(expected, number);
}

static void one_round(int descriptor, int events)
{
    long one = 1;
    char bytes[64];
    if (is("sets")) {
        sigset_t before;
        pthread_sigmask(SIG_SETMASK, &all, &before);
        wrong += sigismember(&before, SIGTRAP);
        check_mask(&all);
        pthread_sigmask(SIG_SETMASK, &none, &before);
        wrong += !sigismember(&before, SIGTRAP);
        check_mask(&none);
    } else if (is("waits")) {
        struct timespec soon = {0, 3000000};
        sigset_t but_alarm = all;
        sigdelset(&but_alarm, SIGALRM);
        ppoll(NULL, 0, &soon, &but_alarm);
        check_mask(&all);
    } else if (is("handles")) {
        mprotect((void *)page, 4096, PROT_READ);
        *page = 1;
        check_mask(&none);
    } else if (is("begins")) {
        struct sigaction ignores = {.sa_handler = SIG_IGN}, before;
        struct sigaction handles = {.sa_handler = on_trap};
        sigaction(SIGTRAP, &ignores, &before);
        wrong += before.sa_handler != on_trap;
        for (volatile int i = 0; i < 20; i++)
            ;
        sigaction(SIGTRAP, &handles, &before);
        wrong += before.sa_handler != SIG_IGN;
    } else if (is("computes")) {
        for (volatile long i = 0; i < 1000000; i++)
            ;
    } else if (is("calls")) {
        if (write(events, &one, 8) != 8 || read(events, bytes, 8) != 8)
            wrong++;
        lseek(descriptor, 0, 0);
    } else if (is("steps")) {
        step_itself();
    }
    rounds++;
}

static void *worker(void *unused)
{
    int descriptor = open("/proc/self/maps", O_RDONLY), events = eventfd(0, EFD_NONBLOCK);
    if (is("blocks") || is("waits") || is("calls") || is("computes"))
        pthread_sigmask(SIG_SETMASK, &all, NULL);
    while (!never && !ending)
        one_round(descriptor, events);
    return unused;
}

int main(int count, char **words)
{
    struct sigaction action = {.sa_handler = on_trap, .sa_flags = SA_RESTART | SA_NODEFER};
    struct itimerval often = {{0, 2000}, {0, 2000}};
    pthread_t thread;
    char line[16];
    if (count < 2)
        return 2;
    kind = words[1];
    sigfillset(&all);
    sigemptyset(&none);
    page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sigaddset(&action.sa_mask, SIGUSR2);
    sigaction(SIGTRAP, &action, NULL);
    if (is("ignores"))
        signal(SIGTRAP, SIG_IGN);
    signal(SIGUSR1, SIG_IGN);
    action.sa_handler = on_fault;
    sigfillset(&action.sa_mask);
    sigaction(SIGSEGV, &action, NULL);
    signal(SIGALRM, on_alarm);
    if (is("waits"))
        setitimer(ITIMER_REAL, &often, NULL);
    pthread_create(&thread, NULL, worker, NULL);
    if (!is("handles") && count < 3)
        pthread_sigmask(SIG_SETMASK, &all, NULL);
    while (rounds == 0)
        usleep(1000);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n") != 0)
        print_handlers();
    ending = 1;
    pthread_join(thread, NULL);
    printf("%lu %lu %lu\n", wrong, traps, rounds);
    return 0;
}
