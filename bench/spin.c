/* SPDX-License-Identifier: MIT */
/* A thread that waits for a flag that nobody sets: spin yield|busy. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static atomic_int done;

static void *yielding(void *unused)
{
    (void)unused;
    while (!atomic_load_explicit(&done, memory_order_acquire))
        sched_yield();
    return NULL;
}

static void *busy(void *unused)
{
    (void)unused;
    while (!atomic_load_explicit(&done, memory_order_acquire))
        ;
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 2 || (strcmp(argv[1], "yield") != 0 && strcmp(argv[1], "busy") != 0)) {
        fprintf(stderr, "usage: spin yield|busy\n");
        return 2;
    }
    pthread_t waiter;
    if (pthread_create(&waiter, NULL, argv[1][0] == 'y' ? yielding : busy, NULL) != 0)
        return 1;
    return pthread_join(waiter, NULL);
}
