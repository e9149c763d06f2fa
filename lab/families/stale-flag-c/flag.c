/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <truth.h>

struct job {
    int number;
    atomic_int done;
};

static int ends[2];

static void *work(void *argument)
{
    struct job *job = argument;
    char byte;
    LAB_ROLE("worker");
    if (read(ends[0], &byte, 1) == 1)
        atomic_store(&job->done, 1);
    return NULL;
}

static void *tick(void *argument)
{
    (void)argument;
    LAB_ROLE("clock");
    for (;;)
        usleep(100000);
}

int main(int count, char **words)
{
    (void)words;
    struct job *job = calloc(1, sizeof *job);
    pthread_t worker, clock;
    if (pipe(ends) != 0)
        return 2;
    pthread_create(&worker, NULL, work, job);
    pthread_create(&clock, NULL, tick, NULL);
    if (count == 1 && write(ends[1], "x", 1) != 1)
        return 3;
    usleep(200000);
    LAB_ROLE("waiter");
    LAB_WORD("done", &job->done, sizeof job->done);
    LAB_READY();
    while (!atomic_load(&job->done))
        sched_yield();
    return 0;
}
