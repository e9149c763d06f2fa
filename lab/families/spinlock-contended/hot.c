/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <truth.h>

static atomic_int lock;
static unsigned long table[4096];

static void *work(void *argument)
{
    unsigned long seed = (unsigned long)argument;
    for (;;) {
        for (int spins = 0; atomic_exchange_explicit(&lock, 1, memory_order_acquire); spins++)
            if (spins % 64 == 63)
                sched_yield();
        for (int step = 0; step < 100; step++) {
            seed = seed * 6364136223846793005ul + 1442695040888963407ul;
            table[seed >> 52]++;
        }
        atomic_store_explicit(&lock, 0, memory_order_release);
    }
    return NULL;
}

int main(void)
{
    pthread_t thread;
    for (long number = 1; number < 3; number++)
        pthread_create(&thread, NULL, work, (void *)number);
    LAB_ROLE("waiter");
    LAB_READY();
    work((void *)7);
}
