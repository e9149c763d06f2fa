/* SPDX-License-Identifier: MIT */
/* Two threads share a table behind a home-made test-and-set lock. In spin mode one of them reads
 * from a silent pipe while it holds the lock. */
#include "announce.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLOW = 30 };

static atomic_uint table_lock;
static long table[64];
static int updates[2];
static int slow_at = -1;

static void lock_table(void)
{
    while (atomic_exchange_explicit(&table_lock, 1, memory_order_acquire) != 0)
        __builtin_ia32_pause();
}

static void unlock_table(void)
{
    atomic_store_explicit(&table_lock, 0, memory_order_release);
}

static void *update_table(void *unused)
{
    char entry;
    for (int round = 0; round < 60; round++) {
        lock_table();
        if (round == SLOW)
            announce_flag(&table_lock, sizeof table_lock);
        if (round == slow_at && read(updates[0], &entry, 1) == 1)
            table[0] = entry;
        for (int i = 1; i < 64; i++)
            table[i] += i * round;
        usleep(2000);
        unlock_table();
        free(malloc(64 + (unsigned)round));
        usleep(1000);
    }
    return unused;
}

__attribute__((noinline)) static long sum_table(void)
{
    long sum = 0;
    lock_table();
    for (int i = 0; i < 64; i++)
        sum += table[i];
    unlock_table();
    return sum;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "spin") == 0)
        slow_at = SLOW;
    if (pipe(updates) != 0)
        return 1;
    pthread_t thread;
    pthread_create(&thread, NULL, update_table, NULL);
    long sum = 0;
    for (int round = 0; round < 80; round++) {
        sum += sum_table();
        usleep(2500);
    }
    pthread_join(thread, NULL);
    return sum == -1;
}
