/* SPDX-License-Identifier: MIT */
/* Waits at a latch inside liblatch.so. In spin mode the opener still has the number of an earlier
 * generation, and the latch ignores it. */
#include "announce.h"
#include "latch.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int compare(const void *left, const void *right)
{
    return *(const int *)left - *(const int *)right;
}

static void *prepare(void *argument)
{
    int *numbers = malloc(5000 * sizeof *numbers);
    for (int i = 0; i < 5000; i++)
        numbers[i] = (i * 7919) % 5000;
    qsort(numbers, 5000, sizeof *numbers, compare);
    free(numbers);
    usleep(150000);
    latch_open(*(int *)argument);
    return NULL;
}

int main(int argc, char **argv)
{
    int generation = argc > 1 && strcmp(argv[1], "spin") == 0 ? 0 : 1;
    unsigned long size;
    const void *address = latch_address(&size);
    announce_flag(address, size);
    pthread_t thread;
    pthread_create(&thread, NULL, prepare, &generation);
    latch_wait();
    pthread_join(thread, NULL);
    return 0;
}
