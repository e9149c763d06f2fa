/* SPDX-License-Identifier: MIT */
/* Looks at the processors it may use, sets them, and hands them on to threads and processes, all
 * the time. What it did not ask for is counted. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

volatile int never;
static volatile sig_atomic_t ending;
static cpu_set_t all;

static void on_term(int number) { (void)number; ending = 1; }

static int differs(const cpu_set_t *from)
{
    cpu_set_t now;
    return sched_getaffinity(0, sizeof now, &now) != 0 || !CPU_EQUAL(&now, from);
}

static void *look(void *unused)
{
    (void)unused;
    return differs(&all) ? &all : NULL;
}

static int child_differs(void)
{
    int status = 1;
    pid_t child = fork();
    if (child == 0)
        _exit(differs(&all));
    return waitpid(child, &status, 0) != child || status != 0;
}

static int thread_differs(void)
{
    void *result = NULL;
    pthread_t thread;
    return pthread_create(&thread, NULL, look, NULL) != 0 || pthread_join(thread, &result) != 0 ||
           result != NULL;
}

int main(void)
{
    cpu_set_t one;
    unsigned long wrong = 0, rounds = 0;
    sched_getaffinity(0, sizeof all, &all);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    signal(SIGTERM, on_term);
    puts("ready");
    fflush(stdout);
    while (!never && !ending) {
        wrong += differs(&all);
        if (++rounds % 16 == 0)
            wrong += child_differs() + thread_differs();
        if (rounds % 64 == 0) {
            sched_setaffinity(0, sizeof one, &one);
            wrong += differs(&one);
            sched_setaffinity(0, sizeof all, &all);
        }
    }
    return wrong + differs(&all) != 0;
}
