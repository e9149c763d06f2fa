/* SPDX-License-Identifier: MIT */
/* The first thread ends (pthread_exit), and another goes on: it polls a word, or sleeps until one
 * changes. Nobody writes them. */
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile int polled, slept_on;

static void *poll(void *unused)
{
    while (!polled)
        sched_yield();
    return unused;
}

static void *sleep_on(void *unused)
{
    while (!slept_on)
        syscall(SYS_futex, &slept_on, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    int polls = argc > 1 && strcmp(argv[1], "poll") == 0;
    pthread_create(&thread, NULL, polls ? poll : sleep_on, NULL);
    pthread_exit(NULL);
}
