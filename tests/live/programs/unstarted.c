/* SPDX-License-Identifier: MIT */
/* main polls a field of an object on the heap. `finish` would set it, but the thread that calls it
 * is never started. `reset` stores what the field holds already. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

struct job {
    char name[48];
    volatile int state;
};

__attribute__((noinline)) static void finish(struct job *job)
{
    job->state = 3;
}

__attribute__((noinline)) static void reset(struct job *job)
{
    job->state = 0;
}

static void *worker(void *job)
{
    finish(job);
    return NULL;
}

__attribute__((noinline)) static void await(struct job *job)
{
    while (job->state == 0)
        sched_yield();
}

int main(int count, char **words)
{
    (void)words;
    pthread_t thread;
    struct job *job = calloc(1, sizeof *job);
    if (!job)
        return 1;
    reset(job);
    if (count > 1 && pthread_create(&thread, NULL, worker, job) != 0)
        return 1;
    await(job);
    return 0;
}
