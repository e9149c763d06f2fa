/* SPDX-License-Identifier: MIT */
/* Polls a flag that nobody sets, and counts what a tracer leaves behind. Ends with 0 on SIGTERM if
 * nothing was. In the file argv[1]: rounds, answers to SIGUSR2, and its handlers. argv[2] "blocks":
 * all of its threads block all signals, and one takes them as they come; else it gets signals all
 * the time, and saves and restores its flags meanwhile. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

/* As bench/patients.py reads it. Handlers are as the kernel has them: four words for each. */
static struct {
    volatile unsigned long rounds, answers, handlers[64][4];
} *told;

volatile int never;
static volatile sig_atomic_t ending;
static volatile sig_atomic_t alarms;
static volatile unsigned long wrong;

static void on_term(int number) { (void)number; ending = 1; }
static void on_alarm(int number) { (void)number; alarms++; }
static void on_trap(int number) { (void)number; wrong++; }

static void tell_handlers(int number)
{
    unsigned long action[4];
    for (int signal = 1; signal <= 64; signal++)
        if (syscall(SYS_rt_sigaction, signal, NULL, action, 8) == 0)
            memcpy((void *)told->handlers[signal - 1], action, sizeof action);
    told->answers += number != 0;
}

static void *poll_flag(void *unused)
{
    while (!never && !ending)
        sched_yield();
    return unused;
}

/* What it computes must stay the same, and so must its mask. */
static void *compute(void *unused)
{
    while (!ending) {
        unsigned long value = 1;
        sigset_t mask;
        for (int i = 0; i < 1000; i++)
            value = value * 6364136223846793005 + 1442695040888963407;
        wrong += value != 0xf517ff66df0cbea9;
        pthread_sigmask(SIG_BLOCK, NULL, &mask);
        wrong += !sigismember(&mask, SIGTRAP) || !sigismember(&mask, SIGUSR1);
        told->rounds++;
    }
    return unused;
}

static int block_all(void)
{
    pthread_t threads[3];
    sigset_t all;
    int number = 0;
    for (int signal = 1; signal <= 64; signal += 3)
        sigaction(signal, &(struct sigaction){.sa_handler = on_trap}, NULL);
    sigfillset(&all);
    struct sigaction full = {.sa_handler = on_trap, .sa_mask = all, .sa_flags = SA_RESTART};
    sigaction(SIGTRAP, &full, NULL);
    sigaction(SIGSEGV, &full, NULL);
    signal(SIGUSR1, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, i ? compute : poll_flag, NULL);
    while (!ending && sigwait(&all, &number) == 0) {
        if (number == SIGUSR2)
            tell_handlers(number);
        ending = number == SIGTERM;
    }
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    return wrong != 0;
}

static int get_signals(void)
{
    struct itimerval often = {{0, 2000}, {0, 2000}};
    pthread_t poller;
    signal(SIGTERM, on_term);
    signal(SIGALRM, on_alarm);
    signal(SIGTRAP, on_trap);
    signal(SIGUSR2, tell_handlers);
    setitimer(ITIMER_REAL, &often, NULL);
    pthread_create(&poller, NULL, poll_flag, NULL);
    while (!never && !ending) {
        unsigned long flags;
        __asm__ volatile("pushfq\n popq %0" : "=r"(flags));
        wrong += flags >> 8 & 1;
        __asm__ volatile("pushfq\n popfq" ::: "cc", "memory");
        told->rounds++;
    }
    pthread_join(poller, NULL);
    return wrong != 0 || alarms == 0;
}

int main(int count, char **words)
{
    int file = count > 1 ? open(words[1], O_RDWR | O_CREAT, 0600) : -1;
    if (file < 0 || ftruncate(file, sizeof *told) != 0)
        return 2;
    told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (told == MAP_FAILED)
        return 2;
    tell_handlers(0);
    return count > 2 && strcmp(words[2], "blocks") == 0 ? block_all() : get_signals();
}
