/* SPDX-License-Identifier: MIT */
/* Pools whose workers spin while there is no work: POOL normal|spin [ROUNDS].
 *
 * slots: each worker has a word, which it waits to be set and main waits to be cleared.
 * rounds: workers wait for the number of the round to change, main for all of them to be done.
 * futures: workers take tasks from a queue, main waits for the state of the task that it wants.
 * asleep: as slots, but main sleeps until each worker has posted a semaphore.
 *
 * In spin mode one worker stops after the rounds: a signal finds it idle (slots, rounds, asleep) or
 *   at work (futures), and its handler never returns. Main prints "stopped" then and waits for that
 *   worker's answer; the others idle. */
#include "../../../samples/announce.h"
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORKERS 3
#define VICTIM 1
#define CAPACITY 8

struct slot {
    int job;
    char apart[60];
};

struct task {
    int state; /* 1: given, 2: done */
    char apart[60];
};

static struct slot slots[WORKERS];
static int round_number, finished;
static struct task tasks[CAPACITY];
static unsigned taken, given;
static int leave, is_stopped, posts;
static sem_t answered;
static volatile double sums[WORKERS + 1];
static pthread_t threads[WORKERS];

static void stop(int number)
{
    (void)number;
    __atomic_store_n(&is_stopped, 1, __ATOMIC_RELEASE);
    for (;;)
        pause();
}

static void work(int number, int amount)
{
    double sum = 0;
    for (int n = 1; n < amount; n++)
        sum += 1.0 / n;
    sums[number] = sum;
}

static void *serve_slot(void *argument)
{
    int number = (int)(long)argument;
    for (;;) {
        int job;
        while ((job = __atomic_load_n(&slots[number].job, __ATOMIC_ACQUIRE)) == 0)
            sched_yield();
        if (job < 0)
            return NULL;
        work(number, 20000 + 1000 * (job % 5));
        __atomic_store_n(&slots[number].job, 0, __ATOMIC_RELEASE);
        if (posts)
            sem_post(&answered);
    }
}

static void *serve_round(void *argument)
{
    int number = (int)(long)argument;
    for (int last = 0;; last++) {
        while (__atomic_load_n(&round_number, __ATOMIC_ACQUIRE) == last)
            sched_yield();
        if (__atomic_load_n(&leave, __ATOMIC_ACQUIRE))
            return NULL;
        work(number, 20000 + 1000 * (last % 5));
        __atomic_add_fetch(&finished, 1, __ATOMIC_RELEASE);
    }
}

static void *serve_queue(void *argument)
{
    int number = (int)(long)argument;
    for (;;) {
        unsigned mine = __atomic_load_n(&taken, __ATOMIC_ACQUIRE);
        while (mine == __atomic_load_n(&given, __ATOMIC_ACQUIRE)) {
            if (__atomic_load_n(&leave, __ATOMIC_ACQUIRE))
                return NULL;
            sched_yield();
            mine = __atomic_load_n(&taken, __ATOMIC_ACQUIRE);
        }
        if (!__atomic_compare_exchange_n(&taken, &mine, mine + 1, 0, __ATOMIC_ACQ_REL,
                                         __ATOMIC_RELAXED))
            continue;
        work(number, 20000 + 1000 * (int)(mine % 5));
        if (__atomic_load_n(&is_stopped, __ATOMIC_ACQUIRE) == 2)
            stop(0);
        __atomic_store_n(&tasks[mine % CAPACITY].state, 2, __ATOMIC_RELEASE);
    }
}

__attribute__((noinline)) static void await_slots(void)
{
    for (int number = 0; number < WORKERS; number++)
        if (posts)
            sem_wait(&answered);
        else
            while (__atomic_load_n(&slots[number].job, __ATOMIC_ACQUIRE) != 0)
                sched_yield();
}

__attribute__((noinline)) static void await_round(void)
{
    while (__atomic_load_n(&finished, __ATOMIC_ACQUIRE) != WORKERS)
        sched_yield();
}

__attribute__((noinline)) static void await_task(struct task *task)
{
    while (__atomic_load_n(&task->state, __ATOMIC_ACQUIRE) != 2)
        sched_yield();
}

static void give_round(const char *pool, int round)
{
    if (strcmp(pool, "slots") == 0 || strcmp(pool, "asleep") == 0) {
        for (int number = 0; number < WORKERS; number++)
            __atomic_store_n(&slots[number].job, round + 1, __ATOMIC_RELEASE);
        await_slots();
    } else if (strcmp(pool, "rounds") == 0) {
        __atomic_store_n(&finished, 0, __ATOMIC_RELAXED);
        __atomic_add_fetch(&round_number, 1, __ATOMIC_RELEASE);
        await_round();
    } else {
        struct task *task = &tasks[given % CAPACITY];
        task->state = 1;
        __atomic_add_fetch(&given, 1, __ATOMIC_RELEASE);
        await_task(task);
    }
}

static void stop_one(const char *pool)
{
    if (strcmp(pool, "futures") == 0) {
        __atomic_store_n(&is_stopped, 2, __ATOMIC_RELEASE);
    } else {
        pthread_kill(threads[VICTIM], SIGUSR1);
        while (!__atomic_load_n(&is_stopped, __ATOMIC_ACQUIRE))
            usleep(1000);
    }
    printf("stopped\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const char *pool = argc > 1 ? argv[1] : "slots";
    int hang = argc > 2 && strcmp(argv[2], "spin") == 0;
    int rounds = argc > 3 ? atoi(argv[3]) : 40;
    void *(*serve)(void *) = serve_queue;
    if (strcmp(pool, "slots") == 0) {
        serve = serve_slot;
        announce_flag(&slots[VICTIM].job, sizeof(int));
    } else if (strcmp(pool, "asleep") == 0) {
        serve = serve_slot;
        posts = 1;
        sem_init(&answered, 0, 0);
        announce_flag(&answered, sizeof(int));
    } else if (strcmp(pool, "rounds") == 0) {
        serve = serve_round;
        announce_flag(&finished, sizeof finished);
    } else {
        announce_flag(&tasks[rounds % CAPACITY].state, sizeof(int));
    }
    signal(SIGUSR1, stop);
    for (long number = 0; number < WORKERS; number++)
        pthread_create(&threads[number], NULL, serve, (void *)number);
    for (int round = 0; round <= rounds; round++) {
        work(WORKERS, 200000 * (1 + round % 7));
        usleep(10000);
        if (hang && round == rounds)
            stop_one(pool);
        give_round(pool, round);
    }
    __atomic_store_n(&leave, 1, __ATOMIC_RELEASE);
    __atomic_add_fetch(&round_number, 1, __ATOMIC_RELEASE);
    for (int number = 0; number < WORKERS; number++)
        __atomic_store_n(&slots[number].job, -1, __ATOMIC_RELEASE);
    for (int number = 0; number < WORKERS; number++)
        pthread_join(threads[number], NULL);
    return printf("%g\n", sums[WORKERS]) < 0;
}
