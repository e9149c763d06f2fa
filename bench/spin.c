/* SPDX-License-Identifier: MIT */
/* A thread that waits for a flag that nobody sets: spin yield|busy|STEPS [THREADS [MIB]].
 * With STEPS it looks at so many entries of a table before it asks again. Beside it are so many
 * threads that are blocked, and so much memory that was written. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static long steps;
static volatile unsigned table[1 << 12];

__attribute__((noinline)) static void look(void)
{
    for (long step = 0; step < steps; step++)
        if (table[step % (1 << 12)] != 0)
            exit(1);
}

static void *looking(void *unused)
{
    (void)unused;
    while (!atomic_load_explicit(&done, memory_order_acquire))
        look();
    return NULL;
}

static void *blocked(void *unused)
{
    for (;;)
        pause();
    return unused;
}

int main(int argc, char **argv)
{
    void *(*waiting)(void *) = looking;
    if (argc >= 2 && strcmp(argv[1], "yield") == 0)
        waiting = yielding;
    else if (argc >= 2 && strcmp(argv[1], "busy") == 0)
        waiting = busy;
    else
        steps = argc >= 2 ? atol(argv[1]) : 0;
    if (argc > 4 || (waiting == looking && steps <= 0)) {
        fprintf(stderr, "usage: spin yield|busy|STEPS [THREADS [MIB]]\n");
        return 2;
    }
    pthread_t waiter;
    for (long left = argc > 2 ? atol(argv[2]) : 0; left > 0; left--)
        if (pthread_create(&waiter, NULL, blocked, NULL) != 0)
            return 1;
    size_t bytes = argc > 3 ? (size_t)atol(argv[3]) << 20 : 0;
    if (bytes != 0) {
        char *memory = malloc(bytes);
        if (memory == NULL)
            return 1;
        memset(memory, 1, bytes);
    }
    if (pthread_create(&waiter, NULL, waiting, NULL) != 0)
        return 1;
    return pthread_join(waiter, NULL);
}
