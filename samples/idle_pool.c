/* SPDX-License-Identifier: MIT */
/* The workers of a pool spin while there is no task for them; main hands out tasks and spins until
 * all are done. In spin mode one task waits for a device that stays silent: main waits for that
 * worker, the others idle as they always do. */
#include "announce.h"
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORKERS 3
#define ROUNDS 300

struct worker {
    pthread_t thread;
    long task; /* 0: none */
    double sum;
    char apart[64];
};

struct pool {
    char name[16];
    long tasks_given;
    int unfinished;
    char apart[64];
    struct worker workers[WORKERS];
};

static struct pool *pool;
static int device[2];

static double work_on(long task)
{
    double sum = 0;
    for (long n = 1; n <= 2000 + task % 7 * 500; n++)
        sum += 1.0 / (double)(n * task);
    return sum;
}

static void *serve(void *argument)
{
    struct worker *worker = argument;
    for (;;) {
        long task;
        while ((task = __atomic_load_n(&worker->task, __ATOMIC_ACQUIRE)) == 0)
            sched_yield();
        if (task < 0)
            return NULL;
        char byte;
        if (task % (ROUNDS * WORKERS) == 0 && read(device[0], &byte, 1) != 1)
            return NULL;
        worker->sum += work_on(task);
        __atomic_store_n(&worker->task, 0, __ATOMIC_RELAXED);
        __atomic_sub_fetch(&pool->unfinished, 1, __ATOMIC_RELEASE);
    }
}

__attribute__((noinline)) static void run_round(void)
{
    __atomic_store_n(&pool->unfinished, WORKERS, __ATOMIC_RELAXED);
    for (int number = 0; number < WORKERS; number++)
        __atomic_store_n(&pool->workers[number].task, ++pool->tasks_given, __ATOMIC_RELEASE);
    while (__atomic_load_n(&pool->unfinished, __ATOMIC_ACQUIRE) != 0)
        sched_yield();
}

int main(int argc, char **argv)
{
    int hang = argc > 1 && strcmp(argv[1], "spin") == 0;
    pool = calloc(1, sizeof *pool);
    strcpy(pool->name, "numbers");
    announce_flag(&pool->unfinished, sizeof pool->unfinished);
    if (pipe(device) != 0 || (!hang && write(device[1], "x", 1) != 1))
        return 1;
    for (int number = 0; number < WORKERS; number++)
        pthread_create(&pool->workers[number].thread, NULL, serve, &pool->workers[number]);
    for (int round = 0; round < ROUNDS; round++)
        run_round();
    double sum = 0;
    for (int number = 0; number < WORKERS; number++) {
        __atomic_store_n(&pool->workers[number].task, -1, __ATOMIC_RELEASE);
        pthread_join(pool->workers[number].thread, NULL);
        sum += pool->workers[number].sum;
    }
    return printf("%s: %g\n", pool->name, sum) < 0;
}
