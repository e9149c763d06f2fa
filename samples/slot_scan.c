/* SPDX-License-Identifier: MIT */
/* Whoever changes the table's layout first waits until no transaction that began before is in
 * progress: it scans the slots of all workers. In spin mode a worker whose transaction fails
 * returns without giving its slot back. */
#include "announce.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORKERS 6
#define FAILING 4

struct slot {
    unsigned worker;
    unsigned transaction; /* 0: none */
    char pad[56];
};

static struct slot slots[WORKERS];
static int worker_count = WORKERS;
static int rolls_back = 1;

static void *worker(void *argument)
{
    int number = (int)(long)argument;
    usleep(40000u * (unsigned)(number + 1));
    if (number == FAILING && !rolls_back)
        return NULL;
    __atomic_store_n(&slots[number].transaction, 0, __ATOMIC_RELEASE);
    if (number == WORKERS - 1) /* The scan comes to the failing worker's slot only now. */
        announce_flag(&slots[FAILING].transaction, sizeof slots[0].transaction);
    return NULL;
}

__attribute__((noinline)) static int is_in_progress(unsigned before)
{
    for (int number = 0; number < worker_count; number++) {
        unsigned transaction = __atomic_load_n(&slots[number].transaction, __ATOMIC_ACQUIRE);
        if (transaction != 0 && transaction < before)
            return 1;
    }
    return 0;
}

__attribute__((noinline)) static void wait_for_older(unsigned before)
{
    while (is_in_progress(before))
        usleep(500);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "spin") == 0)
        rolls_back = 0;
    pthread_t threads[WORKERS];
    for (long number = 0; number < WORKERS; number++) {
        slots[number].worker = (unsigned)number;
        slots[number].transaction = 700 + (unsigned)number;
        pthread_create(&threads[number], NULL, worker, (void *)number);
    }
    wait_for_older(800);
    for (int number = 0; number < WORKERS; number++)
        pthread_join(threads[number], NULL);
    printf("the table is ours\n");
    return 0;
}
