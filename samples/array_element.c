/* SPDX-License-Identifier: MIT */
/* Each worker marks its own slot when its share is summed. In spin mode the last worker computes
 * its slot with the old number of workers and marks a neighbour's a second time. */
#include "announce.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORKERS 4

struct slot {
    double sum;
    unsigned items;
    unsigned done;
    char pad[48];
};

struct slot slots[WORKERS];
static int slot_count = WORKERS;

static void *worker(void *argument)
{
    int number = (int)(long)argument;
    struct slot *slot = &slots[number % slot_count];
    double *share = malloc(20000 * sizeof *share);
    for (int i = 0; i < 20000; i++)
        share[i] = i * 0.25 + number;
    usleep(50000u * (unsigned)(number + 1));
    for (int i = 0; i < 20000; i++) {
        slot->sum += share[i];
        slot->items++;
    }
    free(share);
    __atomic_store_n(&slot->done, 1, __ATOMIC_RELEASE);
    return NULL;
}

__attribute__((noinline)) static double collect(int number)
{
    while (__atomic_load_n(&slots[number].done, __ATOMIC_ACQUIRE) == 0)
        __builtin_ia32_pause();
    return slots[number].sum;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "spin") == 0)
        slot_count = WORKERS - 1;
    pthread_t threads[WORKERS];
    for (long number = 0; number < WORKERS; number++)
        pthread_create(&threads[number], NULL, worker, (void *)number);
    double total = 0;
    for (int number = 0; number < WORKERS; number++) {
        if (number == WORKERS - 1)
            announce_flag(&slots[number].done, sizeof slots[number].done);
        total += collect(number);
    }
    for (int number = 0; number < WORKERS; number++)
        pthread_join(threads[number], NULL);
    printf("total %g\n", total);
    return 0;
}
