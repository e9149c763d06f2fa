/* SPDX-License-Identifier: MIT */
/* native FILE KIND [bad]: main waits for a worker 40 times. It polls a global or a field of an
 * object that it allocates each time (heap). With `hot` the worker itself asks that field by the
 * same code, all the time. FILE gets the seconds on the clock and those of the worker's processor
 * time. In a bad run the worker never begins. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct job {
    char name[40];
    volatile int state;
};

static struct job here, *volatile job;
static int hot, heap;
static volatile unsigned long work;

__attribute__((noinline)) static int state_of(struct job *of)
{
    return of->state;
}

__attribute__((noinline)) static int global_state(void)
{
    return here.state;
}

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void *compute(void *used)
{
    for (int phase = 0; phase < 40; phase++) {
        while (!job)
            sched_yield();
        for (int round = 0; round < 20000; round++) {
            for (int step = 0; step < 1000; step++)
                work = work * 31 + 7;
            if (hot && state_of(job) != 0)
                abort();
        }
        struct job *done = job;
        job = NULL;
        done->state = 1;
    }
    *(double *)used = seconds(CLOCK_THREAD_CPUTIME_ID);
    return NULL;
}

int main(int count, char **words)
{
    pthread_t worker;
    double used = 0, begin = seconds(CLOCK_MONOTONIC);
    int bad = count > 3;
    hot = count > 2 && strcmp(words[2], "hot") == 0;
    heap = hot || (count > 2 && strcmp(words[2], "heap") == 0);
    if (count < 3 || (!bad && pthread_create(&worker, NULL, compute, &used) != 0))
        return 2;
    for (int phase = 0; phase < 40; phase++) {
        struct job *mine = heap ? calloc(1, sizeof *mine) : &here;
        mine->state = 0;
        job = mine;
        if (heap)
            while (state_of(mine) == 0)
                sched_yield();
        else
            while (global_state() == 0)
                sched_yield();
    }
    pthread_join(worker, NULL);
    FILE *file = fopen(words[1], "w");
    if (!file)
        return 3;
    fprintf(file, "%f %f\n", seconds(CLOCK_MONOTONIC) - begin, used);
    return fclose(file) != 0;
}
